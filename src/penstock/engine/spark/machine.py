"""What Spark gets of this machine, and where others find it, when nobody says otherwise."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import time

import pyspark

from penstock.declare.analysis_cache import cache_folder, remove_unused

# Of the memory: the rest is for queries, which have processes of their own, for Arrow, and for files that the machine keeps in memory.
_SHARE = 3
_LEAST_MB, _MOST_MB = 1024, 24 * 1024
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_OF_WORKERS = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*]")
HERE = "127.0.0.1"


def memory_bytes() -> int:
    """What the machine has, or the container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        # Without a limit it says `max`.
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found)


def memory_settings(master: str, memory: int) -> dict[str, str]:
    """How much memory the driver has, and the executors of a cluster that is started with us. What those of others have is theirs to say."""
    settings = {}
    if not _said("spark.driver.memory", "SPARK_DRIVER_MEMORY"):
        driver = min(max(memory // _SHARE >> 20, _LEAST_MB), _MOST_MB)
        settings["spark.driver.memory"] = f"{driver}m"
    if (workers := _OF_WORKERS.match(master)) and not _said("spark.executor.memory", "SPARK_EXECUTOR_MEMORY"):
        settings["spark.executor.memory"] = f"{workers[1]}m"
    return settings


def _said(key: str, variable: str) -> bool:
    """Whether a file of defaults or a variable of Spark's own says it."""
    if os.environ.get(variable):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or Path(
        os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent), "conf"
    )
    try:
        lines = Path(folder, "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return False
    return any(re.match(rf"\s*{re.escape(key)}[\s=:]", line) for line in lines)


def address_settings(master: str) -> dict[str, str]:
    """Where executors find the driver: on this machine only, or by the address from which the cluster's master is reached. Of other clusters Spark
    knows best itself."""
    if master.startswith("local"):
        found: str | None = HERE
    elif hosts := re.match(r"spark://(?:\[([^]]+)]|([^:,/]+))", master):
        found = _address_towards(hosts[1] or hosts[2])
    else:
        found = None
    if found is None:
        return {}
    return {"spark.driver.host": found, "spark.driver.bindAddress": found}


def _address_towards(host: str) -> str | None:
    """The address of this machine on the way to another one. Nothing is sent."""
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as way:
                way.connect(address)
                found = str(way.getsockname()[0])
                return f"[{found}]" if ":" in found else found
    return None


# The classes of Spark as Java keeps them once it has read them: with such an archive Spark starts in about half the time. The first process
# of a machine that runs a project leaves one when it ends, in the user's cache folder. It fits one Java and one Spark; Java leaves aside what
# does not fit. It may be deleted at any time.
# Java would print each class that it cannot keep.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


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
            remove_unused(folder.glob("spark-*.jsa*"))
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
