"""Tables as the last snapshot has them: what a publication has to know before it can add to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, literal, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from penstock.errors import PenstockError
from penstock.tables import ddl
from penstock.tables.columns import ColumnNode
from penstock.tables.types import ColumnStats, Conflict

# Column statistics of a whole table, kept as files come.
#
# They only ever widen: a file that ends does not narrow them, since older snapshots read the same row. DuckDB
# does the same; its optimiser relies on them being bounds, not on them being tight. Which files a query opens
# is decided by the statistics of each file.

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class ColumnRange:
    contains_null: bool | None
    contains_nan: bool | None
    min: str | None
    max: str | None


def widen(known: ColumnRange | None, stats: ColumnStats | None, lake_type: str) -> ColumnRange:
    """`known` is None where no file was counted before; `stats` is None where the file does not have the
    column.
    """
    if stats is None:
        stats = ColumnStats(values=0, nulls=None)
    has_null = stats.nulls is None or stats.nulls > 0
    is_float = lake_type in ("float32", "float64")
    nan = stats.contains_nan if is_float and stats.values != 0 else (False if is_float else None)
    if known is None:
        return ColumnRange(has_null, nan, stats.min, stats.max)
    null = known.contains_null is not False or has_null
    nan = None if nan is None or known.contains_nan is None else (nan or known.contains_nan)
    if stats.values == 0:
        return ColumnRange(null, nan, known.min, known.max)
    return ColumnRange(
        null,
        nan,
        _outer(known.min, stats.min, lake_type, min),
        _outer(known.max, stats.max, lake_type, max),
    )


def _outer(one: str | None, other: str | None, lake_type: str, choose: Callable[..., str]) -> str | None:
    if one is None or other is None:
        return None
    try:
        return choose(one, other, key=lambda text: _comparable(text, lake_type))
    except (ValueError, InvalidOperation):
        return None


def _comparable(text: str, lake_type: str) -> Any:
    if lake_type == "varchar":
        return text  # By code point, which is the order of the UTF-8 bytes that DuckDB compares.
    if lake_type.startswith("int") or lake_type == "boolean":
        return int(text)
    if lake_type.startswith("decimal"):
        return Decimal(text)
    if lake_type.startswith("float"):
        return float(text)
    if lake_type in ("date", "timestamp", "timestamptz") and _DAY.match(text):
        return text  # "…:00+00" < "…:00.5+00" and so on: with four-digit years the text orders as the time.
    raise ValueError(f"no order known for {lake_type} {text!r}")


_TABLES = select(ddl.table.c.table_id, ddl.table.c.table_name, ddl.table.c.path, ddl.table.c.path_is_relative).where(
    ddl.table.c.table_name.in_(bindparam("names", expanding=True)),
    ddl.table.c.schema_id == 0,
    ddl.table.c.end_snapshot.is_(None),
)
_COLUMNS = select(
    ddl.column.c.table_id,
    ddl.column.c.column_id,
    ddl.column.c.column_order,
    ddl.column.c.column_name,
    ddl.column.c.column_type,
    ddl.column.c.nulls_allowed,
    ddl.column.c.parent_column,
    ddl.column.c.begin_snapshot,
    ddl.column.c.end_snapshot,
).where(ddl.column.c.table_id.in_(bindparam("ids", expanding=True)))
_OWN = select(ddl.own_table).where(ddl.own_table.c.table_id.in_(bindparam("ids", expanding=True)))
_STATS = select(ddl.table_stats).where(ddl.table_stats.c.table_id.in_(bindparam("ids", expanding=True)))
_COLUMN_STATS = select(ddl.table_column_stats).where(
    ddl.table_column_stats.c.table_id.in_(bindparam("ids", expanding=True))
)


@dataclass(slots=True)
class Known:
    """A table as the last snapshot has it."""

    id: int
    path: str
    nodes: list[ColumnNode] = field(default_factory=list)
    last_column: int = 0
    changed_at: int = 0
    own: bool = False
    mapping: int | None = None
    mapped_at: int = -1
    stats: tuple[int, int, int] | None = None
    column_stats: dict[int, ColumnRange] = field(default_factory=dict)


def load(conn: Connection, names: Iterable[str]) -> dict[str, Known]:
    found: dict[str, Known] = {}
    by_id: dict[int, Known] = {}
    for table_id, name, path, relative in conn.execute(_TABLES, {"names": list(names)}):
        found[name] = by_id[table_id] = Known(table_id, path if relative else "")
    if not by_id:
        return found
    ids = {"ids": list(by_id)}
    for table_id, column, order, name, kind, nulls, parent, begin, end in conn.execute(_COLUMNS, ids):
        known = by_id[table_id]
        known.last_column = max(known.last_column, column)
        known.changed_at = max(known.changed_at, begin, end or 0)
        if end is None:
            known.nodes.append(ColumnNode(column, order, name, kind, bool(nulls), parent))
    for known in by_id.values():
        known.nodes.sort(key=lambda node: node.order)
    for row in conn.execute(_OWN, ids):
        known = by_id[row.table_id]
        known.own, known.mapping, known.mapped_at = True, row.mapping_id, row.mapped_at or 0
    for row in conn.execute(_STATS, ids):
        by_id[row.table_id].stats = (row.record_count, row.next_row_id, row.file_size_bytes)
    for row in conn.execute(_COLUMN_STATS, ids):
        by_id[row.table_id].column_stats[row.column_id] = ColumnRange(
            _flag(row.contains_null), _flag(row.contains_nan), row.min_value, row.max_value
        )
    return found


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


# The newest snapshot, who made it, and what to do when that was not us.
#
# DuckDB may write to the same catalogue. `penstock_head` remembers the last snapshot and file number of ours,
# so that a look at one row tells whether anybody else wrote since, and everything they added has a higher
# number.

_LOCK_KEY = 0x70656E73746F636B  # "penstock"
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_RETRYABLE_STATES = ("40001", "40P01", "55P03")


@dataclass(frozen=True, slots=True)
class Head:
    snapshot: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    own_snapshot: int
    own_next_file_id: int


_HEAD = (
    select(
        ddl.snapshot.c.snapshot_id,
        ddl.snapshot.c.schema_version,
        ddl.snapshot.c.next_catalog_id,
        ddl.snapshot.c.next_file_id,
        select(ddl.own_head.c.snapshot_id).where(ddl.own_head.c.id == 1).scalar_subquery(),
        select(ddl.own_head.c.next_file_id).where(ddl.own_head.c.id == 1).scalar_subquery(),
    )
    .order_by(ddl.snapshot.c.snapshot_id.desc())
    .limit(1)
)


def read_head(conn: Connection) -> Head:
    row = conn.execute(_HEAD).first()
    if row is None:
        raise PenstockError("the catalogue has no snapshot: call Catalogue.create first")
    return Head(*row)


def lock(conn: Connection) -> None:
    """Writers of ours wait for each other instead of colliding. SQLite does that by BEGIN IMMEDIATE, the
    caller's part.

    DuckDB does not know this lock; against it there is the primary key of `ducklake_snapshot`.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(_LOCK, {"key": _LOCK_KEY})


