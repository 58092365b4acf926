"""How far running flows are, for those who watch: steps done, and of the steps that run their Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from pyspark import SparkContext

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
