"""Files on disk that should not be there: scheduled for deletion, or published by no transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, bindparam, delete, false, select

from penstock.tables import ddl
from penstock.tables.retention import folders, is_whole

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
