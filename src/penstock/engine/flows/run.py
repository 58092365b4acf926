"""One run of a flow: the staging plan, walked.

Each step of the plan is one Spark query in a thread and a scheduler pool of its own. What it stages is released when its
last reader is done. If one step fails the others are cancelled, and nothing of the run is used; steps that ended well may
be kept for the next try.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from penstock.engine.flows import history  # noqa: F401  (registers its activities)
from penstock.engine.flows.counting import QueryRecords, cached_plan, cached_rows, mark
from penstock.engine.flows.realise import Inputs, Loaded, realise, refused
from penstock.engine.rows import Staged as Files
from penstock.engine.rows import quoted, read_files
from penstock.errors import PenstockError
from penstock.flows.activities import Activity, Check
from penstock.flows.description import Source, Target, TypedFlow
from penstock.flows.report import ActivityRun, FlowReport, StepRun
from penstock.flows.staging import Place, Staged, StagingPlan
from penstock.flows.staging import Step as PlannedStep
from penstock.flows.walk import Walk

_LEVELS = {Place.MEMORY: StorageLevel.MEMORY_AND_DISK_DESER, Place.DISK: StorageLevel.DISK_ONLY}


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
    files: Files | None = None
    refused: Files | None = None
    memory_bytes: int = 0
    disk_bytes: int = 0


@dataclass
class World:
    """Everything that a run needs from outside."""

    session: SparkSession
    sources: Mapping[str, DataFrame]
    loaded: Loaded
    write: Write
    quarantine: Quarantine
    paths: Callable[[str, Files], list[str]]
    # Called between any two things that a run does, so that tests can stop there.
    step: Callable[[str], None] = lambda _name: None
    progress: Callable[[int, int], None] = lambda _done, _of: None


@dataclass
class FlowRun:
    typed: TypedFlow
    plan: StagingPlan
    job: str
    world: World
    slots: int = 2
    # Of steps that ended well, perhaps in an earlier try.
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {step.name: number for number, step in enumerate(self.typed.flow.steps, 1)}
        self._records = QueryRecords(self.world.session)
        self._counts: dict[str, int] = {}
        self._frames: dict[str, DataFrame] = {}
        self._peaks = [0, 0]
        self._reused = frozenset(self.results)

    def run(self) -> FlowReport:
        began = perf_counter()
        walk = Walk(self.plan, slots=self.slots)
        ended: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        running: dict[str, InheritableThread] = {}
        failed: BaseException | None = None
        while not walk.done or running:
            for step in walk.start() if failed is None else ():
                running[step.name] = self._thread(step, ended, len(running))
                running[step.name].start()
            name, error = ended.get()
            running.pop(name).join()
            if error is not None:
                if failed is None:
                    failed = error
                    self._cancel(running)
            else:
                self._finished(name, walk)
            if failed is not None and not running:
                raise failed
        return self._report(perf_counter() - began)

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
        held = [each for each in self.results.values() if each.kept is not None]
        self._peaks[0] = max(self._peaks[0], sum(each.memory_bytes for each in held))
        self._peaks[1] = max(self._peaks[1], sum(each.disk_bytes for each in held))
        for staged in walk.finish(name):
            self._frames.pop(staged.node, None)
            made_by = self.results[staged.step]
            if made_by.kept is not None:
                made_by.kept.unpersist()
                made_by.kept = None
        self.world.progress(len(walk.finished), len(self.plan.steps))

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
            result.activities, result.refused = self._checked(step, frames, known)
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
        )
        return result

    def _frame(self, node: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        step = self.typed.flow.by_name[node]
        if isinstance(step.does, Source):
            rows = self.world.sources[step.does.table]
        elif isinstance(step.does, Target):
            return frames[step.inputs[0]]
        else:
            rows = realise(step.does, self._inputs(node, frames))
        return mark(rows, self._numbers[node])

    def _inputs(self, node: str, frames: Mapping[str, DataFrame]) -> Inputs:
        step = self.typed.flow.by_name[node]
        return Inputs(tuple(frames[name] for name in step.inputs), self.world.loaded)

    def _kept(self, staged: Staged, rows: DataFrame) -> Result:
        wanted = {name.lower() for name in staged.columns}
        if wanted:
            rows = rows.select(*(quoted(name) for name in rows.columns if name.lower() in wanted))
        kept = rows.persist(_LEVELS[staged.place])
        try:
            kept.count()  # makes all of it
        except BaseException:
            kept.unpersist()
            raise
        memory, disk = self._stored(kept)
        return Result(StepRun(staged.step, 0, 0, 0), {}, kept=kept, memory_bytes=memory, disk_bytes=disk)

    def _stored(self, kept: DataFrame) -> tuple[int, int]:
        """What Spark really holds of a persisted frame."""
        builder = cached_plan(kept)
        if builder is None:
            return 0, 0
        number = builder.cachedColumnBuffers().id()
        for info in self.world.session.sparkContext._jsc.sc().getRDDStorageInfo():
            if info.id() == number:
                return int(info.memSize()), int(info.diskSize())
        return 0, 0

    def _read_back(self, staged: Staged, files: Files) -> DataFrame:
        rows = read_files(self.world.session, self.world.paths(staged.step, files), files.schema, files.size_bytes)
        wanted = {name.lower() for name in staged.columns}
        return rows.select(*(quoted(c.name) for c in files.schema if not wanted or c.name.lower() in wanted))

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
            if found != expected:
                names = ", ".join(node for node, _, _ in refusing)
                raise FlowFailed(
                    f"flow `{self.plan.flow}`, {names}: {expected} rows were refused, but {found} when they were read again to "
                    "be kept; something before them does not give the same rows twice"
                )
        return tuple(runs), files

    def _activity(self, node: str, does: Activity, step: str, counts: Mapping[str, int]) -> ActivityRun:
        inputs = self.typed.flow.by_name[node].inputs
        if isinstance(does, Check):
            inputs = inputs[:1]  # what a reference holds does not come in
        taken = sum(counts[name] for name in inputs)
        rejected = taken - counts[node] if isinstance(does, Check) and does.bad != "default" else 0
        bad = does.bad if isinstance(does, Check) else None
        return ActivityRun(node, does.kind, step, taken, counts[node], rejected, bad)

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
            *self._peaks,
        )
