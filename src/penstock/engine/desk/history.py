"""The past of tables: which versions there are and what is in each, how two of them differ, and queries as of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from penstock.control.events import TablePublished, UpdateStarted
from penstock.declare.warehouse import Definitions
from penstock.engine.desk.versions import QueryError, QueryResult, Version, consistent_versions
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import Interval, PartitionSet
from penstock.model.schema import Schema
from penstock.model.time import SECOND_US, format_instant, parse_instant
from penstock.requests.job import Job
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile, Expired

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of an answer to one who sits at the machine.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class PastVersion:
    """One publication of a table."""

    table: str
    version: int
    at_us: int
    complete_us: int | None
    # The publication of each base table that it contains; None if it is between two states of them.
    reflects: Mapping[str, int] | None
    # The version of each table that it was made from.
    inputs: Mapping[str, int]
    # The files that it loaded, or that others handed over for it, and those whose rows it took out.
    files: tuple[str, ...]
    withdrawn: tuple[str, ...]
    # Which partitions it changed; empty for a table without.
    partitions: tuple[Interval, ...]
    job: str
    why: str
    # Whether its rows can still be read.
    kept: bool


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    # None for rows without a partition.
    start_us: int | None
    added: int
    removed: int


@dataclass(frozen=True)
class TableDifference:
    """How a table at one version differs from another: rows of the one that are not in the other, by number."""

    table: str
    before: int
    after: int
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    added: int
    removed: int
    # Of these, with a key: rows that went and came under one key.
    changed: int | None
    partitions: tuple[PartitionDifference, ...]
    # The columns that both have, and some of the rows that differ: how often more (or less, if negative), and its values.
    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[Any, ...]], ...]

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.columns_added or self.columns_removed)


class History:
    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.zone = zone_of(warehouse.zone)

    # Versions

    def versions(self, table: str, within: PartitionSet | None = None, limit: int = 20) -> list[PastVersion]:
        """The last publications of a table (that changed some partitions), newest first."""
        found: list[PastVersion] = []
        with self.store.read() as conn:
            jobs = self._jobs(conn, table)
            upto: int | None = None
            while len(found) < limit:
                rows = self.store.versions(conn, table, upto, limit=max(limit, 50), every=True)
                for row in rows:
                    one = self._past(conn, row, jobs)
                    if within is None or not one.partitions or PartitionSet.of(*one.partitions) & within:
                        found.append(one)
                if not rows:
                    break
                upto = rows[-1].snapshot - 1
        return found[:limit]

    def _jobs(self, conn: Connection, table: str) -> _Started:
        leader = self.warehouse.graph.tables[table].leader or table
        return _Started(self.store, conn, leader, table)

    def _past(self, conn: Connection, row: Any, jobs: _Started) -> PastVersion:
        table, snapshot = row.table_name, row.snapshot
        note = self.catalogue.note(conn, snapshot)
        note = note.get("tables", {}).get(table, note)
        started = jobs.find(row.job)
        job = started[0] if started is not None else None
        sources = [edge.source for edge in self.warehouse.graph.into.get(table, ()) if edge.source != table]
        pin = job.pin if job is not None else note.get("pin")
        inputs: dict[str, int] = dict(note.get("inputs", ()))
        if pin is not None and not inputs:
            for source in sources:
                known = self.store.versions(conn, source, pin, limit=1, every=True)
                if known:
                    inputs[source] = known[0].snapshot
        return PastVersion(
            table,
            snapshot,
            row.at_us,
            row.complete_us,
            self.store.reflects_of(row) if row.reflects is not None else None,
            inputs,
            tuple(note.get("files", ())) or (tuple(file.uri for file in job.files) if job is not None else ()),
            job.withdrawn if job is not None else (),
            tuple((low, high) for low, high in note.get("partitions", ())),
            row.job,
            started[1] if started is not None else "",
            self._kept(conn, table, snapshot),
        )

    def _kept(self, conn: Connection, table: str, snapshot: int) -> bool:
        following = self.store.next_version(conn, table, snapshot)
        try:
            self.catalogue.schema(conn, table, snapshot if following is None else following - 1)
        except Expired:
            return False
        return True

    # As of

    def resolve(self, conn: Connection, at: str | int, tables: Sequence[str]) -> int:
        """The snapshot that is meant by the number of a version, or by a time."""
        head = self.catalogue.snapshot(conn)
        if isinstance(at, int) or at.strip().isdecimal():
            number = int(at)
            if number > head:
                raise QueryError(f"there is no version {number} yet; the newest is {head}")
            return number
        try:
            at_us = parse_instant(at, self.zone)
        except ValueError:
            raise QueryError(
                f"{at!r} is neither a version nor a time; write a number that `penstock versions` shows, or 2024-03-01T10:05"
            ) from None
        found = {table: self.store.version_at(conn, table, at_us) for table in tables}
        missing = next((table for table, version in found.items() if version is None), None)
        if missing is not None:
            known = self.store.versions(conn, missing, limit=1_000_000, every=True)
            oldest = (
                f"the oldest known is version {known[-1].snapshot} of {self._moment(known[-1].at_us)}"
                if known
                else "it has none yet"
            )
            raise QueryError(f"there is no version of `{missing}` as old as {self._moment(at_us)}; {oldest}")
        return max((version for version in found.values() if version is not None), default=head)

    def _moment(self, at_us: int) -> str:
        return f"{format_instant(at_us // SECOND_US * SECOND_US, self.zone)} {self.zone}"

    def query(self, session: SparkSession, sql: str, at: str | int, limit: int, consistent: bool) -> QueryResult:
        """A query over its tables as they were: at the newest versions then that agree, or each at its newest."""
        from penstock.engine.desk.query_text import Texts
        from penstock.engine.desk.question import Question
        from penstock.engine.desk.reads import Reading
        from penstock.engine.desk.sources import Sources
        from penstock.engine.spark.queries import SparkReader

        texts = Texts(self.warehouse, self.warehouse.declarations.config.queries.functions)
        read = texts.understood(sql).read
        own = [name for name in read.tables if name in self.warehouse.definitions]
        with self.store.read() as conn:
            snapshot = self.resolve(conn, at, own)
            versions = [self._version(conn, name, snapshot) for name in own]
            if consistent and own:
                agreed = list(consistent_versions(self.store, self.catalogue, conn, own, upto=snapshot).values())
                if all(one.consistent for one in agreed):
                    versions = agreed
            for one in versions:
                self.catalogue.schema(conn, one.table, one.read_at)  # raises what is wrong with it
        edges = [one.complete_us for one in versions if one.complete_us is not None]
        agree = len(own) < 2 or all(one.consistent for one in versions)
        reading = Reading(tuple(versions), agree, min(edges, default=None), (), 0, snapshot)
        functions = self.warehouse.declarations.config.queries.functions
        views = Sources(self.warehouse, self.store, self.catalogue).views(read.tables, reading, {})
        question = Question("query-at", read.sql, views, limit, limit, _MOST_BYTES)
        rows = SparkReader(session, self.warehouse.zone, functions).answer(question)
        final = all(self.warehouse.graph.final[name] or not self.warehouse.graph.has_time[name] for name in own)
        from penstock.engine.desk.answer import python_rows

        return QueryResult(
            tuple(rows.table.column_names),
            rows.types,
            python_rows(rows.table, rows.zone),
            rows.truncated,
            reading.complete_us,
            agree,
            tuple(versions),
            final,
        )

    def _version(self, conn: Connection, table: str, snapshot: int) -> Version:
        """What a table was at a snapshot, whatever the others were."""
        found = self.store.versions(conn, table, snapshot, limit=1, every=True)
        if not found:
            raise QueryError(f"`{table}` has no version as old as {snapshot}; see `penstock versions {table}`")
        row = found[0]
        following = self.store.next_version(conn, table, row.snapshot)
        last = self.catalogue.snapshot(conn) if following is None else following - 1
        reflects = self.store.reflects_of(row) if row.reflects is not None else {}
        # Retention keeps the last snapshot of a version longest.
        return Version(table, row.snapshot, row.complete_us, row.at_us, last, False, reflects)

    # Differences

    def diff(
        self, session: SparkSession, table: str, before: str | int, after: str | int, key: Sequence[str], limit: int
    ) -> TableDifference:
        """Rows that one version has and another has not. What both have in the same files is not read."""
        from penstock.engine.spark.session import session_in

        with self.store.read() as conn:
            first = self._version(conn, table, self.resolve(conn, before, [table]))
            second = self._version(conn, table, self.resolve(conn, after, [table]))
            old, old_files = self._content(conn, table, first)
            new, new_files = self._content(conn, table, second)
        own = session_in(session, self.warehouse.zone)
        names = {column.name.lower() for column in old}
        shared = tuple(column.name for column in new if column.name.lower() in names)
        for name in key:
            if name.lower() not in {one.lower() for one in shared}:
                raise QueryError(f"`{table}` has no column `{name}` in both versions; they share {', '.join(shared)}")
        types = {column.name.lower(): column.type for column in old}
        alike = all(types[column.name.lower()] == column.type for column in new if column.name.lower() in names)
        both = {file.id for file in old_files} & {file.id for file in new_files} if alike else set()
        frames = [
            self._read(own, table, old, [file for file in old_files if file.id not in both]),
            self._read(own, table, new, [file for file in new_files if file.id not in both]),
        ]
        found = _compared(frames[0], frames[1], shared)
        found.persist()
        try:
            return self._told(table, (first, second), (old, new), found, shared, key, limit)
        finally:
            found.unpersist()

    def _content(self, conn: Connection, table: str, version: Version) -> tuple[Schema, list[DataFile]]:
        schema = self.catalogue.schema(conn, table, version.read_at)
        return (schema, self.catalogue.files(conn, table, version.read_at)) if schema is not None else ((), [])

    def _read(self, session: SparkSession, table: str, schema: Schema, files: Sequence[DataFile]) -> DataFrame:
        from penstock.engine.updates.rows import read_files

        paths = [self.catalogue.locate(table, file) for file in files]
        return read_files(session, paths, schema, sum(file.size_bytes for file in files))

    def _told(
        self,
        table: str,
        versions: tuple[Version, Version],
        schemas: tuple[Schema, Schema],
        found: DataFrame,
        shared: tuple[str, ...],
        key: Sequence[str],
        limit: int,
    ) -> TableDifference:
        from pyspark.sql import functions as F

        from penstock.engine.desk.answer import python_rows
        from penstock.engine.updates.rows import partition_start, quoted

        definition = self.warehouse.definitions[table]
        time, grain = definition.time, definition.table.grain
        start = partition_start(time, grain) if time in shared and grain is not WHOLE else "cast(null as bigint)"
        more, less = F.expr("sum(greatest(_penstock_n, 0))"), F.expr("sum(greatest(-_penstock_n, 0))")
        by_partition = found.groupBy(F.expr(start).alias("start")).agg(more.alias("added"), less.alias("removed"))
        partitions = [PartitionDifference(*row) for row in by_partition.orderBy("start").collect()]
        changed = None
        if key:
            once = F.expr("sum(greatest(_penstock_n, 0)) = 1 and sum(greatest(-_penstock_n, 0)) = 1")
            changed = found.groupBy(*map(quoted, key)).agg(once.alias("_penstock_once")).where("_penstock_once").count()
        columns = [F.col(quoted(name)) for name in shared]
        order = [F.col(quoted(name)) for name in (key or ([time] if time in shared and time is not None else []))]
        some = found.select(F.col("_penstock_n"), *columns).orderBy(*order, F.col("_penstock_n")).limit(limit).toArrow()
        rows = python_rows(some, self.warehouse.zone)
        old, new = ({column.name for column in schema} for schema in schemas)
        return TableDifference(
            table,
            versions[0].snapshot,
            versions[1].snapshot,
            tuple(sorted(new - old)),
            tuple(sorted(old - new)),
            sum(one.added for one in partitions),
            sum(one.removed for one in partitions),
            changed,
            tuple(partitions) if grain is not WHOLE else (),
            shared,
            tuple((row[0], tuple(row[1:])) for row in rows),
        )


def _compared(old: DataFrame, new: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Each row that does not stand equally often in both, with how much more often it stands in the new one."""
    from pyspark.sql import functions as F

    from penstock.engine.updates.rows import quoted

    names = [quoted(name) for name in columns]
    sides = [
        frame.select(*(F.col(name) for name in names), F.lit(sign).cast("bigint").alias("_penstock_sign"))
        for frame, sign in ((old, -1), (new, 1))
    ]
    both = sides[0].unionByName(sides[1])
    return both.groupBy(*names).agg(F.sum("_penstock_sign").alias("_penstock_n")).where("_penstock_n <> 0")


class _Started:
    """The updates of a table by job, read back from the newest as far as they are asked for."""

    def __init__(self, store: Store, conn: Connection, leader: str, table: str) -> None:
        self.store, self.conn, self.leader, self.table = store, conn, leader, table
        self.known: dict[str, tuple[Job, str]] = {}
        self.read = 0

    def find(self, job: str) -> tuple[Job, str] | None:
        while job not in self.known:
            wanted = max(64, 2 * self.read)
            events = self.store.events_of(self.conn, self.leader, ["update-started", "table-published"], wanted)
            for _, event in events[self.read :]:
                if isinstance(event, TablePublished):
                    own = Job(event.job, event.table, "order", event.publication.snapshot)
                    self.known.setdefault(event.job, (own, event.why))
                    continue
                assert isinstance(event, UpdateStarted)
                for one in event.job.each:
                    if one.table == self.table:
                        self.known.setdefault(event.job.id, (one, event.why))
            if len(events) <= self.read:
                return None
            self.read = len(events)
        return self.known[job]
