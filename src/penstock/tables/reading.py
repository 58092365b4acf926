"""Which files a table has at a snapshot.

Three parts make the answer, each found by an index: live files, files that ended after the snapshot, and
files that someone else added since our last publication. For a recent snapshot the second and the third are
(nearly) empty, so the cost is that of the files listed, not of the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, func, null, or_, select, union_all

from penstock.tables import ddl
from penstock.tables.columns import ColumnNode, schema_of
from penstock.tables.types import ColumnStats, DataFile, Expired, Interval, RowsDeletedInPlace

_file, _own, _deletes = ddl.data_file, ddl.own_file, ddl.delete_file

TABLE_AT = (
    select(
        ddl.table.c.table_id,
        ddl.table.c.path,
        ddl.table.c.path_is_relative,
        ddl.own_table.c.horizon,
        select(ddl.snapshot.c.snapshot_id)
        .where(ddl.snapshot.c.snapshot_id == bindparam("at"))
        .scalar_subquery()
        .label("there"),
    )
    .select_from(ddl.table.outerjoin(ddl.own_table, ddl.own_table.c.table_id == ddl.table.c.table_id))
    .where(
        ddl.table.c.table_name == bindparam("name"),
        ddl.table.c.schema_id == 0,
        ddl.table.c.begin_snapshot <= bindparam("at"),
        or_(ddl.table.c.end_snapshot.is_(None), ddl.table.c.end_snapshot > bindparam("at")),
    )
)
_COLUMNS_AT = select(
    ddl.column.c.column_id,
    ddl.column.c.column_order,
    ddl.column.c.column_name,
    ddl.column.c.column_type,
    ddl.column.c.nulls_allowed,
    ddl.column.c.parent_column,
).where(
    ddl.column.c.table_id == bindparam("table"),
    ddl.column.c.begin_snapshot <= bindparam("at"),
    or_(ddl.column.c.end_snapshot.is_(None), ddl.column.c.end_snapshot > bindparam("at")),
)


def _files(partition: bool, after: bool) -> Any:
    visible = and_(
        _file.c.begin_snapshot <= bindparam("at"),
        or_(_file.c.end_snapshot.is_(None), _file.c.end_snapshot > bindparam("at")),
    )
    deletes = _file.outerjoin(
        _deletes,
        and_(
            _deletes.c.data_file_id == _file.c.data_file_id,
            _deletes.c.begin_snapshot <= bindparam("at"),
            or_(_deletes.c.end_snapshot.is_(None), _deletes.c.end_snapshot > bindparam("at")),
        ),
    )
    stored = (
        _file.c.data_file_id,
        _file.c.path,
        _file.c.path_is_relative,
        _file.c.record_count,
        _file.c.file_size_bytes,
        _file.c.footer_size,
        _file.c.begin_snapshot,
        _file.c.partial_max,
        _deletes.c.delete_file_id,
    )
    ours = (
        select(*stored, _own.c.partition_us, _own.c.content_snapshot, _own.c.physical, _own.c.digest)
        .select_from(deletes.join(_own, _own.c.data_file_id == _file.c.data_file_id))
        .where(visible, _own.c.table_id == bindparam("table"))
    )
    others = (
        select(*stored, null(), func.coalesce(_file.c.partial_max, _file.c.begin_snapshot), null(), null())
        .select_from(deletes)
        .where(
            visible,
            # "+ 0" keeps SQLite from going by table: the range of file numbers is empty or short.
            _file.c.table_id + 0 == bindparam("table"),
            _file.c.data_file_id >= select(ddl.own_head.c.next_file_id).where(ddl.own_head.c.id == 1).scalar_subquery(),
        )
    )
    if after:
        ours = ours.where(_own.c.content_snapshot > bindparam("after"))
        others = others.where(func.coalesce(_file.c.partial_max, _file.c.begin_snapshot) > bindparam("after"))
    within = and_(_own.c.partition_us >= bindparam("low"), _own.c.partition_us < bindparam("high"))
    branches: list[Select[Any]] = []
    for end in (_own.c.end_snapshot.is_(None), _own.c.end_snapshot > bindparam("at")):
        if partition:
            # Files of unknown partition belong to all: a branch of their own, so that both go by the index.
            branches += [ours.where(end, within), ours.where(end, _own.c.partition_us.is_(None))]
        else:
            branches.append(ours.where(end))
    return union_all(*branches, others)


_STATEMENTS = {(partition, after): _files(partition, after) for partition in (False, True) for after in (False, True)}


def table_at(conn: Connection, table: str, snapshot: int) -> Any:
    row = conn.execute(TABLE_AT, {"name": table, "at": snapshot}).first()
    if row is not None and row.there is None and row.horizon is not None and snapshot < row.horizon:
        raise Expired(
            f"{table}: snapshot {snapshot} is gone; kept are snapshots from {row.horizon} on. "
            "Read a newer snapshot, or keep more versions of the table."
        )
    return row


def schema_at(conn: Connection, table_id: int, snapshot: int) -> Any:
    rows = conn.execute(_COLUMNS_AT, {"table": table_id, "at": snapshot})
    return schema_of(ColumnNode(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) for row in rows)


def files_at(
    conn: Connection,
    table: str,
    row: Any,
    home: str,
    foreign_home: str,
    snapshot: int,
    within: Sequence[Interval] | None,
    added_after: int | None,
) -> list[DataFile]:
    """`home` is the folder that paths are relative to, `foreign_home` that of the table where it is another
    one.
    """
    statement = _STATEMENTS[within is not None, added_after is not None]
    where = {"table": row.table_id, "at": snapshot, "after": added_after or 0}
    places: Sequence[dict[str, Any]] = [where]
    if within is not None:
        places = [where | {"low": low, "high": high} for low, high in within]
    found: dict[int, DataFile] = {}
    for place in places:
        for stored in conn.execute(statement, place):
            if stored[8] is not None or (stored[7] is not None and stored[7] > snapshot):
                raise RowsDeletedInPlace(
                    f"{table}: DuckDB deleted rows of {stored[1]} in place, or merged it with newer rows. Run "
                    f"CALL ducklake_rewrite_data_files('<lake>', '{table}', delete_threshold => 0) in DuckDB and read "
                    "the newest snapshot."
                )
            path = stored[1]
            if stored[2] and foreign_home != home:
                path = foreign_home + path
            found[stored[0]] = DataFile(
                path=path,
                partition_us=stored[9] or 0,
                records=stored[3],
                size_bytes=stored[4],
                footer_bytes=stored[5],
                content=stored[10],
                id=stored[0],
                begin=stored[6],
                physical=stored[11] or "",
                digest=stored[12] or "",
                unplaced=stored[9] is None,
            )
    return sorted(found.values(), key=lambda file: file.id)


def described(conn: Connection, table_id: int, files: Sequence[DataFile], column: str) -> list[DataFile]:
    known, stats = ddl.column.c, ddl.file_column_stats.c
    ids = select(known.column_id).where(known.table_id == table_id, func.lower(known.column_name) == column.lower())
    found: dict[int, ColumnStats] = {}
    for first in range(0, len(files), 500):
        some = [file.id for file in files[first : first + 500]]
        bounds = select(stats.data_file_id, stats.min_value, stats.max_value).where(
            stats.data_file_id.in_(some), stats.column_id.in_(ids)
        )
        found |= {row[0]: ColumnStats(values=None, nulls=None, min=row[1], max=row[2]) for row in conn.execute(bounds)}
    return [replace(file, stats={column: found[file.id]} if file.id in found else {}) for file in files]
