"""What is known of a data file of a table, and of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIDDEN_PREFIX = "_penstock_"
"""Top-level columns so named are in the file only: no schema lists them, and DuckDB does not see them."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Of one leaf column. `None` is always "not known". `min` and `max` are DuckLake's text forms."""

    values: int | None = None
    """Values that are not null, as DuckLake counts them."""
    nulls: int | None = None
    min: str | None = None
    max: str | None = None
    contains_nan: bool | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file that is, or is to be, part of a table.

    `stats` has one entry a leaf column, nested ones by dotted path (`a.element`, `m.key`, `s.field`); it is
    empty in files read back from the catalogue. `content` is the newest snapshot whose rows the file holds:
    compaction keeps it, so that a reader of "what came after snapshot n" does not see old rows again; 0 means
    the snapshot that publishes it.
    """

    path: str
    partition_us: int
    records: int
    size_bytes: int
    footer_bytes: int
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
    content: int = 0
    id: int = 0
    begin: int = 0
    physical: str = ""
