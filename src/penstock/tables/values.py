"""What callers hand to the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.schema import Schema
from penstock.tables.datafile import DataFile

Interval = tuple[int, int]
"""Half-open, microseconds UTC, of partition starts."""


@dataclass(frozen=True, slots=True)
class Change:
    """One table's part of a publication.

    `replace` says which partitions' live files end now: `()` none (an append), `None` the whole table.
    `drop_ids` are single files that end (compaction); if one of them is not live any more, the publication is
    refused.
    """

    table: str
    schema: Schema
    replace: Sequence[Interval] | None
    add: Sequence[DataFile]
    drop_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """Who made a snapshot and why; `extra` is stored as JSON."""

    author: str | None = None
    message: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
