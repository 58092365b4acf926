"""Answers that are kept for those who ask the same of the same versions; those used last, as far as memory is allowed."""

from __future__ import annotations

from collections import OrderedDict

from penstock.engine.desk.answer import Rows
from penstock.engine.desk.reads import Reading
from penstock.engine.desk.ticket import Asked

_MOST = 1_000


class KeptAnswers:
    """Not safe for threads: the front holds its lock around it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: OrderedDict[object, Rows] = OrderedDict()

    def has(self, asked: Asked, reading: Reading) -> bool:
        return _key(asked, reading) in self._rows

    def get(self, asked: Asked, reading: Reading) -> Rows | None:
        key = _key(asked, reading)
        found = self._rows.get(key)
        if found is not None:
            self._rows.move_to_end(key)
        return found

    def put(self, asked: Asked, reading: Reading, rows: Rows) -> None:
        key = _key(asked, reading)
        if key is None or key in self._rows or rows.nbytes > self._most_bytes // 8:
            return
        self._rows[key] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._most_bytes or len(self._rows) > _MOST:
            _, oldest = self._rows.popitem(last=False)
            self._bytes -= oldest.nbytes


def _key(asked: Asked, reading: Reading) -> object:
    """Answers with the same key are the same; None if this one is only itself."""
    return (asked.read.sql, asked.limit, reading.key) if asked.steady and not asked.as_files else None
