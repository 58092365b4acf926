"""A job whose table is made by a flow: its sources read, the flow run, the files of all its targets handed on to be
published together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from pathlib import Path
from threading import Lock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.flows.progress import Watched, storage_bytes
from penstock.engine.flows.realise import SNAPSHOT, hidden_of, shown
from penstock.engine.flows.run import FlowFailed, FlowRun, Result, World
from penstock.engine.ports import Computed, Made
from penstock.engine.storage import remove_written
from penstock.engine.updates.derive import Derivation, FileLookup, Slice, check_partitions
from penstock.engine.updates.provenance import FILE, tagged
from penstock.engine.updates.rows import Staged as Files
from penstock.engine.updates.rows import Writer, instant_literal, quoted, read_files, schema_of, within
from penstock.flows.activities import Overwrite, Versions
from penstock.flows.activities.base import Groups
from penstock.flows.description import FlowSource, TypedFlow, bound
from penstock.flows.frontier import FrontierPoint, chosen, frontier
from penstock.flows.gathering import gathered, learned
from penstock.flows.ordering import LEAST_PEAK
from penstock.flows.report import ALL, NEW, FlowReport, fact_of, load, total
from penstock.model.grain import WHOLE
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Column, Schema
from penstock.requests.job import Job
from penstock.requests.needs import Need, partitions_of
from penstock.store.store import Store
from penstock.tables import Catalogue

REFUSED: Schema = (
    Column("activity", "string"),
    Column("reason", "string"),
    Column("row", "string"),
    Column("job", "string"),
    Column("refused_at", "timestamp"),
    # When the partition begins in which it was refused, where the flow has some.
    Column("partition", "timestamp"),
)
# Of what Spark may use for storage, the share that the staged intermediates of one flow may take.
MEMORY_SHARE = 0.5


@dataclass
class Kept:
    """What steps of failed tries left that is still right: a retry goes on from there. Of each table one try at most."""

    results: dict[str, tuple[str, dict[str, Result]]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def take(self, table: str, key: str) -> dict[str, Result]:
        """The results of the last try, if it was of the very same work; else they are let go."""
        with self.lock:
            known = self.results.pop(table, None)
        if known is None:
            return {}
        if known[0] == key:
            return known[1]
        release(known[1])
        for folder in _folders(known[1]):
            remove_written(folder)
        return {}

    def folders(self, table: str) -> frozenset[Path]:
        """Where files are that a retry may still use."""
        with self.lock:
            known = self.results.get(table)
        return frozenset(_folders(known[1])) if known is not None else frozenset()

    def put(self, table: str, key: str, results: dict[str, Result]) -> None:
        with self.lock:
            self.results[table] = (key, results)


def _folders(results: dict[str, Result]) -> Iterator[Path]:
    for result in results.values():
        yield from (files.folder for files in (result.files, result.refused) if files is not None)


def release(results: dict[str, Result]) -> None:
    for result in results.values():
        if result.kept is not None:
            result.kept.unpersist()
            result.kept = None


# Which rows of a target are wanted, as SQL; None for all.
Only = Callable[[Definition], str | None]


@dataclass(frozen=True)
class _Input:
    """What a flow reads: the rows of its sources, how many where that is known, and a key of it all if it cannot change. Of
    new rows only: how stored groups are merged with those of them."""

    sources: dict[str, DataFrame]
    rows: dict[str, float]
    size_bytes: int
    key: str | None
    merged: Callable[[str, DataFrame], DataFrame] | None = None
    # What earlier runs of the job added to targets that rows are added to.
    added: Mapping[str, Sequence[Files]] = field(default_factory=dict)
    # Where the partition begins that is being made.
    partition_us: int | None = None

    @property
    def extent(self) -> str:
        return NEW if self.merged is not None else ALL


@dataclass(frozen=True)
class _Part:
    """What one run of a job gave: for the partition that begins then, or for all. Whether it worked on new rows only."""

    start: int
    report: FlowReport
    made: dict[str, Files]
    new: bool


@dataclass
class FlowWork:
    session: SparkSession
    warehouse: Definitions
    store: Store
    catalogue: Catalogue
    writer: Writer
    kept: Kept = field(default_factory=Kept)
    watched: Watched = field(default_factory=Watched)

    def derive(self, job: Job, definition: Definition, derivation: Derivation, folder: str) -> Computed:
        """All targets of the flow for the partitions of the job."""
        partitions = partitions_of(list(job.pieces))
        grain = definition.table.grain
        partitioned = grain is not WHOLE and self.warehouse.graph.has_time[job.table]
        folds = derivation.folds()
        lacks = [(piece, piece.need if folds and piece.need.append else None) for piece in job.pieces]
        if not partitioned:
            lack = lacks[0][1] if len(lacks) == 1 else None
            done = [self._derived(job, definition, derivation, partitions, folder, 0, lack)]
            ended: tuple[tuple[int, int], ...] | None = None if lack is None else ()
        else:
            # A flow is about one partition at a time: what it groups by need not name the partition.
            done = []
            for number, start in enumerate(partitions.starts(grain)):
                each = PartitionSet(((start, grain.shift(start, 1)),))
                lack = next(lack for piece, lack in lacks if piece.start_us <= start < piece.end_us)
                if derivation.has_input(each):
                    part = self._derived(job, definition, derivation, each, f"{folder}-{number}", start, lack, done)
                    for table in self.warehouse.graph.made_with(job.table):
                        cut = self.warehouse.definitions[table].table.grain is not WHOLE
                        check_partitions(table, part.made[table].files if table in part.made else (), each, cut)
                    done.append(part)
            ended = partitions_of([piece for piece, lack in lacks if lack is None]).intervals
        # Of a table that is declared anew, what stands there was made by another declaration.
        return self._computed(definition, done, None if job.anew else ended)

    def _computed(
        self, definition: Definition, done: Sequence[_Part], ended: tuple[tuple[int, int], ...] | None
    ) -> Computed:
        """What the runs made takes the place of what the partitions that `ended` had; what new rows gave comes to what is
        there, and groups that were merged with those that were there take the place of those."""
        assert definition.flow is not None
        grain, groups = definition.table.grain, definition.following.groups if definition.following else {}
        found = []
        for table, target in definition.flow.flow.targets.items():
            files = [part.made[table] for part in done if table in part.made]
            schema = files[0].schema if files else self.warehouse.definitions[table].schema or ()
            every = tuple(file for part in files for file in part.files)
            merged = [part.start for part in done if part.new and table in groups]
            replaced = () if target.append else ended
            if merged and replaced is not None:
                whole = grain is WHOLE
                own = [(start, grain.shift(start, 1)) for start in merged] if not whole else []
                replaced = None if whole else PartitionSet.of(*replaced, *own).intervals
            found.append(Made(table, schema, every, replaced))
        name = quarantine_of(definition.flow.flow.name)
        refused = tuple(
            replace(file, partition_us=part.start)
            for part in done
            if name in part.made
            for file in part.made[name].files
        )
        with self.store.read() as conn:
            known = self.catalogue.schema(conn, name) is not None
        if refused or (known and ended != ()):
            found.append(Made(name, REFUSED, refused, ended))
        report = total(part.report for part in done) if done else None
        new = {part.new for part in done}
        how = "flow" if True not in new else "fold" if False not in new else "fold and flow"
        return Computed(tuple(found), how, report)

    def load(
        self, job: Job, definition: Definition, rows: DataFrame, size: int, folder: str, only: Only, file: int | None
    ) -> tuple[FlowReport, dict[str, Files]]:
        """All targets of a flow over delivered rows, with the number of their file if they do not carry it. Files of a load
        may change, so nothing is kept for another try."""
        assert definition.flow is not None
        (source,) = definition.flow.flow.sources
        given = _Input({source: rows}, {}, size, None)
        return self._run(job, definition, definition.flow, given, folder, only, file=file)

    # One run

    def _derived(
        self,
        job: Job,
        definition: Definition,
        derivation: Derivation,
        partitions: PartitionSet,
        folder: str,
        start: int,
        lack: Need | None,
        before: Sequence[_Part] = (),
    ) -> _Part:
        """One run, after others of the job: for the partition that begins at `start`, or for all; of new rows only, if it is
        said what it lacks."""
        following = definition.following
        slices: list[tuple[str, Slice]] = []
        derivation.lookup = self._with_files(definition, derivation.lookup)
        stored = derivation.sources(partitions, slices.append, lack)
        sources = {table: self._in_order(job, table, rows) for table, rows in stored.items()}
        for step in definition.flow.flow.steps if definition.flow is not None else ():
            if isinstance(step.does, FlowSource) and self.warehouse.definitions[step.does.table].declaration.every:
                found = stored[step.does.table]
                sources[step.name] = self._snapshots(job, step.does, found)
        size = sum(found.size_bytes for _, found in slices)
        rows: dict[str, float] = {}
        for table, read in slices:
            rows[table] = rows.get(table, 0.0) + sum(file.records for file in read.files)
        key = self._key(job, definition, partitions, slices, lack)

        def merged(table: str, new: DataFrame) -> DataFrame:
            assert following is not None
            groups = following.groups.get(table)
            return new if groups is None else merged_groups(groups, derivation, table, partitions, new)

        added = (
            {
                name: [p.made[name] for p in before if name in p.made]
                for name, t in definition.flow.flow.targets.items()
                if t.append
            }
            if definition.flow
            else {}
        )
        given = _Input(sources, rows, size, key, merged if lack is not None else None, added)
        flow = definition.flow
        if following is not None and following.whole is not None:
            flow = following.whole if lack is None else following.new
        assert flow is not None
        if definition.table.grain is WHOLE or not self.warehouse.graph.has_time[job.table]:
            return _Part(start, *self._run(job, definition, flow, given, folder), lack is not None)
        ((_, end),) = partitions.intervals
        given = replace(given, partition_us=start)
        flow = bound(flow, {"partition_start": instant_literal(start), "partition_end": instant_literal(end)})
        edges = self.warehouse.graph.into[job.table]
        if all(edge.map.required(partitions) == partitions for edge in edges):
            return _Part(start, *self._run(job, definition, flow, given, folder), lack is not None)

        def only(own: Definition) -> str | None:
            return within(own.time, partitions) if own.time is not None else None

        # Rows of a source's other partitions come in too: they are for others to keep.
        times = [definition.time, *(self.warehouse.definitions[edge.source].time for edge in edges)]
        cut = {
            time.lower(): f"{quoted(time)} is null or {within(time, partitions)}" for time in times if time is not None
        }
        return _Part(start, *self._run(job, definition, flow, given, folder, only, cut), lack is not None)

    def _with_files(self, definition: Definition, lookup: FileLookup) -> FileLookup:
        """Where rows of equal key are told apart by which came last, those of base tables come with their files."""
        assert definition.flow is not None
        ordered = any(isinstance(step.does, Overwrite | Versions) for step in definition.flow.flow.steps)

        def find(
            table: str, partitions: PartitionSet | None, added_after: int | None, described: str | None = None
        ) -> Slice:
            found = lookup(table, partitions, added_after, described)
            known = any(column.name == FILE for column in found.schema)
            if known or not (ordered or self.warehouse.definitions[table].declaration.every):
                return found
            if not self.warehouse.definitions[table].table.is_base:
                return found
            return replace(found, schema=(*found.schema, Column(FILE, "bigint")))

        return find

    def _in_order(self, job: Job, table: str, rows: DataFrame) -> DataFrame:
        """Rows that come with their files, by a number that grows as the files are ordered."""
        if FILE not in rows.columns:
            return rows
        order = self._order(job, table, rows)
        if order == sorted(order):
            return rows
        return rows.withColumn(FILE, F.expr(f"array_position(array({', '.join(f'{n}L' for n in order)}), {FILE})"))

    def _snapshots(self, job: Job, source: FlowSource, rows: DataFrame) -> DataFrame:
        """Rows of every snapshot, each with the number of its own; or those of the newest, which may have none."""
        if source.every:
            rows = self._in_order(job, source.table, rows)
            return rows.selectExpr(*map(quoted, shown(rows)), f"coalesce({FILE}, 0L) as {SNAPSHOT}")
        newest = next(reversed(self._order(job, source.table, rows)), -1)
        return rows.where(f"coalesce({FILE}, 0L) = {newest}L").drop(FILE)

    def _order(self, job: Job, table: str, rows: DataFrame) -> list[int]:
        """The numbers of the files that a table held when the job began, in their order."""
        with self.store.read() as conn:
            order = self.store.in_order(conn, table)
            later = self.store.next_version(conn, table, job.pin)
        if later is not None:
            there = {row[0] for row in rows.select(FILE).distinct().collect()}
            order = [number for number in order if number in there]
        return order

    def _run(
        self,
        job: Job,
        definition: Definition,
        flow: TypedFlow,
        given: _Input,
        folder: str,
        only: Only = lambda _definition: None,
        cut: Mapping[str, str] | None = None,
        file: int | None = None,
    ) -> tuple[FlowReport, dict[str, Files]]:
        """One run, in which `only` says which rows of a target are kept, and `cut` which refused ones, by a column of theirs."""
        size, key = given.size_bytes, given.key
        self.writer.fit(self.session, size)
        typed, point, slots = self._plan(flow, given.rows, given.extent)
        plan = point.plan
        results = self.kept.take(job.table, key) if key is not None else {}

        def write(table: str, frame: DataFrame) -> Files:
            own = self.warehouse.definitions[table]
            root = self.catalogue.folder(table)
            condition = only(own)
            frame = frame if condition is None else frame.where(condition)
            if file is not None and FILE not in frame.columns:
                frame = frame.selectExpr("*", tagged(file))
            if given.merged is not None:
                frame = given.merged(table, frame)
            hidden = [*hidden_of(frame), *(column.name for column in own.state)]
            return self.writer.stage(frame, Path(root) / folder, root, own.time, own.table.grain, size, hidden)

        name = quarantine_of(typed.flow.name)

        def own(frame: DataFrame) -> DataFrame:
            there = {column.lower() for column in frame.columns}
            condition = next((text for time, text in (cut or {}).items() if time in there), None)
            return frame if condition is None else frame.where(condition)

        def quarantine(step: str, refused: list[tuple[str, str, DataFrame]]) -> Files:
            root = self.catalogue.folder(name)
            parts = [
                as_refused(own(frame), activity, reason, job.id, given.partition_us)
                for activity, reason, frame in refused
            ]
            number = list(plan.by_name).index(step)
            rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
            return self.writer.stage(rows, Path(root) / f"{folder}-{number}", root, None, WHOLE, size, hidden_of(rows))

        world = World(
            self.session,
            given.sources,
            lambda table, columns: self._loaded(job, table, columns, given.added.get(table, ())),
            write,
            quarantine,
            lambda table, files: [self.catalogue.locate(table, file) for file in files.files],
            cut=cut is not None,
            step=self.step,
        )
        run = FlowRun(typed, plan, job.id, world, slots, results, given.extent, point)
        try:
            with self.watched.watching(run):
                report = run.run()
        except BaseException as error:
            # A broken rule stays broken; and who is stopped does not come back.
            again = isinstance(error, Exception) and not isinstance(error, FlowFailed)
            if key is not None and again and job.attempt < definition.table.attempts:
                self.kept.put(job.table, key, run.results)
            else:
                run.release()
            raise
        run.release()
        made = {step: result.files for step, result in run.results.items() if result.files is not None}
        refused = [result.refused for result in run.results.values() if result.refused is not None]
        if refused:
            made[name] = Files(refused[0].folder, REFUSED, tuple(file for part in refused for file in part.files))
        return report, made

    def step(self, name: str) -> None:
        """Called between any two things that a run does; tests stop there."""

    def _plan(self, flow: TypedFlow, rows: dict[str, float], extent: str) -> tuple[TypedFlow, FrontierPoint, int]:
        """The flow as it is to run, the way to run it, and in how many slots."""
        config = self.warehouse.declarations.config.flows
        running = flow.flow.running.else_(config.running)
        slots = running.slots or max(1, int(self.session.sparkContext.defaultParallelism))
        memory = running.memory_bytes or MEMORY_SHARE * storage_bytes(self.session)[0]
        with self.store.read() as conn:
            measured = self.store.fact(conn, fact_of(flow.flow.name, extent))
        report = load(json.loads(measured)) if measured else None
        typed = gathered(flow, report.selectivities if report is not None else None)
        graph = typed.graph(rows)
        if report is not None:
            graph = learned(graph, report, rows)
        # Flows that run at the same time share what there is.
        ways = frontier(graph, slots, memory / (1 + self.watched.running), running.order or LEAST_PEAK)
        return typed, chosen(ways, running.objective or "time"), slots

    def _key(
        self,
        job: Job,
        definition: Definition,
        partitions: PartitionSet,
        slices: Sequence[tuple[str, Slice]],
        lack: Need | None,
    ) -> str:
        """Equal for tries that would read and compute the very same."""
        assert definition.flow is not None
        read = [(table, [(file.id, file.path) for file in found.files]) for table, found in slices]
        with self.store.read() as conn:
            own = [
                (table, [file.id for file in self.catalogue.files(conn, table, job.pin)])
                for table in definition.flow.flow.targets
                if definition.flow.flow.keeps_history or lack is not None
            ]
        text = repr((definition.table.logic, partitions.intervals, job.edge_us, read, own, lack is not None))
        return sha256(text.encode()).hexdigest()

    def _loaded(self, job: Job, table: str, columns: Schema, added: Sequence[Files]) -> DataFrame:
        """What a target holds: what it held before the job, and what its earlier runs added. Columns that it did not have are
        null."""
        with self.store.read() as conn:
            schema = self.catalogue.schema(conn, table, job.pin)
            files = self.catalogue.files(conn, table, job.pin) if schema is not None else []
        files += [file for part in added for file in part.files]
        schema = schema or next((part.schema for part in added if part.files), None)
        if schema is None:
            return read_files(self.session, (), columns, 0)
        paths = [self.catalogue.locate(table, file) for file in files]
        rows = read_files(self.session, paths, schema, sum(file.size_bytes for file in files))
        known = {column.name.lower() for column in schema}
        return rows.selectExpr(
            *(
                quoted(c.name) if c.name.lower() in known else f"cast(null as {c.type}) as {quoted(c.name)}"
                for c in columns
            )
        )


def merged_groups(
    groups: Groups, derivation: Derivation, table: str, partitions: PartitionSet, new: DataFrame
) -> DataFrame:
    """Groups of new rows, and those that the partitions hold, as one."""
    stored = derivation.lookup(table, partitions, None)
    if not stored.files:
        return new
    before = read_files(new.sparkSession, stored.paths, schema_of(new), stored.size_bytes)
    both = before.unionAll(new).groupBy(*map(quoted, groups.keys))
    one = both.agg(*(F.expr(f"{expression} as {quoted(name)}") for name, expression in groups.merged))
    return one.select(*map(quoted, new.columns))


def quarantine_of(flow: str) -> str:
    """The table with the rows that a flow refused."""
    return f"{flow}_quarantine"


def as_refused(rows: DataFrame, activity: str, reason: str, job: str, partition_us: int | None = None) -> DataFrame:
    whole = F.to_json(F.struct(*map(quoted, shown(rows))), {"ignoreNullFields": "false"})
    return rows.select(
        F.lit(activity).alias("activity"),
        F.lit(reason).alias("reason"),
        whole.alias("row"),
        F.lit(job).alias("job"),
        F.current_timestamp().alias("refused_at"),
        F.expr(instant_literal(partition_us) if partition_us is not None else "cast(null as timestamp)").alias(
            "partition"
        ),
        *hidden_of(rows),
    )
