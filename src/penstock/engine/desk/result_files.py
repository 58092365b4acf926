"""Large answers are files. They expire, and of too many the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.desk.question import ResultRows


@dataclass(frozen=True, slots=True)
class _Kept:
    rows: ResultRows
    until_us: int
    size_bytes: int


class ResultFiles:
    """Not safe for threads: the front holds its lock around it."""

    def __init__(self, most_bytes: int, kept_us: int) -> None:
        self._most_bytes = most_bytes
        self._kept_us = kept_us
        self._bytes = 0
        # Oldest first; several queries may have the same answer.
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def add(self, rows: ResultRows, now_us: int) -> None:
        if not rows.files or id(rows) in self._kept:
            return
        size = 0
        for file in rows.files:
            with suppress(OSError):
                size += file.stat().st_size
        self._kept[id(rows)] = _Kept(rows, now_us + self._kept_us, size)
        self._bytes += size
        self.expire(now_us)

    def expire(self, now_us: int) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if now_us < oldest.until_us and self._bytes <= self._most_bytes:
                return
            self._kept.popitem(last=False)
            self._bytes -= oldest.size_bytes
            delete(oldest.rows.files)


def delete(files: tuple[Path, ...]) -> None:
    """The files, and the folder in which they are."""
    for folder in {file.parent for file in files}:
        with suppress(OSError):
            for file in folder.iterdir():
                file.unlink(missing_ok=True)
            folder.rmdir()
