"""What may be forgotten: old versions of a table, old snapshots, files of no transaction.

Snapshots are global in DuckLake, retention is per table here. The rules:

* The *horizon* of a table is the oldest snapshot that its policy keeps: the start of the last K versions of
  its content (compaction makes no version), or the first snapshot not older than N days; with both, the older
  of the two. It never passes the newest snapshot.
* A file of the table goes when it ended at or before the horizon and no pinned snapshot sees it.
* With it goes every snapshot that saw it. So each snapshot that remains is complete for every table, and
  DuckDB's `AT (VERSION => n)` either answers rightly or says that there is no such snapshot. The price:
  DuckDB travels back only as far as the table that keeps least (give tables that people compare over time the
  same number of days). Penstock itself goes on reading other tables at such a snapshot, by `files`, as long
  as their own horizon allows.
* Snapshots older than every table's horizon are no one's need and go too (`expire_snapshots`), and with them
  tables that were dropped before. A table that no policy was ever applied to keeps all.

Files are first scheduled in `ducklake_files_scheduled_for_deletion`, in the same transaction that forgets
them; they are deleted after the commit, and only then unscheduled. A crash in between leaves a row that the
next sweep finds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, false, func, insert, or_, select, update

from penstock.tables import ddl
from penstock.tables.types import Interval

_file, _own = ddl.data_file, ddl.own_file
_BATCH = 500

# All that hangs on a data file, and all that hangs on a table.
_OF_FILE = (
    ddl.file_column_stats,
    ddl.file_variant_stats,
    ddl.file_partition_value,
    ddl.delete_file,
    _file,
    _own,
)
_OF_TABLE = (
    ddl.column, ddl.column_tag, ddl.table_stats, ddl.table_column_stats, ddl.partition_info, ddl.partition_column,
    ddl.sort_info, ddl.sort_expression, ddl.schema_versions, ddl.column_mapping, ddl.table, ddl.own_table,
)  # fmt: skip
_DROP_FILE = [delete(table).where(table.c.data_file_id == bindparam("b_id")) for table in _OF_FILE]
_DROP_TABLE = [delete(table).where(table.c.table_id == bindparam("b_id")) for table in _OF_TABLE]
_DROP_SNAPSHOT = [
    delete(table).where(table.c.snapshot_id >= bindparam("b_low"), table.c.snapshot_id < bindparam("b_high"))
    for table in (ddl.snapshot, ddl.snapshot_changes)
]


def _batched(items: Sequence[Any], size: int = _BATCH) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def horizon_of(conn: Connection, table_id: int, keep: int | None, older_than_us: int | None, newest: int) -> int:
    """The oldest snapshot that the policy keeps. With neither rule, all."""
    kept: list[int] = []
    if keep is not None:
        kept.append(_last_versions(conn, table_id, keep, newest))
    if older_than_us is not None:
        young = select(func.min(ddl.snapshot.c.snapshot_id)).where(ddl.snapshot.c.snapshot_time >= older_than_us)
        oldest = conn.execute(young).scalar()
        kept.append(newest if oldest is None else oldest)
    return min(kept, default=0)


def _last_versions(conn: Connection, table_id: int, keep: int, newest: int) -> int:
    contents = list(
        conn.execute(
            select(_own.c.content_snapshot)
            .where(_own.c.table_id == table_id)
            .distinct()
            .order_by(_own.c.content_snapshot.desc())
            .limit(max(1, keep))
        ).scalars()
    )
    if len(contents) < max(1, keep):
        return 0
    # The oldest version to keep, in its newest form: compacted, if it was.
    before = contents[-2] if len(contents) > 1 else newest + 1
    form = select(func.max(_file.c.begin_snapshot)).where(_file.c.table_id == table_id, _file.c.begin_snapshot < before)
    return int(conn.execute(form).scalar() or 0)


def pinned(conn: Connection, now_us: int) -> list[int]:
    return sorted(conn.execute(select(ddl.pin.c.snapshot_id).where(ddl.pin.c.until_us > now_us).distinct()).scalars())


def expire_table(
    conn: Connection, table_id: int, horizon: int, pins: Sequence[int], data_path: str, now_us: int
) -> list[str]:
    own = ddl.own_table.c
    known = conn.execute(select(own.horizon).where(own.table_id == table_id)).scalar()
    if known is None:  # A table of DuckDB's that we never wrote to.
        conn.execute(insert(ddl.own_table), {"table_id": table_id, "horizon": horizon})
    elif known < horizon:
        conn.execute(update(ddl.own_table).where(own.table_id == table_id).values(horizon=horizon))
    ended = select(_own.c.data_file_id).where(_own.c.table_id == table_id, _own.c.end_snapshot <= horizon)
    return _forget_files(conn, _file.c.data_file_id.in_(ended), pins, data_path, now_us)


def expire_snapshots(conn: Connection, newest: int, pins: Sequence[int], data_path: str, now_us: int) -> list[str]:
    live = (
        select(func.min(func.coalesce(ddl.own_table.c.horizon, 0)))
        .select_from(ddl.table.outerjoin(ddl.own_table, ddl.own_table.c.table_id == ddl.table.c.table_id))
        .where(ddl.table.c.end_snapshot.is_(None))
    )
    needed = conn.execute(live).scalar()
    oldest = min([newest if needed is None else needed, newest, *pins])
    _forget_snapshots(conn, [(0, oldest)])
    alive = select(ddl.table.c.table_id).where(
        or_(ddl.table.c.end_snapshot.is_(None), ddl.table.c.end_snapshot > oldest)
    )
    dropped = list(
        conn.execute(
            select(ddl.table.c.table_id)
            .where(ddl.table.c.end_snapshot <= oldest, ddl.table.c.table_id.not_in(alive))
            .distinct()
        ).scalars()
    )
    gone: list[str] = []
    for batch in _batched(dropped):
        gone += _forget_files(conn, _file.c.table_id.in_(batch), pins, data_path, now_us)
        for statement in _DROP_TABLE:
            conn.execute(statement, [{"b_id": number} for number in batch])
    return gone


def folders(conn: Connection, table_ids: Sequence[int] | None = None) -> dict[int, str]:
    """Each table's folder, relative to the data where it can be."""
    wanted = select(
        ddl.table.c.table_id,
        ddl.table.c.path,
        ddl.table.c.path_is_relative,
        ddl.schema.c.path.label("schema_path"),
        ddl.schema.c.path_is_relative.label("schema_is_relative"),
    ).join(ddl.schema, ddl.schema.c.schema_id == ddl.table.c.schema_id)
    if table_ids is not None:
        wanted = wanted.where(ddl.table.c.table_id.in_(table_ids))
    return {
        row.table_id: (row.schema_path + row.path if row.path_is_relative else row.path) for row in conn.execute(wanted)
    }


