"""Tables as the last snapshot has them: what a publication has to know before it can add to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, select

from penstock.tables import ddl
from penstock.tables.bounds import Bounds
from penstock.tables.columns import Node

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
    nodes: list[Node] = field(default_factory=list)
    last_column: int = 0
    changed_at: int = 0
    own: bool = False
    mapping: int | None = None
    mapped_at: int = -1
    stats: tuple[int, int, int] | None = None
    column_stats: dict[int, Bounds] = field(default_factory=dict)


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
            known.nodes.append(Node(column, order, name, kind, bool(nulls), parent))
    for known in by_id.values():
        known.nodes.sort(key=lambda node: node.order)
    for row in conn.execute(_OWN, ids):
        known = by_id[row.table_id]
        known.own, known.mapping, known.mapped_at = True, row.mapping_id, row.mapped_at or 0
    for row in conn.execute(_STATS, ids):
        by_id[row.table_id].stats = (row.record_count, row.next_row_id, row.file_size_bytes)
    for row in conn.execute(_COLUMN_STATS, ids):
        by_id[row.table_id].column_stats[row.column_id] = Bounds(
            _flag(row.contains_null), _flag(row.contains_nan), row.min_value, row.max_value
        )
    return found


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
