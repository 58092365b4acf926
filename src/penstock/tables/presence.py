"""Whether the files of the catalogue are where it says: a bounded look at every start, and the whole list for those who want to know."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, insert, literal, select, update

from penstock.tables import ddl
from penstock.tables.columns import ColumnNode, leaves
from penstock.tables.retention import is_whole

_file, _own = ddl.data_file, ddl.own_file
# Up to so many live files every one is looked for at the start; of more, the newest and some that chance picks.
ALL_OF = 5_000
SOME = 2_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that the catalogue lists."""

    id: int
    table: str
    # Absolute.
    path: str
    records: int
    size_bytes: int
    begin: int
    # None while it is part of the newest snapshot.
    end: int | None
    # None for a file that is not of our making.
    partition_us: int | None


@dataclass(frozen=True)
class Missing:
    checked: int
    files: tuple[Stored, ...]


def stored_files(conn: Connection, data_path: str, which: ColumnElement[bool] | None = None) -> Iterator[Stored]:
    """Every file of every kept snapshot, table by table."""
    table, schema = ddl.table, ddl.schema
    wanted = (
        select(
            _file.c.data_file_id, _file.c.path, _file.c.path_is_relative, _file.c.record_count, _file.c.file_size_bytes,
            _file.c.begin_snapshot, _file.c.end_snapshot, _own.c.partition_us, table.c.table_name,
            table.c.path.label("home"), table.c.path_is_relative.label("home_is_relative"), schema.c.path.label("root"),
        )
        .join(table, table.c.table_id == _file.c.table_id)
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .outerjoin(_own, _own.c.data_file_id == _file.c.data_file_id)
    )  # fmt: skip
    if which is not None:
        wanted = wanted.where(which)
    order = (_file.c.table_id, _file.c.data_file_id, table.c.begin_snapshot)
    last = -1
    for row in conn.execute(wanted.order_by(*order).execution_options(yield_per=2000)):
        if row.data_file_id == last:
            continue  # the table was renamed
        last = row.data_file_id
        home = row.root + row.home if row.home_is_relative else row.home
        path = home + row.path if row.path_is_relative else row.path
        yield Stored(
            row.data_file_id,
            row.table_name,
            path if is_whole(path) else data_path + path,
            row.record_count,
            row.file_size_bytes,
            row.begin_snapshot,
            row.end_snapshot,
            row.partition_us,
        )


def missing(conn: Connection, data_path: str, known: frozenset[int] = frozenset()) -> Missing:
    """Live files that are not there, among all of them or, of many, some; `known` are missed already."""
    live = _file.c.end_snapshot.is_(None)
    first = list(conn.execute(select(_own.c.data_file_id).where(_own.c.end_snapshot.is_(None)).limit(ALL_OF)).scalars())
    ids = set(first)
    following = int(conn.execute(select(func.max(ddl.snapshot.c.next_file_id))).scalar() or 0)
    newest = select(_file.c.data_file_id).where(_file.c.data_file_id >= following - SOME, live)
    ids |= set(conn.execute(newest).scalars())
    if len(first) == ALL_OF:
        ids |= set(random.sample(range(following), min(SOME, following)))
    found: list[Stored] = []
    checked = 0
    wanted = sorted(ids - known)
    for start in range(0, len(wanted), 500):
        for one in stored_files(conn, data_path, _file.c.data_file_id.in_(wanted[start : start + 500]) & live):
            checked += 1
            # What others keep elsewhere is theirs: who reads it says when it is gone.
            if one.path.startswith(data_path) and "://" not in one.path and not _is_there(one.path):
                found.append(one)
    return Missing(checked, tuple(found))


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def still_live(conn: Connection, ids: Sequence[int]) -> set[int]:
    found: set[int] = set()
    for start in range(0, len(ids), 500):
        some = _file.c.data_file_id.in_(ids[start : start + 500]) & _file.c.end_snapshot.is_(None)
        found |= set(conn.execute(select(_file.c.data_file_id).where(some)).scalars())
    return found


def data_files_there(data_path: str) -> Iterator[str]:
    """Parquet files where tables are kept, in no order."""
    waiting = [data_path + "main"]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name.endswith(".parquet"):
                        yield entry.path
        except (FileNotFoundError, NotADirectoryError):
            continue


def relocate(conn: Connection, before: str, now: str) -> None:
    """The data folder is at another place: what is written as a whole path goes with it."""
    setting = (ddl.settings.c.key == "data_path") & ddl.settings.c.scope.is_(None)
    if conn.execute(update(ddl.settings).where(setting).values(value=now)).rowcount == 0:
        conn.execute(insert(ddl.settings), {"key": "data_path", "value": now})
    for table in (ddl.data_file, ddl.delete_file, ddl.table, ddl.schema, ddl.scheduled):
        path = table.c.path
        inside = func.substr(path, 1, len(before)) == before
        moved = literal(now).concat(func.substr(path, len(before) + 1))
        conn.execute(update(table).where(inside).values(path=moved))


def statistics(conn: Connection, ids: Sequence[int]) -> dict[int, dict[int, tuple[int | None, str | None, str | None]]]:
    """What the catalogue says of the columns of files: nulls, least and greatest value, by file and column."""
    own = ddl.file_column_stats.c
    found: dict[int, dict[int, tuple[int | None, str | None, str | None]]] = {}
    for start in range(0, len(ids), 500):
        wanted = select(own.data_file_id, own.column_id, own.null_count, own.min_value, own.max_value)
        for row in conn.execute(wanted.where(own.data_file_id.in_(ids[start : start + 500]))):
            found.setdefault(row[0], {})[row[1]] = (row[2], row[3], row[4])
    return found


def column_names(conn: Connection, table: str) -> dict[int, str]:
    """The leaf columns of a table, by number, as footers name them."""
    own = ddl.column.c
    ids = select(ddl.table.c.table_id).where(ddl.table.c.table_name == table)
    rows = conn.execute(
        select(
            own.table_id, own.column_id, own.column_order, own.column_name, own.column_type, own.nulls_allowed, own.parent_column
        )
        .where(own.table_id.in_(ids))
        .order_by(own.table_id, own.begin_snapshot)
    )  # fmt: skip
    by_table: dict[int, dict[int, ColumnNode]] = {}
    for row in rows:
        by_table.setdefault(row[0], {})[row[1]] = ColumnNode(row[1], row[2], row[3], row[4], bool(row[5]), row[6])
    newest = by_table[max(by_table)] if by_table else {}
    return {node.id: name for name, node in leaves(list(newest.values()))}
