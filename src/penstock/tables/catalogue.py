"""The catalogue: a DuckLake 1.0 that DuckDB attaches as it is, in the database of Penstock's own tables.

Every method takes an open connection inside the caller's transaction and never commits, so that publishing
files, appending an event and creating requests are one transaction. On SQLite begin it with `BEGIN
IMMEDIATE`; a writer that comes second gets `Conflict`: roll back, look again, try again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from penstock.errors import PenstockError
from penstock.model.schema import Schema
from penstock.tables import ddl, outside_commits, presence, reading, retention
from penstock.tables.known import adopt, conflicts, lock, read_head
from penstock.tables.publish import Publication
from penstock.tables.types import DataFile, Interval, Note, TableChange

VERSION = "1.0"
# In the place of a snapshot: all of them.
_EVERYTHING = -1


class Catalogue:
    """`data_path` is the absolute folder, or the URI, under which all data files lie."""

    def __init__(self, data_path: str) -> None:
        if not retention.is_whole(data_path):
            raise PenstockError(f"the data folder {data_path!r} is relative; give an absolute path or a URI")
        self.data_path = data_path.rstrip("/") + "/"

    def create(self, conn: Connection, at_us: int = 0) -> None:
        """All tables, indices and the first snapshot; what is there already stays, also a lake that DuckDB made."""
        lock(conn)
        ddl.create(conn)
        for index in ddl.indices:
            index.create(conn, checkfirst=True)
        kept = dict(
            conn.execute(select(ddl.settings.c.key, ddl.settings.c.value).where(ddl.settings.c.scope.is_(None))).all()
        )
        if not kept:
            self._begin(conn, at_us)
        elif kept.get("version") != VERSION:
            raise PenstockError(
                f"the catalogue has DuckLake version {kept.get('version')}, expected {VERSION}. "
                "Migrate it with DuckDB's ducklake extension, or use a new database."
            )
        if kept and kept.get("data_inlining_row_limit") is None:
            conn.execute(insert(ddl.settings), {"key": "data_inlining_row_limit", "value": "0"})
        if conn.execute(select(ddl.own_head.c.id)).first() is None:
            conn.execute(insert(ddl.own_head), {"id": 1, "snapshot_id": -1, "next_file_id": 0})

    def _begin(self, conn: Connection, at_us: int) -> None:
        settings = {
            "version": VERSION,
            "created_by": "Penstock",
            "data_path": self.data_path,
            "encrypted": "false",
            # Else DuckDB keeps small inserts inside the catalogue, where Spark cannot read them.
            "data_inlining_row_limit": "0",
        }
        conn.execute(insert(ddl.settings), [{"key": key, "value": value} for key, value in settings.items()])
        conn.execute(
            insert(ddl.snapshot),
            {
                "snapshot_id": 0,
                "snapshot_time": at_us,
                "schema_version": 0,
                "next_catalog_id": 1,
                "next_file_id": 0,
            },
        )
        conn.execute(insert(ddl.snapshot_changes), {"snapshot_id": 0, "changes_made": 'created_schema:"main"'})
        conn.execute(
            insert(ddl.schema),
            {"schema_id": 0, "schema_uuid": str(uuid.uuid4()), "begin_snapshot": 0, "schema_name": "main",
             "path": "main/", "path_is_relative": True},
        )  # fmt: skip

    # Where the files are

    def recorded_path(self, conn: Connection) -> str:
        """Where the catalogue says that its files are; readers such as DuckDB go by that."""
        here = (ddl.settings.c.key == "data_path") & ddl.settings.c.scope.is_(None)
        return str(conn.execute(select(ddl.settings.c.value).where(here)).scalar() or self.data_path)

    def relocate(self, conn: Connection, before: str) -> None:
        """The files that were in `before` are in our data folder now."""
        lock(conn)
        presence.relocate(conn, before, self.data_path)

    def has_files(self, conn: Connection) -> bool:
        return conn.execute(select(ddl.data_file.c.data_file_id).limit(1)).first() is not None

    def stored_files(self, conn: Connection) -> Iterator[presence.Stored]:
        """Every file of every kept snapshot, table by table."""
        return presence.stored_files(conn, self.data_path)

    def stored_files_of(self, conn: Connection, table: str) -> Iterator[presence.Stored]:
        """The same of one table."""
        return presence.stored_files(conn, self.data_path, ddl.table.c.table_name == table)

    def missing_files(self, conn: Connection, known: frozenset[int] = frozenset()) -> presence.Missing:
        """Live files that are not there; bounded, see `presence`."""
        return presence.missing(conn, self.data_path, known)

    def listed_in(self, conn: Connection, table: str, folder: str) -> set[str]:
        """The files in a folder of the table's that are part of some snapshot; absolute."""
        path, home = ddl.data_file.c.path, self.folder(table)
        ids = select(ddl.table.c.table_id).where(ddl.table.c.table_name == table)
        begins = (f"{folder}/", f"{home}{folder}/")
        inside = or_(*(func.substr(path, 1, len(each)) == each for each in begins))
        listed = conn.execute(select(path).where(ddl.data_file.c.table_id.in_(ids), inside)).scalars()
        return {each if retention.is_whole(each) else home + each for each in listed}

    def still_live(self, conn: Connection, ids: Sequence[int]) -> set[int]:
        return presence.still_live(conn, ids)

    def files_there(self) -> Iterator[str]:
        """Data files where tables are kept, whoever wrote them."""
        return presence.data_files_there(self.data_path)

    def snapshot(self, conn: Connection) -> int:
        """The newest."""
        return read_head(conn).snapshot

    def note(self, conn: Connection, snapshot: int) -> dict[str, Any]:
        """What was noted when a snapshot was published; nothing if it is forgotten, or another program's."""
        said = ddl.snapshot_changes.c
        found = conn.execute(select(said.commit_extra_info).where(said.snapshot_id == snapshot)).scalar()
        noted: dict[str, Any] = json.loads(found) if found else {}
        return noted

    def folder(self, table: str) -> str:
        """Where files of the table are to be written; absolute, with a slash at the end."""
        return self.data_path + "main/" + _folder(table)

    def locate(self, table: str, file: DataFile) -> str:
        """The file's absolute path, or URI."""
        return file.path if retention.is_whole(file.path) else self.folder(table) + file.path

    def publish(self, conn: Connection, changes: Sequence[TableChange], note: Note, at_us: int) -> int:
        """All the changes as one new snapshot, whose number is returned.

        Tables that do not exist are created, schemas evolve (`SchemaConflict` if they cannot), replaced files
        end, new ones begin. Raises `Conflict` if another writer was faster.
        """
        with conflicts():
            lock(conn)
            head = read_head(conn)
            adopt(conn, head)
            homes = {change.table: _folder(change.table) for change in changes}
            return Publication(conn, head, self.data_path).run(changes, note, at_us, homes)

    def commits_of_others(
        self, conn: Connection, after: int, column: dict[str, str]
    ) -> list[outside_commits.OthersCommit]:
        """What other programs did to tables since a snapshot."""
        return outside_commits.commits(conn, after, column)

    def adopt(self, conn: Connection, partitions: dict[int, int]) -> None:
        """Take note of the files of others, and of the partitions of those where that is known."""
        with conflicts():
            lock(conn)
            adopt(conn, read_head(conn))
            outside_commits.place(conn, partitions)

    def schema(self, conn: Connection, table: str, snapshot: int | None = None) -> Schema | None:
        """`None` if there is no such table at that snapshot."""
        at = self.snapshot(conn) if snapshot is None else snapshot
        row = reading.table_at(conn, table, at)
        return None if row is None else reading.schema_at(conn, row.table_id, at)

    def files(
        self,
        conn: Connection,
        table: str,
        snapshot: int,
        within: Sequence[Interval] | None = None,
        added_after: int | None = None,
    ) -> list[DataFile]:
        """The files that make up the table at `snapshot`, oldest first.

        `within` limits them to partitions that start in one of the intervals; files that DuckDB wrote belong
        to no known partition and are always listed. `added_after` limits them to content newer than that
        snapshot: for an append-only table that is the increment. Raises `Expired` if the snapshot is older
        than what the table keeps.
        """
        row = reading.table_at(conn, table, snapshot)
        if row is None:
            return []
        theirs = row.path if not row.path_is_relative else self.data_path + "main/" + row.path
        return reading.files_at(conn, table, row, self.folder(table), theirs, snapshot, within, added_after)

    def described(self, conn: Connection, table: str, files: Sequence[DataFile], column: str) -> list[DataFile]:
        """The files, each with what the catalogue knows of one column; without, where it knows nothing."""
        row = reading.table_at(conn, table, self.snapshot(conn))
        return list(files) if row is None else reading.described(conn, row.table_id, files, column)

    def tables(self, conn: Connection, snapshot: int | None = None) -> list[str]:
        at = self.snapshot(conn) if snapshot is None else snapshot
        row = ddl.table.c
        there = select(row.table_name).where(
            row.schema_id == 0,
            row.begin_snapshot <= at,
            or_(row.end_snapshot.is_(None), row.end_snapshot > at),
        )
        return sorted(conn.execute(there).scalars())

    def small_files(
        self, conn: Connection, table: str, below_bytes: int, worth: Callable[[int, int], bool]
    ) -> dict[int, list[DataFile]]:
        """Live files smaller than `below_bytes`, by partition, of those partitions of which so many such files with so many bytes are worth it."""
        row = reading.table_at(conn, table, self.snapshot(conn))
        if row is None:
            return {}
        file, own = ddl.data_file, ddl.own_file
        crowded = (
            select(own.c.partition_us, func.count(), func.sum(file.c.file_size_bytes))
            .join(file, file.c.data_file_id == own.c.data_file_id)
            .where(own.c.table_id == row.table_id, own.c.end_snapshot.is_(None), own.c.partition_us.is_not(None))
            .where(file.c.end_snapshot.is_(None), file.c.file_size_bytes < below_bytes)
            .group_by(own.c.partition_us)
            .having(func.count() > 1)
            .order_by(own.c.partition_us)
        )
        starts = [start for start, files, size in conn.execute(crowded) if worth(files, int(size))]
        found: dict[int, list[DataFile]] = {start: [] for start in starts}
        if starts:
            intervals = [(start, start + 1) for start in starts]
            for one in self.files(conn, table, self.snapshot(conn), intervals):
                if one.partition_us in found and one.size_bytes < below_bytes:
                    found[one.partition_us].append(one)
        return found

    def pin(self, conn: Connection, snapshot: int, holder: str, until_us: int) -> None:
        """A lease: what this snapshot shows is kept until then. Pinning again renews it."""
        lock(conn)
        if snapshot > self.snapshot(conn):
            raise PenstockError(f"cannot pin snapshot {snapshot}: the newest is {self.snapshot(conn)}")
        mine = (ddl.pin.c.holder == holder) & (ddl.pin.c.snapshot_id == snapshot)
        if conn.execute(update(ddl.pin).where(mine).values(until_us=until_us)).rowcount == 0:
            conn.execute(insert(ddl.pin), {"holder": holder, "snapshot_id": snapshot, "until_us": until_us})

    def unpin(self, conn: Connection, holder: str, snapshot: int | None = None) -> None:
        """Give back one pin of the holder, or all."""
        mine = delete(ddl.pin).where(ddl.pin.c.holder == holder)
        conn.execute(mine if snapshot is None else mine.where(ddl.pin.c.snapshot_id == snapshot))

    def hold(self, conn: Connection, holder: str, until_us: int) -> None:
        """A lease on everything: nothing is forgotten until then. `unpin` gives it back."""
        self.pin(conn, _EVERYTHING, holder, until_us)

    def is_held(self, conn: Connection, now_us: int) -> bool:
        return _EVERYTHING in retention.pinned(conn, now_us)

    def give_up(self, conn: Connection, table: str, upto: int, now_us: int) -> list[str]:
        """Forget what the table had only before that snapshot; returns the files to delete, as `expire` does."""
        with conflicts():
            lock(conn)
            row = reading.table_at(conn, table, self.snapshot(conn))
            if row is None:
                return []
            pins = [pin for pin in retention.pinned(conn, now_us) if pin != _EVERYTHING]
            return retention.expire_table(conn, row.table_id, upto, pins, self.data_path, now_us)

    def expire(
        self, conn: Connection, table: str, keep: int | None, older_than_us: int | None, now_us: int
    ) -> list[str]:
        """Forget old versions of the table: keep the last `keep`, and all not older than `older_than_us`.

        Returns the absolute paths of files to delete after the commit; then `forget` them. The rules are in
        `retention`.
        """
        with conflicts():
            lock(conn)
            head = read_head(conn)
            adopt(conn, head)
            row = reading.table_at(conn, table, head.snapshot)
            if row is None:
                return []
            horizon = retention.horizon_of(conn, row.table_id, keep, older_than_us, head.snapshot)
            pins = retention.pinned(conn, now_us)
            return retention.expire_table(conn, row.table_id, horizon, pins, self.data_path, now_us)

    def expire_snapshots(self, conn: Connection, now_us: int) -> list[str]:
        """Forget snapshots that no table needs, lapsed pins, and tables dropped before. Once a round, after
        `expire`.
        """
        with conflicts():
            lock(conn)
            conn.execute(delete(ddl.pin).where(ddl.pin.c.until_us <= now_us))
            pins = retention.pinned(conn, now_us)
            newest = self.snapshot(conn)
            return retention.expire_snapshots(conn, newest, pins, self.data_path, now_us)

    def scheduled(self, conn: Connection, before_us: int | None = None) -> list[str]:
        """Files forgotten (before then) but perhaps not deleted yet. Give outside readers a while before
        deleting.
        """
        return retention.scheduled(conn, self.data_path, before_us)

    def forget(self, conn: Connection, paths: Iterable[str]) -> None:
        """These files are deleted."""
        retention.unschedule(conn, self.data_path, paths)

    def unknown_files(self, conn: Connection) -> Iterator[str]:
        """Parquet files under the data folder that no transaction published: left over, or staged by a
        running job.

        Which of the two only the caller knows: delete those that no running job owns.
        """
        return retention.unknown(conn, self.data_path)


def _folder(table: str) -> str:
    """Names that are no plain folder names are percent-encoded; different names stay different."""
    return quote(table, safe="-_") + "/"
