"""Plain names for Spark. To Spark and Hadoop a name is a pattern: `st2*.csv` stands for all of `st2A.csv`, `st2B.csv`, and
`co:lon.csv` cannot be said at all. So Spark is given links with plain names, and a delivered file may be called anything.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_SPECIAL = re.compile(r"[{}\[\]*?\\]")
_COMPRESSED = (".gz", ".bz2")
_lock = threading.Lock()
_folders: dict[str, str] = {}


def plain(path: str) -> str:
    """The same file under a path without characters that are special to Spark."""
    if _SPECIAL.search(path) is None:
        return path
    parts = path.split("/")
    last = max(number for number, part in enumerate(parts) if _SPECIAL.search(part))
    if last == len(parts) - 1:
        raise ValueError(f"the file {path} needs a link of its own")
    folder = "/".join(parts[: last + 1])
    with _lock:
        if folder not in _folders:
            link = Path(_temporary(), str(len(_folders)))
            link.symlink_to(folder)
            _folders[folder] = str(link)
    return "/".join((_folders[folder], *parts[last + 1 :]))


def _temporary() -> str:
    if "" not in _folders:
        made = tempfile.mkdtemp(prefix="penstock-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _folders[""] = made
    return _folders[""]


def compression(path: Path) -> str:
    """The ending of a name by which it is known to be compressed; empty if it is not."""
    suffix = path.suffix.lower()
    return suffix if suffix in _COMPRESSED else ""


class Links:
    """A folder of links, for as long as a job reads what they lead to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def place(self) -> LinkFolder:
        """A place for some files, apart from others."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(parents=True)
        return LinkFolder(folder)

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class LinkFolder:
    """Files under plain names: the n-th is called n, with a suffix by which Spark knows what it is."""

    folder: Path

    def link(self, file: Path, number: int, suffix: str) -> str:
        link = self.folder / f"{number}{suffix}{compression(file) if suffix != '.parquet' else ''}"
        link.symlink_to(file.absolute())
        return plain(str(link))

    def made(self, number: int, suffix: str, make: Callable[[Path], None]) -> str:
        """A file of our own in place of one that Spark cannot read as it is."""
        target = self.folder / f"{number}{suffix}"
        make(target)
        return plain(str(target))