def _forget_files(
    conn: Connection, which: ColumnElement[bool], pins: Sequence[int], data_path: str, now_us: int
) -> list[str]:
    """Forget the ended files that satisfy `which` and that no pin sees, and every snapshot that saw them."""
    found = conn.execute(
        select(
            _file.c.data_file_id,
            _file.c.table_id,
            _file.c.path,
            _file.c.path_is_relative,
            _file.c.begin_snapshot,
            _file.c.end_snapshot,
        ).where(which, _file.c.end_snapshot.is_not(None))
    )
    ended = [row for row in found if not _sees(pins, row.begin_snapshot, row.end_snapshot)]
    if not ended:
        return []
    ids = [row.data_file_id for row in ended]
    home = folders(conn, sorted({row.table_id for row in ended}))
    gone = [(row.data_file_id, row.path, bool(row.path_is_relative), home[row.table_id]) for row in ended]
    for batch in _batched(ids):
        marks = conn.execute(select(ddl.delete_file).where(ddl.delete_file.c.data_file_id.in_(batch)))
        gone += [(row.delete_file_id, row.path, bool(row.path_is_relative), home[row.table_id]) for row in marks]
    schedule = [
        {
            "data_file_id": number,
            "path": folder + path if relative else path,
            "path_is_relative": relative and not is_whole(folder),
            "schedule_start": now_us,
        }
        for number, path, relative, folder in gone
    ]
    conn.execute(insert(ddl.scheduled), schedule)
    for statement in _DROP_FILE:
        conn.execute(statement, [{"b_id": number} for number in ids])
    _forget_snapshots(conn, [(row.begin_snapshot, row.end_snapshot) for row in ended])
    return [row["path"] if is_whole(row["path"]) else data_path + row["path"] for row in schedule]


