"""The event log and what hangs on it, in SQLite (default) or PostgreSQL.

All writes go through `write()`, one transaction that other modules join by its connection. SQLite takes its write lock
at the start (BEGIN IMMEDIATE), so that a transaction never fails half-way because another process was faster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, delete, func, insert, not_, or_, select, update
from sqlalchemy import event as sa_event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from penstock.control.events import Event
from penstock.errors import PenstockError
from penstock.model.partitions import Interval, PartitionSet
from penstock.requests.job import FeedFile
from penstock.store import schema as tables
from penstock.store.schema import decode, encode, subject, upgrade

# The advisory lock of who writes, on PostgreSQL.
WRITE_KEY = 7305


class StoreError(PenstockError):
    pass


class Fenced(StoreError):
    """Another process took over; what this one still does must not count."""


def connect(url: str) -> Engine:
    """An engine with the settings that the log needs."""
    # The path of a file may have any character, so it is not taken for a part of a URL.
    file = url.startswith("sqlite:///")
    parsed = URL.create("sqlite", database=url.removeprefix("sqlite:///")) if file else make_url(url)
    if parsed.get_backend_name() == "sqlite":
        if parsed.database:
            _private(Path(parsed.database))
        engine = create_engine(parsed, connect_args={"timeout": 30, "check_same_thread": False}, poolclass=QueuePool)
        sa_event.listen(engine, "connect", _sqlite_settings)
        sa_event.listen(engine, "begin", _sqlite_begin)
        return engine
    if parsed.get_backend_name() == "postgresql":
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        from penstock.store.bounded import SETTINGS, Bounded  # needs the driver

        engine = create_engine(parsed, connect_args={k: v for k, v in SETTINGS.items() if k not in parsed.query})
        sa_event.listen(engine, "do_connect", lambda _dialect, _record, given, named: Bounded.connect(*given, **named))
        return engine
    raise StoreError(f"the store {url!r} is neither sqlite:///… nor postgresql://…; set [store] url in penstock.toml")


def _private(path: Path) -> None:
    """A new database is for its owner: hashes of tokens are in it, and all that happened."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # what is wrong SQLite says
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _sqlite_settings(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are ours, not the driver's
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=OFF", "cache_size=-16000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _sqlite_begin(connection: Connection) -> None:
    mode = connection.get_execution_options().get("penstock_mode", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")


_NEXT_FILE = "next file"
_SAME = (tables.loaded.c.checksum == tables.file.c.checksum) & (tables.loaded.c.arrived_us == tables.file.c.arrived_us)


def feed_file(row: Any) -> FeedFile:
    """The file of a row of what is known of files."""
    return FeedFile(
        row.uri, row.checksum, row.size_bytes, row.arrived_us, row.id, row.order_key, getattr(row, "late_us", None)
    )


def spans_of(row: Any) -> tuple[Interval, ...]:
    """The stretches of time in which a loaded file has rows."""
    if row.spans is not None:
        return tuple((start, end) for start, end in json.loads(row.spans))
    return () if row.min_us is None else ((row.min_us, row.max_us + 1),)


class Store:
    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = connect(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        self.engine.dispose()

    def create(self) -> None:
        """Make the tables, or refuse a database that a newer Penstock wrote."""
        with self.write() as conn:
            tables.metadata.create_all(conn)
            found = self.fact(conn, "format")
            if found is None or int(found) < tables.FORMAT:
                if found is not None:
                    upgrade(conn, int(found))
                self.set_fact(conn, "format", str(tables.FORMAT))
            elif int(found) > tables.FORMAT:
                raise StoreError(
                    f"the store {self.url} has format {found}, this Penstock knows {tables.FORMAT}: "
                    "install the newer Penstock that wrote it"
                )

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._connected("written") as conn:
            conn = conn.execution_options(penstock_mode="IMMEDIATE")
            try:
                transaction = conn.begin()
            except OperationalError as error:
                raise self._unusable("written", error) from error
            with transaction:
                if not self.is_sqlite:
                    # Numbers of events are given in commit order, as the core folds them in that order.
                    conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_KEY})")
                yield conn

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._connected("read") as conn, conn.begin():
            yield conn

    @contextmanager
    def _connected(self, what: str) -> Iterator[Connection]:
        try:
            conn = self.engine.connect()
        except OperationalError as error:
            raise self._unusable(what, error) from error
        with conn:
            yield conn

    def _unusable(self, what: str, error: OperationalError) -> StoreError:
        return StoreError(f"the store {self.url} cannot be {what}: {error.orig}")

    # The log

    def append(self, conn: Connection, events: Sequence[Event]) -> int:
        """Add events in order and return the number of the last."""
        number = 0
        for happened in events:
            row = {
                "at_us": happened.at_us,
                "kind": happened.kind,
                "subject": subject(happened),
                "body": encode(happened),
            }
            result = conn.execute(insert(tables.event).values(row).returning(tables.event.c.number))
            number = int(result.scalar_one())
        return number

    def events(self, conn: Connection, after: int = 0, limit: int | None = None) -> Iterator[tuple[int, Event]]:
        query = (
            select(tables.event.c.number, tables.event.c.body)
            .where(tables.event.c.number > after)
            .order_by(tables.event.c.number)
            .limit(limit)
        )
        for number, body in conn.execution_options(yield_per=2000).execute(query):
            yield number, decode(body)

    def bodies(self, conn: Connection, kinds: Iterable[str], after: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Events of some kinds as plain values, oldest first: for those who only want a few of their fields."""
        own = tables.event.c
        wanted = select(own.number, own.kind, own.body).where(own.number > after, own.kind.in_(list(kinds)))
        for number, kind, body in conn.execution_options(yield_per=2000).execute(wanted.order_by(own.number)):
            yield number, kind, json.loads(body)

    def newest(
        self, conn: Connection, kinds: Iterable[str], before: int | None, limit: int, since: int = 0
    ) -> list[tuple[int, str, dict[str, Any]]]:
        """The last events of some kinds with numbers below `before` and above `since`, as plain values, newest first."""
        own = tables.event.c
        wanted = select(own.number, own.kind, own.body).where(own.kind.in_(list(kinds)), own.number > since)
        if before is not None:
            wanted = wanted.where(own.number < before)
        rows = conn.execute(wanted.order_by(own.number.desc()).limit(limit))
        return [(number, kind, json.loads(body)) for number, kind, body in rows]

    def number_at(self, conn: Connection, at_us: int) -> int:
        """The last event before a time, by halving: so it costs the same whatever the length of the log. Clocks that were set
        back make it roughly so."""
        own = tables.event.c
        low, high = 0, self.last_number(conn)
        while low < high:
            middle = (low + high + 1) // 2
            found = conn.execute(
                select(own.number, own.at_us).where(own.number <= middle).order_by(own.number.desc()).limit(1)
            ).first()
            if found is None or found.at_us < at_us:
                low = middle
            else:
                high = min(middle, found.number) - 1
        return low

    def last_number(self, conn: Connection) -> int:
        return int(conn.execute(select(func.coalesce(func.max(tables.event.c.number), 0))).scalar_one())

    def events_of(self, conn: Connection, about: str, kinds: Iterable[str], limit: int) -> list[tuple[int, Event]]:
        """The newest events about a table or feed, newest first."""
        rows = conn.execute(
            select(tables.event.c.number, tables.event.c.body)
            .where(tables.event.c.subject == about, tables.event.c.kind.in_(list(kinds)))
            .order_by(tables.event.c.number.desc())
            .limit(limit)
        )
        return [(number, decode(body)) for number, body in rows]

    def forget_events(self, conn: Connection, kinds: Iterable[str], before_us: int) -> None:
        """Events that change nothing in the state and are too old for anyone."""
        own = tables.event.c
        conn.execute(delete(tables.event).where(own.kind.in_(list(kinds)), own.at_us < before_us))

    # Snapshots of the folded state

    def save_state(self, conn: Connection, number: int, body: dict[str, Any]) -> None:
        conn.execute(delete(tables.state))
        conn.execute(insert(tables.state).values(number=number, body=json.dumps(body)))

    def saved_state(self, conn: Connection) -> tuple[int, dict[str, Any]] | None:
        row = conn.execute(select(tables.state).order_by(tables.state.c.number.desc()).limit(1)).first()
        return (int(row.number), json.loads(row.body)) if row else None

    # Facts

    def fact(self, conn: Connection, name: str) -> str | None:
        return conn.execute(select(tables.fact.c.value).where(tables.fact.c.name == name)).scalar_one_or_none()

    def set_fact(self, conn: Connection, name: str, value: str) -> None:
        conn.execute(self._upsert(tables.fact, {"name": name, "value": value}, ["name"]))

    def check_owner(self, conn: Connection, owner: str) -> None:
        """Refuse to go on if another process took over."""
        found = self.fact(conn, "owner")
        if found != owner:
            raise Fenced(f"another process ({found or 'none'}) runs this project now; this one stops")

    def _upsert(self, table: Any, rows: dict[str, Any] | list[dict[str, Any]], key: list[str]) -> Any:
        dialect: Any = sqlite
        if not self.is_sqlite:
            from sqlalchemy.dialects import (
                postgresql as dialect,
            )  # not for everyone: it takes longer than most commands do
        statement = dialect.insert(table).values(rows)
        names = rows[0] if isinstance(rows, list) else rows
        rest = {name: statement.excluded[name] for name in names if name not in key}
        return statement.on_conflict_do_update(index_elements=key, set_=rest)

    # Files

    def known_files(self, conn: Connection, feed: str, uris: Sequence[str]) -> dict[str, Any]:
        """What is known of these files, by name."""
        found: dict[str, Any] = {}
        for start in range(0, len(uris), 500):
            rows = conn.execute(
                select(tables.file).where(tables.file.c.feed == feed, tables.file.c.uri.in_(uris[start : start + 500]))
            )
            found.update({row.uri: row for row in rows})
        return found

    def stamps(self, conn: Connection, feed: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """The name of each file that is on record, with its size and time of change."""
        known = tables.file.c
        for uri, size, mtime_ns in conn.execute(
            select(known.uri, known.size_bytes, known.mtime_ns).where(known.feed == feed)
        ):
            yield uri, (size, mtime_ns)

    def put_file(
        self, conn: Connection, feed: str, file: FeedFile, mtime_ns: int, status: str, reason: str | None = None
    ) -> FeedFile:
        """What is new of a file. A content that has no number yet gets one, which no other ever had."""
        if not file.id:
            file = replace(file, id=int(self.fact(conn, _NEXT_FILE) or 1))
            self.set_fact(conn, _NEXT_FILE, str(file.id + 1))
        row = {
            "feed": feed,
            "uri": file.uri,
            "checksum": file.checksum,
            "size_bytes": file.size_bytes,
            "mtime_ns": mtime_ns,
            "status": status,
            "arrived_us": file.arrived_us,
            "reason": reason,
            "id": file.id,
            "order_key": file.order,
        }
        conn.execute(self._upsert(tables.file, row, ["feed", "uri"]))
        return file

    def touch_file(self, conn: Connection, feed: str, uri: str, size_bytes: int, mtime_ns: int) -> None:
        conn.execute(
            update(tables.file)
            .where(tables.file.c.feed == feed, tables.file.c.uri == uri)
            .values(size_bytes=size_bytes, mtime_ns=mtime_ns)
        )

    def mark_loaded(
        self,
        conn: Connection,
        table: str,
        feed: str,
        files: Sequence[FeedFile],
        spans: Mapping[str, Sequence[Interval]],
        readings: Mapping[str, str] | None = None,
        late: Mapping[str, int] | None = None,
    ) -> None:
        """A table holds these files now; `spans` has the stretches of time in which each has rows, `readings` how it was read,
        `late` how many of its rows were set aside."""
        own = tables.file.c
        for start in range(0, len(files), 500):
            some = files[start : start + 500]
            rows = [
                {
                    "table_name": table,
                    "uri": file.uri,
                    "feed": feed,
                    "checksum": file.checksum,
                    "arrived_us": file.arrived_us,
                    "file_id": file.id,
                    "min_us": span[0][0] if (span := spans.get(file.uri, ())) else None,
                    "max_us": span[-1][1] - 1 if span else None,
                    "spans": json.dumps(span),
                    "reading": (readings or {}).get(file.uri, ""),
                    "late_us": file.late_us,
                    "late_rows": (late or {}).get(file.uri, 0),
                }
                for file in some
            ]
            conn.execute(self._upsert(tables.loaded, rows, ["table_name", "uri"]))
            for file in some:
                if file.order:
                    here = (own.feed == feed) & (own.uri == file.uri) & (own.arrived_us == file.arrived_us)
                    conn.execute(update(tables.file).where(here).values(order_key=file.order))
            unordered = [file.uri for file in some if not file.order]
            if unordered:  # what ordered them before does no longer
                there = (own.feed == feed) & own.uri.in_(unordered) & (own.order_key != "")
                conn.execute(update(tables.file).where(there).values(order_key=""))
            # One whose content changed since waits for its next load.
            same = own.arrived_us.in_([file.arrived_us for file in some])
            conn.execute(
                update(tables.file)
                .where(own.feed == feed, own.uri.in_([file.uri for file in some]), same)
                .values(status="loaded", reason=None)
            )

    def loaded_span(self, conn: Connection, feed: str, uri: str) -> tuple[tuple[int, int], ...] | None:
        """The event times that tables hold of a file, whichever content of it they loaded; none if no table has it."""
        own = tables.loaded.c
        found = conn.execute(select(tables.loaded).where(own.feed == feed, own.uri == uri)).all()
        return PartitionSet.of(*(span for row in found for span in spans_of(row))).intervals if found else None

    def held(self, conn: Connection, table: str, uris: Sequence[str] | None = None) -> dict[str, Any]:
        """Which content of these files, or of all, a table holds, by name."""
        own = tables.loaded.c
        every = select(tables.loaded).where(own.table_name == table)
        if uris is None:
            return {row.uri: row for row in conn.execute(every)}
        found: dict[str, Any] = {}
        for start in range(0, len(uris), 500):
            rows = conn.execute(every.where(own.uri.in_(uris[start : start + 500])))
            found.update({row.uri: row for row in rows})
        return found

    def held_within(self, conn: Connection, table: str, low_us: int, high_us: int) -> list[Any]:
        """The contents that a table holds and that may have rows of a stretch of time."""
        own = tables.loaded.c
        every = select(tables.loaded).where(own.table_name == table, own.min_us < high_us, own.max_us >= low_us)
        return list(conn.execute(every))

    def ranked(self, conn: Connection, table: str) -> list[Any]:
        """The contents that a table holds, each with what orders it among those that state the same; oldest first."""
        file, own = tables.file.c, tables.loaded.c
        here = (own.feed == file.feed) & (own.uri == file.uri)
        key = func.coalesce(file.order_key, "").label("order_key")
        found = select(own.uri, own.file_id, own.arrived_us, key).select_from(
            tables.loaded.outerjoin(tables.file, here)
        )
        rows = conn.execute(found.where(own.table_name == table))
        return sorted(rows, key=lambda row: (row.order_key, row.arrived_us, row.file_id))

    def in_order(self, conn: Connection, table: str) -> list[int]:
        """The numbers of the contents that a table holds, in the order of their files."""
        return [row.file_id for row in self.ranked(conn, table)]

    def loaded_times(self, conn: Connection, table: str) -> tuple[int, int]:
        """From the first to behind the last event time of the files that a table holds; the same if there is none."""
        own = tables.loaded.c
        low, high = conn.execute(
            select(func.min(own.min_us), func.max(own.max_us)).where(own.table_name == table)
        ).one()
        return (low, high + 1) if low is not None else (0, 0)

    def late_rows(self, conn: Connection, table: str) -> int:
        """How many rows of the files that a table holds were set aside as late."""
        own = tables.loaded.c
        return conn.execute(select(func.sum(own.late_rows)).where(own.table_name == table)).scalar_one() or 0

    def let_go(self, conn: Connection, table: str, uris: Iterable[str] | None = None) -> None:
        """A table no longer holds these files, or any."""
        gone = delete(tables.loaded).where(tables.loaded.c.table_name == table)
        conn.execute(gone if uris is None else gone.where(tables.loaded.c.uri.in_(list(uris))))

    def _loaded(self, table: str) -> Any:
        """The files of which a table holds the newest content."""
        file, held = tables.file.c, tables.loaded.c
        here = (held.feed == file.feed) & (held.uri == file.uri)
        return select(tables.file, held.late_us).join(tables.loaded, here & _SAME).where(held.table_name == table)

    def loaded_within(self, conn: Connection, table: str, low_us: int, high_us: int) -> list[Any]:
        """The files in a table that may hold rows of a stretch of time."""
        own = tables.loaded.c
        within = self._loaded(table).where(own.min_us < high_us, own.max_us >= low_us)
        return list(conn.execute(within.order_by(tables.file.c.arrived_us)))

    def loaded_files(self, conn: Connection, table: str) -> list[Any]:
        """All files of which a table holds the newest content, in the order in which they came."""
        own = tables.file.c
        return list(conn.execute(self._loaded(table).order_by(own.arrived_us, own.mtime_ns, own.uri)))

    def last_loaded(self, conn: Connection, table: str, without: Iterable[str] = ()) -> list[Any]:
        """The file in a table that came last, but for some; none if there is none."""
        own = tables.file.c
        left = own.uri.not_in(list(without))
        return list(
            conn.execute(
                self._loaded(table)
                .where(left)
                .order_by(own.order_key.desc(), own.arrived_us.desc(), own.mtime_ns.desc())
                .limit(1)
            )
        )

    def delivered(self, conn: Connection, feed: str) -> list[Any]:
        """All files that a feed delivered and that were not set aside, oldest first."""
        own = tables.file.c
        every = select(tables.file).where(own.feed == feed, own.status.in_(("pending", "loaded")))
        return list(conn.execute(every.order_by(own.arrived_us, own.mtime_ns, own.uri)))

    def not_loaded(self, conn: Connection, table: str, feed: str) -> list[Any]:
        """Files that a feed delivered and a table does not hold, oldest first, each with the times of what it holds instead."""
        own, held = tables.file.c, tables.loaded.c
        here = (held.table_name == table) & (held.uri == own.uri) & (held.feed == feed)
        return list(
            conn.execute(
                select(tables.file, held.min_us, held.max_us, held.spans)
                .outerjoin(tables.loaded, here)
                .where(own.feed == feed, own.status.in_(("pending", "loaded")))
                .where(or_(held.checksum.is_(None), not_(_SAME)))
                .order_by(own.arrived_us, own.mtime_ns, own.uri)
            )
        )

    # Versions

    def put_version(
        self,
        conn: Connection,
        table: str,
        snapshot: int,
        at_us: int,
        complete_us: int | None,
        reflects: dict[str, int] | None,
        job: str,
    ) -> None:
        conn.execute(
            insert(tables.version).values(
                table_name=table,
                snapshot=snapshot,
                at_us=at_us,
                complete_us=complete_us,
                reflects=None if reflects is None else json.dumps(reflects),
                job=job,
            )
        )

    def relabel(self, conn: Connection, table: str, snapshot: int, reflects: Mapping[str, int]) -> None:
        """A version that is found to contain more than was said when it was published: what came since then changed nothing in it."""
        own = tables.version.c
        here = (own.table_name == table) & (own.snapshot == snapshot)
        conn.execute(update(tables.version).where(here).values(reflects=json.dumps(dict(reflects))))

    def versions(
        self, conn: Connection, table: str, upto: int | None = None, limit: int = 200, *, every: bool = False
    ) -> list[Any]:
        """The consistent publications of a table, or `every` one, newest first."""
        query = select(tables.version).where(tables.version.c.table_name == table)
        if not every:
            query = query.where(tables.version.c.reflects.is_not(None))
        if upto is not None:
            query = query.where(tables.version.c.snapshot <= upto)
        return list(conn.execute(query.order_by(tables.version.c.snapshot.desc()).limit(limit)))

    def version_at(self, conn: Connection, table: str, at_us: int) -> int | None:
        """The newest publication of a table that was there at a time."""
        own = tables.version.c
        found = select(func.max(own.snapshot)).where(own.table_name == table, own.at_us <= at_us)
        return conn.execute(found).scalar()

    @staticmethod
    def reflects_of(row: Any) -> dict[str, int]:
        """Which publication of each base table a recorded version contains."""
        found: dict[str, int] = json.loads(row.reflects)
        return found

    def snapshot_upto(self, conn: Connection, table: str, snapshot: int, edge_us: int) -> int:
        """Of the publications of a base table up to a snapshot, the last that was complete no further than to a time."""
        own = tables.version.c
        found = select(func.max(own.snapshot)).where(
            own.table_name == table,
            own.snapshot <= snapshot,
            or_(own.complete_us.is_(None), own.complete_us <= edge_us),
        )
        return int(conn.execute(found).scalar() or 0)

    def files_after(self, conn: Connection, table: str, snapshot: int) -> list[int]:
        """When the files arrived that the publications of a base table after a snapshot brought. A publication that brought none (a
        file was restated) counts as one."""
        own = tables.version.c
        later = select(own.job, own.at_us).where(own.table_name == table, own.snapshot > snapshot)
        jobs = {row.job: row.at_us for row in conn.execute(later)}
        if not jobs:
            return []
        found: list[int] = []
        rows = conn.execute(
            select(tables.event.c.body)
            .where(tables.event.c.subject == table, tables.event.c.kind == "update-started")
            .order_by(tables.event.c.number.desc())
            .execution_options(yield_per=50)
        )
        for (body,) in rows:
            job = json.loads(body)["job"]
            at_us = jobs.pop(job["id"], None)
            if at_us is not None:
                found += [file["arrived_us"] for file in job["files"]] or [at_us]
            if not jobs:
                break
        return found + list(jobs.values())

    def next_version(self, conn: Connection, table: str, snapshot: int) -> int | None:
        """The snapshot at which another version took the place of this one."""
        later = select(func.min(tables.version.c.snapshot)).where(
            tables.version.c.table_name == table, tables.version.c.snapshot > snapshot
        )
        return conn.execute(later).scalar()

    def forget_versions(self, conn: Connection, table: str, keep: int | None, older_than_us: int | None) -> None:
        """Drop the record of publications that retention let go: all but the last `keep`, those not older than that,
        and in any case the newest consistent one."""
        if keep is None and older_than_us is None:
            return
        own = tables.version.c
        newest = select(own.snapshot).where(own.table_name == table).order_by(own.snapshot.desc())
        needed = [conn.execute(newest.where(own.reflects.is_not(None)).limit(1)).scalar()]
        if keep is not None:
            first = conn.execute(newest.offset(keep - 1).limit(1)).scalar()
            if first is None:
                return  # there are no more than that
            needed.append(first)
        if older_than_us is not None:
            young = select(func.min(own.snapshot)).where(own.table_name == table, own.at_us >= older_than_us)
            needed.append(conn.execute(young).scalar())
        known = [snapshot for snapshot in needed if snapshot is not None]
        if known:
            conn.execute(delete(tables.version).where(own.table_name == table, own.snapshot < min(known)))

    def flush(self) -> None:
        """Make sure that what was committed survives even a loss of power. A commit alone survives any crash of a
        process; only what cannot be undone, such as deleting files, has to wait for this."""
        if self.is_sqlite:
            with closing(self.engine.raw_connection()) as raw, closing(raw.cursor()) as cursor:
                cursor.execute("PRAGMA wal_checkpoint(FULL)")
