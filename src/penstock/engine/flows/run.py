"""One run of a flow: the staging plan, walked.

Each step of the plan is one Spark query in a thread and a scheduler pool of its own. What it stages is released when its
last reader is done. If one step fails the others are cancelled, and nothing of the run is used; steps that ended well may
be kept for the next try.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from penstock.engine.flows import history  # noqa: F401  (registers its activities)
from penstock.engine.flows.progress import (
    FlowProgress,
    QueryRecords,
    StepProgress,
    cached_plan,
    cached_rows,
    mark,
    rows_held,
    tasks_of,
)
from penstock.engine.flows.realise import HIDDEN, FormerRows, Inputs, realise, refused
from penstock.engine.spark.sizing import planned_once
from penstock.engine.updates.rows import Staged as Files
from penstock.engine.updates.rows import quoted, read_files
from penstock.errors import PenstockError
from penstock.flows.activities import Activity, Check
from penstock.flows.description import FlowSource, Target, TypedFlow
from penstock.flows.frontier import FrontierPoint
from penstock.flows.report import ALL, ActivityRun, FlowReport, StepRun
from penstock.flows.staging import StagedRows, StagingPlace, StagingPlan, Walk
from penstock.flows.staging import Step as PlannedStep

SAMPLE_S = 0.25  # between two looks at what is held
_LEVELS = {StagingPlace.MEMORY: StorageLevel.MEMORY_AND_DISK_DESER, StagingPlace.DISK: StorageLevel.DISK_ONLY}


class FlowFailed(PenstockError):
    """Rows broke a rule that says `fail`, or the flow did not give the same rows twice."""


class Write(Protocol):
    """Writes the rows of a target as files that nobody sees yet, and gives the way to read them."""

    def __call__(self, table: str, rows: DataFrame, /) -> Files: ...


class Quarantine(Protocol):
    """Writes the rows that checks of a step refused, each with the activity and the reason."""

    def __call__(self, step: str, refused: list[tuple[str, str, DataFrame]]) -> Files: ...


@dataclass
class Result:
    """What a step that ended well left behind."""

    run: StepRun
    counts: dict[str, int]
    activities: tuple[ActivityRun, ...] = ()
    kept: DataFrame | None = None
    number: int | None = None  # that Spark gave to what is kept
    files: Files | None = None
    refused: Files | None = None
    memory_bytes: int = 0
    disk_bytes: int = 0


@dataclass
class World:
    """Everything that a run needs from outside."""

    session: SparkSession
    sources: Mapping[str, DataFrame]
    loaded: FormerRows
    write: Write
    quarantine: Quarantine
    paths: Callable[[str, Files], list[str]]
    # Whether rows of other partitions come in too, which are not kept.
    cut: bool = False
    # Called between any two things that a run does, so that tests can stop there.
    step: Callable[[str], None] = lambda _name: None


@dataclass
class FlowRun:
    typed: TypedFlow
    plan: StagingPlan
    job: str
    world: World
    slots: int = 2
    # Of steps that ended well, perhaps in an earlier try.
    results: dict[str, Result] = field(default_factory=dict)
    extent: str = ALL
    # The point of the frontier that was taken: so much may be held, and so it should go.
    point: FrontierPoint | None = None

    def __post_init__(self) -> None:
        self._numbers = {step.name: number for number, step in enumerate(self.typed.flow.steps, 1)}
        self._records = QueryRecords(self.world.session)
        self._costs = {node.name: node.cost_per_row_us for node in self.typed.graph().nodes}
        self._counts: dict[str, int] = {}
        self._frames: dict[str, DataFrame] = {}
        # Of steps that keep rows, also while they are making them: the number that Spark gave them.
        self._held = {name: each.number for name, each in self.results.items() if each.number is not None}
        self._held_bytes = 0
        self._peaks = [0, 0]
        # Bytes in memory times seconds, up to the last look.
        self._byte_s = self._looked_s = 0.0
        self._reused = frozenset(self.results)
        self._began = perf_counter()
        self._begun: dict[str, float] = {}
        self._done = 0

    def run(self) -> FlowReport:
        with planned_once(self.world.session):
            return self._run()

    def _run(self) -> FlowReport:
        walk = Walk(self.plan, self.point.limit_bytes if self.point is not None else None, self.slots)
        ended: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        running: dict[str, InheritableThread] = {}
        failed: BaseException | None = None
        while not walk.done or running:
            for step in walk.start() if failed is None else ():
                self._begun[step.name] = perf_counter()
                running[step.name] = self._thread(step, ended, len(running))
                running[step.name].start()
            try:
                name, error = ended.get(timeout=SAMPLE_S)
            except queue.Empty:
                self._sample()
                continue
            running.pop(name).join()
            self._begun.pop(name, None)
            if error is not None:
                if failed is None:
                    failed = error
                    self._cancel(running)
            else:
                self._finished(name, walk)
            if failed is not None and not running:
                raise failed
        return self._report(perf_counter() - self._began)

    def progress(self) -> FlowProgress:
        """How far it is; any thread may ask."""
        context, now = self.world.session.sparkContext, perf_counter()
        running = tuple(
            StepProgress(name, now - began, *tasks_of(context, self._description(name)))
            for name, began in list(self._begun.items())
        )
        return FlowProgress(
            self.plan.flow, self.job, self._done, len(self.plan.steps), now - self._began, running, self._held_bytes
        )

    def _sample(self) -> None:
        """What is held now, also of steps that still run."""
        held = rows_held(self.world.session, set(self._held.values()))
        now = perf_counter() - self._began
        self._byte_s += self._held_bytes * (now - self._looked_s)
        self._looked_s, self._held_bytes = now, held[0]
        self._peaks = [max(pair) for pair in zip(self._peaks, held, strict=True)]

    # Threads

    def _thread(
        self, step: PlannedStep, ended: queue.SimpleQueue[tuple[str, BaseException | None]], slot: int
    ) -> InheritableThread:
        context = self.world.session.sparkContext
        pool = context.getLocalProperty("spark.scheduler.pool") or "flow"

        def work() -> None:
            try:
                context.setLocalProperty("spark.scheduler.pool", f"{pool}-{slot}")
                name = self._description(step.name)
                context.setJobGroup(name, name, interruptOnCancel=True)
                if step.name not in self.results:
                    self.results[step.name] = self._computed(step, name)
                self.world.step(f"{step.name} done")
                ended.put((step.name, None))
            except BaseException as error:
                ended.put((step.name, error))

        return InheritableThread(target=work, name=f"penstock-flow-{step.name}", daemon=True)

    def _description(self, step: str) -> str:
        return f"{self.job} {self.plan.flow}: {step}"

    def _cancel(self, running: Mapping[str, InheritableThread]) -> None:
        for name in running:
            self.world.session.sparkContext.cancelJobGroup(self._description(name))

    def _finished(self, name: str, walk: Walk) -> None:
        result = self.results[name]
        self._counts |= result.counts
        for staged in self.plan.by_name[name].stages:
            if result.kept is not None:
                self._frames[staged.node] = result.kept
            elif result.files is not None:
                self._frames[staged.node] = self._read_back(staged, result.files)
        if result.kept is not None:
            self._sample()  # most is held just before something is let go
        for staged in walk.finish(name):
            self._frames.pop(staged.node, None)
            made_by = self.results[staged.step]
            if made_by.kept is not None:
                made_by.kept.unpersist()
                made_by.kept = made_by.number = None
                self._held.pop(staged.step, None)
        self._done = len(walk.finished)

    def release(self) -> None:
        """Let go of everything that is still held."""
        for result in self.results.values():
            if result.kept is not None:
                result.kept.unpersist()
                result.kept = None

    # One step

    def _computed(self, step: PlannedStep, description: str) -> Result:
        began, last = perf_counter(), self._records.newest()
        self.world.step(f"{step.name} begins")
        frames = {node: self._frames[node] for node in step.reads}
        for node in step.nodes:
            if node not in frames:
                frames[node] = self._frame(node, frames)
        target = self.typed.flow.by_name[step.name].does
        if isinstance(target, Target):
            files = self.world.write(target.table, frames[step.name])
            result = Result(StepRun(step.name, 0, 0, 0), {step.name: files.rows}, files=files)
        else:
            (staged,) = step.stages
            result = self._kept(staged, frames[step.name])
        measured = self._records.measured(description, last)
        rows = measured.rows if result.kept is None else cached_rows(result.kept)
        known = dict(self._counts)
        for node in step.nodes:
            # Where Spark knows beforehand that there is no row, it has nothing to count.
            known[node] = result.counts.setdefault(node, known.get(node, rows.get(self._numbers[node], 0)))
        try:
            runs, result.refused = self._checked(step, frames, known)
            result.activities = self._timed(step, runs, known, measured.cpu_s)
        except BaseException:
            if result.kept is not None:
                result.kept.unpersist()
            raise
        result.run = StepRun(
            step.name,
            perf_counter() - began,
            measured.cpu_s,
            measured.shuffle_bytes,
            step.stages[0].place.value if step.stages else None,
            result.memory_bytes + result.disk_bytes,
            staged_rows=known[step.name] if step.stages else 0,
            staged_columns=step.stages[0].columns if step.stages else (),
        )
        return result

    def _frame(self, node: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        step = self.typed.flow.by_name[node]
        if isinstance(step.does, FlowSource):
            # What a table holds of its newest snapshot only goes by the name of the step.
            rows = self.world.sources.get(step.name, self.world.sources[step.does.table])
        elif isinstance(step.does, Target):
            return frames[step.inputs[0]]
        else:
            rows = realise(step.does, self._inputs(node, frames))
        return mark(rows, self._numbers[node])

    def _inputs(self, node: str, frames: Mapping[str, DataFrame]) -> Inputs:
        step = self.typed.flow.by_name[node]
        return Inputs(tuple(frames[name] for name in step.inputs), self.world.loaded)

    def _kept(self, staged: StagedRows, rows: DataFrame) -> Result:
        wanted = {name.lower() for name in staged.columns}
        if wanted:
            rows = rows.select(*(quoted(name) for name in rows.columns if name.lower() in wanted or name in HIDDEN))
        kept = rows.persist(_LEVELS[staged.place])
        try:
            builder = cached_plan(kept)
            if builder is not None:
                self._held[staged.step] = builder.cachedColumnBuffers().id()
            kept.count()  # makes all of it
        except BaseException:
            self._held.pop(staged.step, None)
            kept.unpersist()
            raise
        number = self._held.get(staged.step)
        memory, disk = rows_held(self.world.session, {number} if number is not None else set())
        run = StepRun(staged.step, 0, 0, 0)
        return Result(run, {}, kept=kept, number=number, memory_bytes=memory, disk_bytes=disk)

    def _read_back(self, staged: StagedRows, files: Files) -> DataFrame:
        schema = (*files.schema, *files.hidden)
        rows = read_files(self.world.session, self.world.paths(staged.step, files), schema, files.size_bytes)
        wanted = {name.lower() for name in staged.columns}
        kept = (c.name for c in schema if not wanted or c.name.lower() in wanted or c.name in HIDDEN)
        return rows.select(*map(quoted, kept))

    # Rules

    def _checked(
        self, step: PlannedStep, frames: Mapping[str, DataFrame], counts: Mapping[str, int]
    ) -> tuple[tuple[ActivityRun, ...], Files | None]:
        """The activities that this step was the first to compute, with their rows. Refused rows are kept now, as long as
        what they come from is at hand."""
        runs = []
        refusing: list[tuple[str, str, DataFrame]] = []
        expected = 0
        for node in step.nodes:
            does = self.typed.flow.by_name[node].does
            if node in self._counts or not isinstance(does, Activity):
                continue
            run = self._activity(node, does, step.name, counts)
            runs.append(run)
            if not isinstance(does, Check) or not run.rejected:
                continue
            if does.bad == "fail":
                raise FlowFailed(
                    f"flow `{self.plan.flow}`, {node}: {run.rejected} of {run.rows_in} rows: {does.reason}"
                )
            if does.bad == "quarantine":
                refusing.append((node, does.reason, refused(does, self._inputs(node, frames))))
                expected += run.rejected
        files = self.world.quarantine(step.name, refusing) if refusing else None
        if files is not None:
            found = files.rows
            if found != expected and not self.world.cut:
                names = ", ".join(node for node, _, _ in refusing)
                raise FlowFailed(
                    f"flow `{self.plan.flow}`, {names}: {expected} rows were refused, but {found} when they were read again to "
                    "be kept; something before them does not give the same rows twice"
                )
        return tuple(runs), files

    def _activity(self, node: str, does: Activity, step: str, counts: Mapping[str, int]) -> ActivityRun:
        inputs = self.typed.flow.by_name[node].inputs
        if does.looks_up:
            inputs = inputs[:1]
        taken = sum(counts[name] for name in inputs)
        rejected = taken - counts[node] if isinstance(does, Check) and does.bad != "default" else 0
        bad = does.bad if isinstance(does, Check) else None
        return ActivityRun(node, does.kind, step, taken, counts[node], rejected, bad)

    def _timed(
        self, step: PlannedStep, runs: tuple[ActivityRun, ...], counts: Mapping[str, int], cpu_s: float
    ) -> tuple[ActivityRun, ...]:
        """Activities of a step are fused into one loop over the rows. What it took is shared out by their rows and by
        what a row of each is estimated to cost."""
        work = {}
        for node in step.nodes:
            inputs = self.typed.flow.by_name[node].inputs or (node,)
            work[node] = self._costs[node] * sum(counts[name] for name in inputs)
        whole = sum(work.values())
        return tuple(replace(run, cpu_s=cpu_s * work[run.name] / whole if whole else 0.0) for run in runs)

    def _report(self, seconds: float) -> FlowReport:
        by_name = {run.name: run for result in self.results.values() for run in result.activities}
        steps = []
        for planned in self.plan.steps:
            run = self.results[planned.name].run
            reused = planned.name in self._reused
            steps.append(StepRun(**{**run.__dict__, "reused": reused}))
        return FlowReport(
            self.plan.flow,
            self.job,
            seconds,
            tuple(by_name[step.name] for step in self.typed.flow.steps if step.name in by_name),
            tuple(steps),
            self._peaks[0],
            self._peaks[1],
            self.extent,
            self._byte_s / seconds if seconds else 0.0,
            self.point.time_us / 1e6 if self.point is not None else 0.0,
            sum(step.cost_us for step in self.plan.steps) / 1e6,
            self.point.peak_bytes if self.point is not None else self.plan.peak_bytes,
        )
