"""How far running flows are, for those who watch: steps done, and of the steps that run their Spark tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.spark.session import SparkProblem

if TYPE_CHECKING:
    from penstock.engine.flows.run import FlowRun


@dataclass(frozen=True)
class StepProgress:
    name: str
    seconds: float
    tasks_done: int
    tasks: int


@dataclass(frozen=True)
class FlowProgress:
    flow: str
    job: str
    done: int
    steps: int
    seconds: float
    running: tuple[StepProgress, ...]
    held_bytes: int  # staged in memory

    @property
    def share(self) -> float:
        """Of the steps, those that run counted by their tasks."""
        begun = sum(step.tasks_done / step.tasks for step in self.running if step.tasks)
        return (self.done + begun) / self.steps if self.steps else 1.0


@dataclass
class Watched:
    """The flows that run now, on all tracks."""

    _runs: dict[str, FlowRun] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def watching(self, run: FlowRun) -> Iterator[None]:
        with self._lock:
            self._runs[run.job] = run
        try:
            yield
        finally:
            with self._lock:
                self._runs.pop(run.job, None)

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._runs)

    def progress(self) -> list[FlowProgress]:
        with self._lock:
            runs = list(self._runs.values())
        return [run.progress() for run in runs]


def tasks_of(context: SparkContext, group: str) -> tuple[int, int]:
    """Of the Spark jobs of a group: tasks done, and all."""
    tracker = context.statusTracker()
    done = known = 0
    for number in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(number)
        for stage in job.stageIds if job is not None else ():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done, known = done + info.numCompletedTasks, known + info.numTasks
    return done, known


# Spark's storage memory, measured: what all executors may use, and what they use.


def storage_bytes(session: SparkSession) -> tuple[int, int]:
    """(at the most, in use)"""
    status: Any = session.sparkContext._jsc.sc().getExecutorMemoryStatus().values().iterator()
    most = left = 0
    while status.hasNext():
        pair = status.next()
        most, left = most + pair._1(), left + pair._2()
    return most, most - left


def rows_held(session: SparkSession, rdds: set[int]) -> tuple[int, int]:
    """(in memory, on disk): what Spark holds just now of some persisted rows."""
    memory = disk = 0
    for info in session.sparkContext._jsc.sc().getRDDStorageInfo() if rdds else ():
        if info.id() in rdds:
            memory, disk = memory + int(info.memSize()), disk + int(info.diskSize())
    return memory, disk


class StorageSampler:
    """The peak of storage memory while something runs, looked at every so often: `with StorageSampler(session) as peak`."""

    def __init__(self, session: SparkSession, every_s: float = 0.05) -> None:
        self._session = session
        self._every_s = every_s
        self._stop = Event()
        self._thread = Thread(target=self._sample, name="penstock-storage", daemon=True)
        self.before_bytes = self.peak_bytes = 0

    def __enter__(self) -> StorageSampler:
        self.before_bytes = self.peak_bytes = storage_bytes(self._session)[1]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self._every_s):
            self.peak_bytes = max(self.peak_bytes, storage_bytes(self._session)[1])


# Rows counted on their way through Spark, without a second pass.
#
# A mark is a filter that lets every row pass and that the optimizer cannot remove. Spark counts the rows that leave any
# filter, in generated code: over 8 million rows four marks cost nothing that can be measured, where four Observations,
# which are interpreted row by row, cost 3.3 s of CPU. The number in the mark says which one it is; the counts are read from
# Spark's own record of the query.

_RETAINED = "spark.sql.ui.retainedExecutions"
# Of so many queries Spark must keep records: several flows may run at once.
_FEWEST_RECORDS = 100
_MARK = re.compile(r"monotonically_increasing_id\(\) >= -(\d+)\)")


def mark(rows: DataFrame, number: int) -> DataFrame:
    """The same rows, counted. Numbers begin with 1, and are the same every time: else Spark compiles the code anew."""
    return rows.where(f"monotonically_increasing_id() >= -{number}L")


@dataclass(frozen=True)
class Measured:
    """What Spark noted of one query."""

    rows: dict[int, int]
    cpu_s: float
    shuffle_bytes: int


def cached_plan(rows: DataFrame) -> Any | None:
    """Spark's builder of what it keeps of a persisted frame."""
    cached = rows.sparkSession._jsparkSession.sharedState().cacheManager().lookupCachedData(rows._jdf)
    return cached.get().cachedRepresentation().cacheBuilder() if cached.isDefined() else None