@contextmanager
def conflicts() -> Iterator[None]:
    """Turns the database's ways to say "someone was faster" into `Conflict`."""
    try:
        yield
    except IntegrityError as error:
        if "ducklake_snapshot" not in str(error.orig):
            raise
        raise Conflict("another writer published first. Roll back and publish again.") from error
    except OperationalError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state not in _RETRYABLE_STATES and "locked" not in str(error.orig):
            raise
        raise Conflict(
            "the catalogue is locked by another writer. Roll back and try again (on SQLite begin with BEGIN IMMEDIATE)."
        ) from error


def adopt(conn: Connection, head: Head) -> None:
    """Take note of what others did since our last snapshot. Costs one comparison when they did nothing.

    Which partition their files belong to is not known (NULL): such a file is part of every partition for
    readers, and ends only with the whole table.
    """
    if head.snapshot == head.own_snapshot:
        return
    theirs = ddl.data_file
    noted = select(ddl.own_file.c.data_file_id).where(ddl.own_file.c.data_file_id == theirs.c.data_file_id)
    conn.execute(
        insert(ddl.own_file).from_select(
            ["data_file_id", "table_id", "content_snapshot", "end_snapshot", "physical"],
            select(
                theirs.c.data_file_id,
                theirs.c.table_id,
                func.coalesce(theirs.c.partial_max, theirs.c.begin_snapshot),
                theirs.c.end_snapshot,
                literal(""),
            ).where(theirs.c.data_file_id >= head.own_next_file_id, ~noted.exists()),
        )
    )
    ended = select(theirs.c.end_snapshot).where(theirs.c.data_file_id == ddl.own_file.c.data_file_id)
    conn.execute(
        update(ddl.own_file)
        .where(
            ddl.own_file.c.data_file_id.in_(
                select(theirs.c.data_file_id).where(theirs.c.end_snapshot > head.own_snapshot)
            )
        )
        .values(end_snapshot=ended.scalar_subquery())
    )
    conn.execute(
        update(ddl.own_head)
        .where(ddl.own_head.c.id == 1)
        .values(snapshot_id=head.snapshot, next_file_id=head.next_file_id)
    )
