"""A query as it goes to whoever runs it, and the rows that come back: plain data, which also travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.model.schema import Column, Schema


@dataclass(frozen=True)
class ResultRows:
    """What Spark gave. Large answers are files."""

    table: pa.Table
    types: tuple[str, ...]
    # More rows than were asked for exist.
    truncated: bool = False
    files: tuple[Path, ...] = ()
    count: int = 0
    # In which people want to see its times.
    zone: str = "UTC"

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes)


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table at one version, as files."""

    name: str
    schema: Schema
    paths: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Question:
    """All that it takes to answer a query: whoever has it needs neither the store nor the catalogue."""

    # Its Spark jobs have this name.
    group: str
    sql: str
    views: tuple[PinnedTable, ...]
    limit: int
    # Beyond so many rows or bytes the answer becomes files in the folder, or is cut where there is none.
    inline_rows: int
    inline_bytes: int
    folder: str | None = None

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_plain(told: Mapping[str, Any]) -> Question:
        views = tuple(
            PinnedTable(
                one["name"],
                tuple(Column(**column) for column in one["schema"]),
                tuple(one["paths"]),
                one["size_bytes"],
            )
            for one in told["views"]
        )
        return Question(**{**told, "views": views})


class Reader(Protocol):
    """Who runs queries, one at a time."""

    @property
    def is_alive(self) -> bool: ...

    def answer(self, question: Question) -> ResultRows: ...

    def cancel(self, group: str) -> None:
        """End what runs in the group; from another thread. `answer` raises or returns soon."""

    def close(self) -> None: ...