def cached_rows(rows: DataFrame) -> dict[int, int]:
    """The counts of a persisted frame. They stand in its own plan, whoever was the first to compute it: Spark keeps equal
    plans once."""
    builder = cached_plan(rows)
    found: dict[int, int] = {}
    waiting = [builder.cachedPlan()] if builder is not None else []
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "Filter" and (match := _MARK.search(node.condition().toString())):
            found[int(match[1])] = int(node.metrics().get("numOutputRows").get().value())
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return found


class QueryRecords:
    """Spark's record of queries, by the description that the thread had that ran them."""

    def __init__(self, session: SparkSession) -> None:
        self._context: Any = session.sparkContext._jsc.sc()
        self._store: Any = session._jsparkSession.sharedState().statusStore()
        if (kept := int(str(session.conf.get(_RETAINED, "1000")))) < _FEWEST_RECORDS:
            raise SparkProblem(
                f"flows count their rows by Spark's records of queries, but this Spark keeps {kept} of them; start it with "
                f"{_RETAINED} of at least {_FEWEST_RECORDS}, or let Penstock start it"
            )

    def newest(self) -> int:
        """The number of the last query so far."""
        count = self._store.executionsCount()
        last = self._store.executionsList(max(0, count - 1), 1)
        return last.head().executionId() if last.size() else -1

    def measured(self, description: str, after: int) -> Measured:
        """What the queries with a description, begun after another one, did."""
        self._context.listenerBus().waitUntilEmpty()
        rows: dict[int, int] = {}
        cpu_ns = shuffle = 0
        for query in self._queries(description, after):
            for number, count in self._marks(query.executionId()):
                # What is evaluated twice within one query passes its mark twice, each time in full.
                rows[number] = max(count, rows.get(number, 0))
            stages = query.stages().iterator()
            while stages.hasNext():
                found = self._stage(stages.next())
                cpu_ns, shuffle = cpu_ns + found[0], shuffle + found[1]
        return Measured(rows, cpu_ns / 1e9, shuffle)

    def _queries(self, description: str, after: int) -> list[Any]:
        """The newest first: each is a call into the JVM."""
        count = self._store.executionsCount()
        found = []
        last = self._store.executionsList(max(0, count - 500), 500)
        for place in range(last.size() - 1, -1, -1):
            query = last.apply(place)
            if query.executionId() <= after:
                break
            if query.description() == description:
                found.append(query)
        return found

    def _marks(self, execution: int) -> list[tuple[int, int]]:
        nodes = self._store.planGraph(execution).allNodes()
        values = self._store.executionMetrics(execution)
        found = []
        for place in range(nodes.size()):
            node = nodes.apply(place)
            match = _MARK.search(node.desc()) if node.name() == "Filter" else None
            if match is None or node.metrics().isEmpty():
                continue
            metric = node.metrics().head()
            value = values.get(metric.accumulatorId())
            text = value.get() if value.isDefined() else "0"
            found.append((int(match[1]), int(re.sub(r"\D", "", text) or 0)))
        return found

    def _stage(self, number: int) -> tuple[int, int]:
        try:
            stage = self._context.statusStore().lastStageAttempt(number)
        except Exception:
            return 0, 0
        return stage.executorCpuTime(), stage.shuffleWriteBytes()