def _forget_snapshots(conn: Connection, seen: Iterable[Interval]) -> None:
    merged: list[list[int]] = []
    for low, high in sorted(seen):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    for statement in _DROP_SNAPSHOT:
        conn.execute(statement, [{"b_low": low, "b_high": high} for low, high in merged])


def _sees(pins: Sequence[int], begin: int, end: int) -> bool:
    """Whether one of the snapshots, which are sorted, lies in [begin, end)."""
    first = bisect_left(pins, begin)
    return first < len(pins) and pins[first] < end


def is_whole(path: str) -> bool:
    return path.startswith("/") or "://" in path


# Files on disk that should not be there: scheduled for deletion, or published by no transaction.

_UNSCHEDULE = delete(ddl.scheduled).where(ddl.scheduled.c.path == bindparam("b_path"))


def scheduled(conn: Connection, data_path: str, before_us: int | None) -> list[str]:
    wanted = select(ddl.scheduled.c.path)
    if before_us is not None:
        wanted = wanted.where(ddl.scheduled.c.schedule_start <= before_us)
    return [path if is_whole(path) else data_path + path for path in conn.execute(wanted).scalars()]


def unschedule(conn: Connection, data_path: str, paths: Iterable[str]) -> None:
    rows = [{"b_path": form} for path in paths for form in {path, path.removeprefix(data_path)}]
    if rows:
        conn.execute(_UNSCHEDULE, rows)


def unknown(conn: Connection, data_path: str) -> Iterator[str]:
    """Parquet files under the data folder that the catalogue does not know, one table folder at a time."""
    owners: dict[str, list[int]] = {}
    for table_id, folder in folders(conn).items():
        owners.setdefault(folder.removeprefix(data_path), []).append(table_id)
    anywhere = {path.removeprefix(data_path) for path in scheduled(conn, data_path, None)}
    for table in (ddl.data_file, ddl.delete_file):
        # Whole paths may point into any folder, so they are looked up apart from the tables' own.
        whole = conn.execute(select(table.c.path).where(table.c.path_is_relative == _no(conn))).scalars()
        anywhere |= {path.removeprefix(data_path) for path in whole}
    known: set[str] = set()
    current: str | None = None
    for path in _parquet_files(data_path):
        home = _home(path, owners)
        if home != current:
            current = home
            known = _paths(conn, home, owners[home]) if home is not None else set()
        if path not in known and path not in anywhere:
            yield data_path + path


def _no(conn: Connection) -> object:
    return false() if conn.dialect.name == "postgresql" else 0


def _home(path: str, owners: dict[str, list[int]]) -> str | None:
    end = path.rfind("/")
    while end > 0:
        if path[: end + 1] in owners:
            return path[: end + 1]
        end = path.rfind("/", 0, end)
    return None


def _paths(conn: Connection, home: str, table_ids: list[int]) -> set[str]:
    found: set[str] = set()
    for table in (ddl.data_file, ddl.delete_file):
        rows = conn.execute(select(table.c.path).where(table.c.table_id.in_(table_ids))).scalars()
        found |= {home + path for path in rows}
    return found


def _parquet_files(data_path: str) -> Iterator[str]:
    """Relative to the data folder, folder by folder; never the whole listing in memory."""
    from pyarrow import fs  # few commands need it, and all would wait for it

    system, root = fs.FileSystem.from_uri(data_path)
    base = root.rstrip("/") + "/"
    waiting = [root]
    while waiting:
        entries = system.get_file_info(fs.FileSelector(waiting.pop(), allow_not_found=True))
        waiting += sorted((entry.path for entry in entries if entry.type == fs.FileType.Directory), reverse=True)
        for entry in sorted(entries, key=lambda entry: entry.path):
            if entry.type == fs.FileType.File and entry.path.endswith(".parquet"):
                yield entry.path.removeprefix(base)
