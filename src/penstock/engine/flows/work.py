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
from penstock.engine.updates.cleanup import remove_written
from penstock.engine.updates.derive import Derivation, FileLookup, Slice, check_partitions
from penstock.engine.updates.executor import Computed, Made
from penstock.engine.updates.provenance import FILE, tagged
from penstock.engine.updates.rows import Staged as Files
from penstock.engine.updates.rows import Writer, instant_literal, quoted, read_files, within
from penstock.flows.activities import Overwrite, Versions
from penstock.flows.description import FlowSource, TypedFlow, bound
from penstock.flows.gathering import gathered, learned
from penstock.flows.report import FlowReport, load, total
from penstock.flows.staging import StagingPlan, plan_staging
from penstock.model.grain import WHOLE
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Column, Schema
from penstock.requests.job import Job
from penstock.requests.needs import partitions_of
from penstock.store.store import Store
from penstock.tables import Catalogue

REFUSED: Schema = (
    Column("activity", "string"),
    Column("reason", "string"),
    Column("row", "string"),
    Column("job", "string"),
    Column("refused_at", "timestamp"),
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
    """What a flow reads: the rows of its sources, how many where that is known, and a key of it all if it cannot change."""

    sources: dict[str, DataFrame]
    rows: dict[str, float]
    size_bytes: int
    key: str | None


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
        if not partitioned:
            done = [(0, *self._derived(job, definition, derivation, partitions, folder, False))]
        else:
            # A flow is about one partition at a time: what it groups by need not name the partition.
            done = []
            for number, start in enumerate(partitions.starts(grain)):
                each = PartitionSet(((start, grain.shift(start, 1)),))
                if derivation.has_input(each):
                    report, made = self._derived(job, definition, derivation, each, f"{folder}-{number}", True)
                    for table in self.warehouse.graph.made_with(job.table):
                        check_partitions(table, made[table].files if table in made else (), each, True)
                    done.append((start, report, made))
        # Of a table that is declared anew, what stands there was made by another declaration.
        return self._computed(definition, done, partitions.intervals if partitioned and not job.anew else None)

    def _computed(
        self,
        definition: Definition,
        done: Sequence[tuple[int, FlowReport, dict[str, Files]]],
        ended: tuple[tuple[int, int], ...] | None,
    ) -> Computed:
        """What the runs made, each for the partition that begins then, takes the place of what these partitions had."""
        assert definition.flow is not None
        found = []
        for table, target in definition.flow.flow.targets.items():
            files = [made[table] for _, _, made in done if table in made]
            schema = files[0].schema if files else self.warehouse.definitions[table].schema or ()
            every = tuple(file for part in files for file in part.files)
            found.append(Made(table, schema, every, () if target.append else ended))
        name = quarantine_of(definition.flow.flow.name)
        refused = tuple(
            replace(file, partition_us=start) for start, _, made in done if name in made for file in made[name].files
        )
        with self.store.read() as conn:
            known = self.catalogue.schema(conn, name) is not None
        if refused or known:
            found.append(Made(name, REFUSED, refused, ended))
        reports = [report for _, report, _ in done]
        report = total(reports) if reports else None
        return Computed(tuple(found), "flow", report)

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
        partitioned: bool,
    ) -> tuple[FlowReport, dict[str, Files]]:
        slices: list[tuple[str, Slice]] = []
        derivation.lookup = self._with_files(definition, derivation.lookup)
        stored = derivation.sources(partitions, slices.append)
        sources = {table: self._in_order(job, table, rows) for table, rows in stored.items()}
        for step in definition.flow.flow.steps if definition.flow is not None else ():
            if isinstance(step.does, FlowSource) and self.warehouse.definitions[step.does.table].declaration.every:
                found = stored[step.does.table]
                sources[step.name] = self._snapshots(job, step.does, found)
        size = sum(found.size_bytes for _, found in slices)
        rows = {table: float(sum(file.records for file in found.files)) for table, found in slices}
        key = self._key(job, definition, partitions, slices)
        flow, given = definition.flow, _Input(sources, rows, size, key)
        assert flow is not None
        if not partitioned:
            return self._run(job, definition, flow, given, folder)
        ((start, end),) = partitions.intervals
        flow = bound(flow, {"partition_start": instant_literal(start), "partition_end": instant_literal(end)})
        edges = self.warehouse.graph.into[job.table]
        if all(edge.map.required(partitions) == partitions for edge in edges):
            return self._run(job, definition, flow, given, folder)

        def only(own: Definition) -> str | None:
            return within(own.time, partitions) if own.time is not None else None

        # Rows of a source's other partitions come in too: they are for others to keep.
        times = [definition.time, *(self.warehouse.definitions[edge.source].time for edge in edges)]
        cut = {
            time.lower(): f"{quoted(time)} is null or {within(time, partitions)}" for time in times if time is not None
        }
        return self._run(job, definition, flow, given, folder, only, cut)

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
        typed, plan = self._plan(flow, given.rows)
        results = self.kept.take(job.table, key) if key is not None else {}

        def write(table: str, frame: DataFrame) -> Files:
            own = self.warehouse.definitions[table]
            root = self.catalogue.folder(table)
            condition = only(own)
            frame = frame if condition is None else frame.where(condition)
            if file is not None and FILE not in frame.columns:
                frame = frame.selectExpr("*", tagged(file))
            return self.writer.stage(
                frame, Path(root) / folder, root, own.time, own.table.grain, size, hidden_of(frame)
            )

        name = quarantine_of(typed.flow.name)

        def own(frame: DataFrame) -> DataFrame:
            there = {column.lower() for column in frame.columns}
            condition = next((text for time, text in (cut or {}).items() if time in there), None)
            return frame if condition is None else frame.where(condition)

        def quarantine(step: str, refused: list[tuple[str, str, DataFrame]]) -> Files:
            root = self.catalogue.folder(name)
            parts = [as_refused(own(frame), activity, reason, job.id) for activity, reason, frame in refused]
            number = list(plan.by_name).index(step)
            rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
            return self.writer.stage(rows, Path(root) / f"{folder}-{number}", root, None, WHOLE, size, hidden_of(rows))

        world = World(
            self.session,
            given.sources,
            lambda table, columns: self._loaded(job, table, columns),
            write,
            quarantine,
            lambda table, files: [self.catalogue.locate(table, file) for file in files.files],
            cut=cut is not None,
            step=self.step,
        )
        run = FlowRun(typed, plan, job.id, world, self._slots(), results)
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

    def _slots(self) -> int:
        return max(1, int(self.session.sparkContext.defaultParallelism))

    def _plan(self, flow: TypedFlow, rows: dict[str, float]) -> tuple[TypedFlow, StagingPlan]:
        with self.store.read() as conn:
            measured = self.store.fact(conn, f"flow {flow.flow.name}")
        report = load(json.loads(measured)) if measured else None
        typed = gathered(flow, report.selectivities if report is not None else None)
        graph = typed.graph(rows)
        if report is not None:
            graph = learned(graph, report, rows)
        return typed, plan_staging(graph, MEMORY_SHARE * storage_bytes(self.session)[0])

    def _key(
        self, job: Job, definition: Definition, partitions: PartitionSet, slices: Sequence[tuple[str, Slice]]
    ) -> str:
        """Equal for tries that would read and compute the very same."""
        assert definition.flow is not None
        read = [(table, [(file.id, file.path) for file in found.files]) for table, found in slices]
        with self.store.read() as conn:
            own = [
                (table, [file.id for file in self.catalogue.files(conn, table, job.pin)])
                for table in definition.flow.flow.targets
                if definition.flow.flow.keeps_history
            ]
        text = repr((definition.table.logic, partitions.intervals, job.edge_us, read, own))
        return sha256(text.encode()).hexdigest()

    def _loaded(self, job: Job, table: str, columns: Schema) -> DataFrame:
        """What a target held before the job. Columns that it did not have are null."""
        with self.store.read() as conn:
            schema = self.catalogue.schema(conn, table, job.pin)
            files = self.catalogue.files(conn, table, job.pin) if schema is not None else []
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


def quarantine_of(flow: str) -> str:
    """The table with the rows that a flow refused."""
    return f"{flow}_quarantine"


def as_refused(rows: DataFrame, activity: str, reason: str, job: str) -> DataFrame:
    whole = F.to_json(F.struct(*map(quoted, shown(rows))), {"ignoreNullFields": "false"})
    return rows.select(
        F.lit(activity).alias("activity"),
        F.lit(reason).alias("reason"),
        whole.alias("row"),
        F.lit(job).alias("job"),
        F.current_timestamp().alias("refused_at"),
        *hidden_of(rows),
    )
