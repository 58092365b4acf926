"""The classes of Spark as Java keeps them once it has read them: with such an archive Spark starts in about half the time. The first process of
a machine that runs a project leaves one when it ends, in the user's cache folder. It fits one Java and one Spark; Java leaves aside what does not
fit. It may be deleted at any time."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import time

import pyspark

_UNUSED_S = 30 * 86_400
# Java would print each class that it cannot keep.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def cache_folder() -> Path | None:
    """`PENSTOCK_CACHE`, or `penstock` in the user's cache; none if that is empty."""
    said = os.environ.get("PENSTOCK_CACHE")
    if said is not None:
        return Path(said).absolute() if said else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    except RuntimeError:  # nobody's home
        return None


def archive_options(java: str, leaves_one: bool) -> str:
    """Options for Java, of which `java` says all that makes it another one. `leaves_one`: it may write the archive when it ends."""
    folder = cache_folder()
    if folder is None or re.search(r"[\s\"']", str(folder)):
        return ""
    spark = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    key = hashlib.sha256(f"{java}\n{spark}\n{pyspark.__version__}".encode()).hexdigest()[:16]
    archive = folder / f"spark-{key}.jsa"
    with suppress(OSError):
        for left in _left(folder, key):
            left.replace(archive) if _is_whole(left) else left.unlink()
        if archive.exists():
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
        if leaves_one:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in folder.glob("spark-*.jsa*"):
                if old.stat().st_mtime < time() - _UNUSED_S:
                    old.unlink()
            return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()} {_QUIET}"
    return ""


def _left(folder: Path, key: str) -> Iterator[Path]:
    """What processes that have ended left."""
    for path in folder.glob(f"spark-{key}.jsa.*"):
        number = path.suffix[1:]
        # Java writes for a moment longer than the process lives that started it.
        if number.isdigit() and not Path("/proc", number).exists() and path.stat().st_mtime < time() - 10:
            yield path


def _is_whole(path: Path) -> bool:
    """Java writes the beginning last."""
    with path.open("rb") as file:
        return any(file.read(4))
