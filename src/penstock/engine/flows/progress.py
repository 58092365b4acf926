"""How far running flows are, for those who watch: steps done, and of the steps that run their Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

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
