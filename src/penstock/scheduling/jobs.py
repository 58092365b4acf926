"""What a policy sees and what it answers. Plain values: a policy reads no clock and touches nothing.

They are named tuples: immutable as frozen dataclasses are, and four times cheaper to make, which a simulator of a
million events notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from penstock.model.time import SECOND_US
from penstock.scheduling.ranking import Ranking

NOTHING: Mapping[str, Any] = MappingProxyType({})


class ReadyJob(NamedTuple):
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
    # Until then queries wait for it: whatever the order of the others, it comes before them.
    awaited_us: int | None = None


class RunningJob(NamedTuple):
    table: str
    track: int
    started_us: int
    expected_s: float


class FinishedJob(NamedTuple):
    """How long an update took against what was expected when it started."""

    table: str
    track: int
    finished_us: int
    expected_s: float
    took_s: float


class Outlook(Protocol):
    """What is known of all tables, ready or not."""

    @property
    def version(self) -> int:
        """Another number whenever a cost changed so much that plans made from it should be made again."""

    def period_cost_s(self, table: str) -> float:
        """E(P): how long an update with the data of one period is expected to take."""

    def next_release_us(self, table: str) -> int | None:
        """When the next batch of a base table is expected; None if nothing is known."""


class Unknown:
    """The outlook where there is none."""

    version = 0

    def period_cost_s(self, table: str) -> float:
        return 1.0

    def next_release_us(self, table: str) -> int | None:
        return None


Index = Callable[[ReadyJob], tuple[float, float]]
Tie = Callable[[ReadyJob], Any]
# The index of upkeep: below any other.
LAST = -1e300
# That of a job for which a query waits: above any other; among themselves the earliest deadline first.
FIRST = 1e300


class ReadyJobs(dict[str, ReadyJob]):
    """The ready jobs by table, ranked by an index that is linear in time: a + b * now. A decision costs O(log n),
    however many tables are ready and whether or not their indices grow while they wait. Ties go to the smallest `tie`,
    if the policy says one, then to the one that has been ready longer.

    A dictionary, because it is read far more often than it changes; it changes by `put` and `discard` only."""

    def __init__(self, index: Index | None = None, tie: Tie | None = None) -> None:
        super().__init__()
        self._index = index
        self._tie = tie
        self._ranking: Ranking[ReadyJob] = Ranking()
        # Jobs that came or changed since the ranking was last asked for: many are gone again by then.
        self._unranked: dict[str, ReadyJob] = {}

    def put(self, job: ReadyJob) -> None:
        table = job.table
        if self.get(table) != job:
            self[table] = self._unranked[table] = job

    def discard(self, table: str) -> None:
        if self.pop(table, None) is not None:
            self._unranked.pop(table, None)
            self._ranking.discard(table)

    def ranked(self, now_us: int) -> Iterator[tuple[float, ReadyJob]]:
        """Jobs with their index, best first; ties go to the one that has been ready longer."""
        index = self._index
        if index is None:
            return iter(())
        now_s = now_us / SECOND_US
        if len(self) == 1:
            (job,) = self.values()
            a, b = (LAST, 0.0) if job.upkeep else index(job)
            return iter(((a + b * now_s, job),))
        if self._unranked:
            for table, job in self._unranked.items():
                if job.awaited_us is not None:
                    self._ranking.put(table, FIRST, 0.0, (job.awaited_us, job.release_us), job)
                    continue
                a, b = (LAST, 0.0) if job.upkeep else index(job)
                # Not who came first into this structure, which a replay of the log could not know.
                tie = job.release_us if self._tie is None else (self._tie(job), job.release_us)
                self._ranking.put(table, a, b, tie, job)
            self._unranked.clear()
        return self._ranking.ranked(now_s)


class Situation(NamedTuple):
    """Everything a policy may know at one instant."""

    now_us: int
    ready: ReadyJobs
    running: Mapping[int, RunningJob]
    free: tuple[int, ...]
    tracks: int
    memory: Mapping[str, Any] = NOTHING
    # Jobs that ended since the last decision, in order.
    finished: tuple[FinishedJob, ...] = ()
    outlook: Outlook = Unknown()


class Start(NamedTuple):
    table: str
    track: int
    # A sentence for `penstock explain`, or what makes it when someone asks.
    because: str | Callable[[], str] = ""
    # The most that the job takes: files of a base table, periods of data of a derived one. All there is if None.
    take: int | None = None

    @property
    def why(self) -> str:
        return self.because if isinstance(self.because, str) else self.because()


class Decision(NamedTuple):
    starts: tuple[Start, ...] = ()
    wake_at_us: int | None = None
    memory: Mapping[str, Any] = NOTHING


class Fact(NamedTuple):
    """Something that happened to a table: it is so far behind its trailing edge now, a job of it started or ended."""

    at_us: int
    table: str
    what: Literal["lags", "starts", "ends"]
    lag_us: int


class UpdatePolicy(Protocol):
    """A policy may also have

    index(job) -> (a, b)       so that `situation.ready.ranked(now)` yields jobs by the largest a + b * now
    tie(job)                   what decides between equal indices, before how long a job waits
    for_graph(graph) -> policy the same policy, knowing the tables; asked for whenever they are declared
    chop: float | None         the most periods of data that one job may take
    weights                    the priority that the job of each table comes with as `inherited`, by table; without it
                               the largest of its own and those of all that follow from it
    begin(tracks, outlook) and follow(memory, fact, outlook)
                               a memory that follows every fact in the order of the log, decision or not, and which
                               decisions only read: `begin` makes it, `follow` changes it
    """

    def decide(self, situation: Situation) -> Decision: ...
