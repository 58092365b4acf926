"""What a policy sees and what it answers. Plain values: a policy reads no clock and touches nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.model.time import SECOND_US
from penstock.scheduling.ranking import Ranking


@dataclass(frozen=True, slots=True)
class ReadyJob:
    """All ready work of one table, as one job that could start now."""

    table: str
    priority: float
    inherited: float
    release_us: int
    deadline_us: int
    # By how much the edge moves when it is done (the freshness delta).
    gain_us: int
    # Partitions older than the edge that changed, and the mean commit time of their oldest unreflected changes.
    late: int
    late_since_us: int
    history_weight: float
    amount: float
    expected_s: float
    # Upkeep of files: only when nothing else wants a track.
    upkeep: bool = False


@dataclass(frozen=True, slots=True)
class RunningJob:
    table: str
    track: int
    started_us: int
    expected_s: float


Index = Callable[[ReadyJob], tuple[float, float]]
# The index of upkeep: below any other.
LAST = -1e300


class ReadyJobs(Mapping[str, ReadyJob]):
    """The ready jobs by table, ranked by an index that is linear in time: a + b * now. A decision costs O(log n),
    however many tables are ready and whether or not their indices grow while they wait."""

    def __init__(self, index: Index | None = None) -> None:
        self._jobs: dict[str, ReadyJob] = {}
        self._index = index
        self._ranking = Ranking()

    def __getitem__(self, table: str) -> ReadyJob:
        return self._jobs[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: ReadyJob) -> None:
        if self._jobs.get(job.table) == job:
            return
        self._jobs[job.table] = job
        if self._index is not None:
            a, b = (LAST, 0.0) if job.upkeep else self._index(job)
            # Not who came first into this structure, which a replay of the log could not know.
            self._ranking.put(job.table, a, b, (job.release_us, job.table))

    def discard(self, table: str) -> None:
        if self._jobs.pop(table, None) is not None:
            self._ranking.discard(table)

    def ranked(self, now_us: int) -> Iterator[tuple[float, ReadyJob]]:
        """Jobs with their index, best first; ties go to the one that has been ready longer."""
        for value, table in self._ranking.ranked(now_us / SECOND_US):
            yield value, self._jobs[table]


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a policy may know at one instant."""

    now_us: int
    ready: ReadyJobs
    running: Mapping[int, RunningJob]
    free: tuple[int, ...]
    tracks: int
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    table: str
    track: int
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    starts: tuple[Start, ...] = ()
    wake_at_us: int | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)


class UpdatePolicy(Protocol):
    def decide(self, situation: Situation) -> Decision: ...
