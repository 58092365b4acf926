"""A job whose table is made by a flow: its sources read, the flow run, the files of all its targets handed on to be
published together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from threading import Lock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.control.events import Job
from penstock.declare.warehouse import Definition, Warehouse
from penstock.engine.derive import Derivation, Slice, check_partitions
from penstock.engine.executor import Computed, Made
from penstock.engine.flows.memory import storage_bytes
from penstock.engine.flows.progress import Watched
from penstock.engine.flows.run import FlowFailed, FlowRun, Result, World
from penstock.engine.rows import Staged as Files
from penstock.engine.rows import quoted, read_files, stage
from penstock.flows.description import TypedFlow
from penstock.flows.experience import learned
from penstock.flows.gathering import gathered
from penstock.flows.report import FlowReport, load, total
from penstock.flows.staging import StagingPlan, plan_staging
from penstock.model.grain import WHOLE
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Column, Schema
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
            rmtree(folder, ignore_errors=True)
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
    warehouse: Warehouse
    store: Store
    catalogue: Catalogue
    kept: Kept = field(default_factory=Kept)
    watched: Watched = field(default_factory=Watched)

    def derive(self, job: Job, definition: Definition, derivation: Derivation, folder: str) -> Computed:
        """All targets of the flow for the partitions of the job."""
        partitions = partitions_of(list(job.pieces))
        grain = definition.table.grain
        partitioned = grain is not WHOLE and self.warehouse.graph.flows[job.table]
        if not partitioned:
            done = [self._derived(job, definition, derivation, partitions, folder)]
        else:
            # A flow is about one partition at a time: what it groups by need not name the partition.
            single = [PartitionSet(((start, grain.shift(start, 1)),)) for start in partitions.starts(grain)]
            done = [
                self._derived(job, definition, derivation, each, f"{folder}-{number}")
                for number, each in enumerate(single)
                if derivation.has_input(each)
            ]
        return self._computed(definition, [made for _, made in done], [report for report, _ in done], partitions)

    def _computed(
        self,
        definition: Definition,
        made: Sequence[dict[str, Files]],
        reports: Sequence[FlowReport],
        partitions: PartitionSet,
    ) -> Computed:
        assert definition.flow is not None
        found = []
        for table, target in definition.flow.flow.targets.items():
            files = [part[table] for part in made if table in part]
            own = self.warehouse.definitions[table]
            ended: tuple[tuple[int, int], ...] | None = None
            if own.table.grain is not WHOLE and self.warehouse.graph.flows[table]:
                ended = partitions.intervals
                check_partitions(table, [file for part in files for file in part.files], partitions, True)
            schema = files[0].schema if files else own.schema or ()
            every = tuple(file for part in files for file in part.files)
            found.append(Made(table, schema, every, () if target.append else ended))
        name = quarantine_of(definition.flow.flow.name)
        refused = [part[name] for part in made if name in part]
        if refused:
            found.append(Made(name, REFUSED, tuple(file for part in refused for file in part.files)))
        report = total(reports) if reports else None
        rejected = report.rejected if report is not None else 0
        return Computed(tuple(found), "flow", rejected, report=report)

    def load(
        self, job: Job, definition: Definition, rows: DataFrame, size: int, folder: str, only: Only
    ) -> tuple[FlowReport, dict[str, Files]]:
        """All targets of a flow over delivered rows. Files of a load may change, so nothing is kept for another try."""
        assert definition.flow is not None
        (source,) = definition.flow.flow.sources
        return self._run(job, definition, _Input({source: rows}, {}, size, None), folder, only)

    # One run

    def _derived(
        self, job: Job, definition: Definition, derivation: Derivation, partitions: PartitionSet, folder: str
    ) -> tuple[FlowReport, dict[str, Files]]:
        slices: list[tuple[str, Slice]] = []
        sources = derivation.sources(partitions, slices.append)
        size = sum(found.size_bytes for _, found in slices)
        rows = {table: float(sum(file.records for file in found.files)) for table, found in slices}
        key = self._key(job, definition, partitions, slices)
        return self._run(job, definition, _Input(sources, rows, size, key), folder)

    def _run(
        self, job: Job, definition: Definition, given: _Input, folder: str, only: Only = lambda _definition: None
    ) -> tuple[FlowReport, dict[str, Files]]:
        size, key = given.size_bytes, given.key
        typed, plan = self._plan(definition, given.rows)
        results = self.kept.take(job.table, key) if key is not None else {}

        def write(table: str, frame: DataFrame) -> Files:
            own = self.warehouse.definitions[table]
            root = self.catalogue.folder(table)
            condition = only(own)
            frame = frame if condition is None else frame.where(condition)
            return stage(frame, Path(root) / folder, root, own.time, own.table.grain, size)

        name = quarantine_of(typed.flow.name)

        def quarantine(step: str, refused: list[tuple[str, str, DataFrame]]) -> Files:
            root = self.catalogue.folder(name)
            parts = [as_refused(frame, activity, reason, job.id) for activity, reason, frame in refused]
            number = list(plan.by_name).index(step)
            return stage(reduce(DataFrame.unionAll, parts), Path(root) / f"{folder}-{number}", root, None, WHOLE, size)

        world = World(
            self.session,
            given.sources,
            lambda table, columns: self._loaded(job, table, columns),
            write,
            quarantine,
            lambda table, files: [self.catalogue.locate(table, file) for file in files.files],
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

    def _plan(self, definition: Definition, rows: dict[str, float]) -> tuple[TypedFlow, StagingPlan]:
        assert definition.flow is not None
        with self.store.read() as conn:
            measured = self.store.fact(conn, f"flow {definition.flow.flow.name}")
        report = load(json.loads(measured)) if measured else None
        typed = gathered(definition.flow, report.selectivities if report is not None else None)
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
    whole = F.to_json(F.struct(*map(quoted, rows.columns)), {"ignoreNullFields": "false"})
    return rows.select(
        F.lit(activity).alias("activity"),
        F.lit(reason).alias("reason"),
        whole.alias("row"),
        F.lit(job).alias("job"),
        F.current_timestamp().alias("refused_at"),
    )
