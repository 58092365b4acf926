"""What a policy sees and what it answers. Plain values: a policy reads no clock and touches nothing.

They are named tuples: immutable as frozen dataclasses are, and four times cheaper to make, which a simulator of a
million events notices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, islice
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from penstock.errors import PenstockError
from penstock.model.time import SECOND_US
from penstock.scheduling.ranking import Ranking

NOTHING: Mapping[str, Any] = MappingProxyType({})


class PolicyError(PenstockError):
    """A policy did something impossible."""


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
    # The part of the expected time that every update takes, however little there is to load (alpha).
    start_up_s: float = 0.0


class RunningJob(NamedTuple):
    table: str
    track: int
    started_us: int
    expected_s: float


class FinishedJob(NamedTuple):
    """How long an update took against what was expected when it started. One that failed would have taken at least so
    long, or failed for reasons of its own: it says less."""

    table: str
    track: int
    finished_us: int
    expected_s: float
    took_s: float
    failed: bool = False


class Outlook(Protocol):
    """What is known of all tables, ready or not."""

    @property
    def version(self) -> int:
        """Another number whenever a cost changed so much that plans made from it should be made again."""

    def period_cost_s(self, table: str) -> float:
        """E(P): how long an update with the data of one period is expected to take."""

    def changed_since(self, version: int) -> Iterable[str] | None:
        """The tables whose costs changed so much since a version; None if that cannot be told."""

    def next_release_us(self, table: str) -> int | None:
        """When the next batch of a base table is expected; None if nothing is known."""

    @property
    def longest_version(self) -> int:
        """Another number whenever what is known of longest times changed."""

    def longest_s(self, table: str) -> float | None:
        """What an update with the data of one period takes at most; None if that is not known."""

    def start_up_s(self, table: str) -> float | None:
        """What an update takes however little it has to do; None if that is not known."""


class UnknownOutlook:
    """The outlook where nothing is known. Another one may derive from it, and say what it knows."""

    version = 0
    longest_version = 0

    def period_cost_s(self, table: str) -> float:
        return 1.0

    def changed_since(self, version: int) -> Iterable[str] | None:
        return None

    def next_release_us(self, table: str) -> int | None:
        return None

    def longest_s(self, table: str) -> float | None:
        return None

    def start_up_s(self, table: str) -> float | None:
        return None


Index = Callable[[ReadyJob], tuple[float, float]]
Tie = Callable[[ReadyJob], Any]
# From when on the index of a job is which line: (us, a, b), earliest first; the first one holds before its time, too.
Bends = Sequence[tuple[int, float, float]]
Lines = Callable[[ReadyJob, int | None], Bends]
# The index of upkeep: below any other.
LAST = -1e300
# That of a job for which a query waits: above any other; among themselves the earliest deadline first.
FIRST = 1e300


class ReadyJobs(dict[str, ReadyJob]):
    """The ready jobs by table, ranked by an index that is linear in time: a + b * now. A decision costs O(log n),
    however many tables are ready and whether or not their indices grow while they wait. Ties go to the smallest `tie`,
    if the policy says one, then to the one that has been ready longer.

    An index may bend: `lines` says for a job from when on it is which line. They may depend on since when the tracks have
    been busy: whoever asks for the order says so. Asking changes nothing but what is kept to answer faster next time.

    A dictionary, because it is read far more often than it changes; it changes by `put` and `discard` only."""

    def __init__(self, index: Index | None = None, tie: Tie | None = None, lines: Lines | None = None) -> None:
        super().__init__()
        self._index = index
        self._tie = tie
        self._lines = lines
        self._busy_since_us: int | None = None
        # The tables that would get fresher, where somebody wants to know how many they are.
        self.fresher: set[str] = set()
        self._ranking: Ranking[ReadyJob] = Ranking()
        # Jobs that came or changed since the ranking was last asked for: many are gone again by then.
        self._unranked: dict[str, ReadyJob] = {}
        # Indices that are still to bend, soonest first; some are of jobs that are no more.
        self._bends: list[tuple[int, int, ReadyJob, Bends, int]] = []
        self._sequence = count()
        # If a placement asks for groups of tables, there is a ranking for each instead; and where each table is ranked.
        self._group_of: Mapping[str, Hashable] | None = None
        self._groups: dict[Hashable, Ranking[ReadyJob]] = {}
        self._grouped: dict[str, Hashable] = {}

    def put(self, job: ReadyJob) -> None:
        table = job.table
        if self.get(table) != job:
            self[table] = self._unranked[table] = job
            if self._lines is not None:
                if job.gain_us and not job.upkeep:
                    self.fresher.add(table)
                else:
                    self.fresher.discard(table)

    def discard(self, table: str) -> ReadyJob | None:
        """Which it was, if it was there."""
        job = self.pop(table, None)
        if job is not None:
            if table in self._unranked:
                del self._unranked[table]
            if self.fresher:
                self.fresher.discard(table)
            if self._group_of is None:
                self._ranking.discard(table)
            elif table in self._grouped:
                self._groups[self._grouped.pop(table)].discard(table)
        return job

    def best(self, now_us: int, busy_since_us: int | None = None) -> tuple[float, ReadyJob] | None:
        """The first of `ranked`, if there is one."""
        self._know(busy_since_us)
        if not self:
            return None
        if len(self) == 1:
            (job,) = self.values()
            a, b = self._line(job, now_us)
            return a + b * (now_us / SECOND_US), job
        self._catch_up(now_us)
        if self._group_of is not None:
            self._ungroup()
        return self._ranking.best(now_us / SECOND_US)

    def ranked(self, now_us: int, busy_since_us: int | None = None) -> Iterator[tuple[float, ReadyJob]]:
        """Jobs with their index, best first; ties go to the one that has been ready longer. `busy_since_us` is since when
        there has always been more to do than there were tracks; None if it is not so now."""
        self._know(busy_since_us)
        if len(self) == 1:
            (job,) = self.values()
            a, b = self._line(job, now_us)
            return iter(((a + b * (now_us / SECOND_US), job),))
        self._catch_up(now_us)
        self._ungroup()
        return self._ranking.ranked(now_us / SECOND_US)

    def among(
        self,
        now_us: int,
        group_of: Mapping[str, Hashable],
        may_start: Callable[[Any], bool],
        busy_since_us: int | None = None,
    ) -> Iterator[tuple[float, ReadyJob]]:
        """The same, of those groups of tables only that may start something when their turn comes; a group that may not
        is left out from then on. The others are not looked at, however many they are. Tables of which nothing is known
        are of the group None. What `group_of` says of a table must not change."""
        self._know(busy_since_us)
        self._catch_up(now_us)
        if group_of is not self._group_of:
            self._regroup(group_of)
        now_s = now_us / SECOND_US
        heads: list[tuple[float, Any, str, ReadyJob, Hashable, Iterator[Any]]] = []
        for group, ranking in self._groups.items():
            if may_start(group):
                rest = ranking.entries(now_s)
                heads += [(*entry, group, rest) for entry in islice(rest, 1)]
        heapify(heads)
        while heads:
            negated, _, _, job, group, rest = heads[0]
            if not may_start(group):
                heappop(heads)
                continue
            yield -negated, job
            entry = next(rest, None)
            if entry is None:
                heappop(heads)
            else:
                heapreplace(heads, (*entry, group, rest))

    def in_order(self, now_us: int, busy_since_us: int | None = None) -> Sequence[tuple[Any, ...]]:
        """Entries of which the first value is the negated index and the last the job, where no index changes."""
        self._know(busy_since_us)
        self._catch_up(now_us)
        self._ungroup()
        return self._ranking.in_order()

    def _know(self, busy_since_us: int | None) -> None:
        """Before an order is made. What makes its table no fresher does not depend on since when the tracks are busy."""
        if self._index is None and self._lines is None:
            raise PolicyError(
                "the policy has no index(job) and no lines(job, busy_since_us), so the ready jobs have no order: "
                "give it one, or go through situation.ready.values()"
            )
        if busy_since_us != self._busy_since_us:
            self._busy_since_us = busy_since_us
            self._bends.clear()
            self._unranked.update((table, self[table]) for table in self.fresher)

    def _regroup(self, group_of: Mapping[str, Hashable]) -> None:
        """Only those move whose group is another than before."""
        if self._group_of is None:
            moved, self._ranking = list(self._ranking), Ranking()
        else:
            others = [(table, group) for table, group in self._grouped.items() if group_of.get(table) != group]
            found = [self._groups[group].discard(table) for table, group in others]
            moved = [entry for entry in found if entry is not None]
        self._group_of = group_of
        for negated, tie, table, b, job in moved:
            self._put(table, -negated, b, tie, job)
        self._groups = {group: ranking for group, ranking in self._groups.items() if len(ranking)}

    def _ungroup(self) -> None:
        if self._group_of is not None:
            self._group_of, self._grouped = None, {}
            for ranking in self._groups.values():
                for negated, tie, table, b, job in ranking:
                    self._put(table, -negated, b, tie, job)
            self._groups = {}

    def _catch_up(self, now_us: int) -> None:
        if self._unranked:
            plain = self._tie is None and self._lines is None and self._group_of is None
            put, index = self._ranking.put, self._index
            for job in self._unranked.values():
                if plain and not job.upkeep and job.awaited_us is None:
                    # What follows, for most jobs of most policies.
                    a, b = index(job)  # type: ignore[misc]
                    if a + b != a + b:
                        _no_number(job, a, b)
                    put(job.table, a, b, job.release_us, job)
                else:
                    self._rank(job, *self._line(job, now_us, remember=True))
            self._unranked.clear()
        while self._bends and self._bends[0][0] <= now_us:
            _, _, job, lines, number = heappop(self._bends)
            if self.get(job.table) is job:
                self._rank(job, *self._now(job, lines, number, now_us, True))

    def _rank(self, job: ReadyJob, a: float, b: float) -> None:
        # Not who came first into this structure, which a replay of the log could not know.
        tie = job.release_us if self._tie is None else (self._tie(job), job.release_us)
        if job.awaited_us is not None:
            tie = (job.awaited_us, job.release_us)
        self._put(job.table, a, b, tie, job)

    def _put(self, table: str, a: float, b: float, tie: Any, job: ReadyJob) -> None:
        ranking = self._ranking
        if self._group_of is not None:
            group = self._grouped[table] = self._group_of.get(table)
            if group not in self._groups:
                self._groups[group] = Ranking()
            ranking = self._groups[group]
        ranking.put(table, a, b, tie, job)

    def _line(self, job: ReadyJob, now_us: int, remember: bool = False) -> tuple[float, float]:
        if job.upkeep:
            return LAST, 0.0
        if job.awaited_us is not None:
            return FIRST, 0.0
        if self._lines is not None:
            a, b = self._now(job, self._lines(job, self._busy_since_us), 0, now_us, remember)
        else:
            assert self._index is not None
            a, b = self._index(job)
        if a + b != a + b:
            _no_number(job, a, b)
        return a, b

    def _now(self, job: ReadyJob, lines: Bends, number: int, now_us: int, remember: bool) -> tuple[float, float]:
        """Which of the lines it is now, from some number on."""
        while number + 1 < len(lines) and lines[number + 1][0] <= now_us:
            number += 1
        if remember and number + 1 < len(lines):
            heappush(self._bends, (lines[number + 1][0], next(self._sequence), job, lines, number + 1))
        return lines[number][1:]


def _no_number(job: ReadyJob, a: float, b: float) -> NoReturn:
    """It would rank anyhow, and so would all others."""
    raise PolicyError(f"the policy's index of {job.table} is {a}, {b}; expected two numbers (a, b), for a + b * now")


class ByIndex:
    """The ready jobs of a moment by index: what a placement that works with groups is given to choose from."""

    __slots__ = ("busy_since_us", "now_us", "ready")

    def __init__(self, ready: ReadyJobs, now_us: int, busy_since_us: int | None = None) -> None:
        self.ready, self.now_us, self.busy_since_us = ready, now_us, busy_since_us

    def __iter__(self) -> Iterator[tuple[float, ReadyJob]]:
        return self.ready.ranked(self.now_us, self.busy_since_us)


class Situation(NamedTuple):
    """Everything a policy may know at one instant."""

    now_us: int
    ready: ReadyJobs
    running: Mapping[int, RunningJob]
    free: tuple[int, ...]
    tracks: int
    memory: Mapping[str, Any] = NOTHING
    # Jobs that ended since the last decision that started something, in order; those that failed, too.
    finished: tuple[FinishedJob, ...] = ()
    outlook: Outlook = UnknownOutlook()
    # Since when jobs could start that something had held up before: a pause after a failure, a source that was about to change.
    able_us: Mapping[str, int] = NOTHING


class Start(NamedTuple):
    table: str
    track: int
    # A sentence for `penstock explain`, or what makes it when someone asks.
    because: str | Callable[[], str] = ""
    # The most that the job takes, at least 1: files of a base table, periods of data of a derived one. All if None.
    take: int | None = None

    @property
    def why(self) -> str:
        return self.because if isinstance(self.because, str) else self.because()


class Decision(NamedTuple):
    starts: tuple[Start, ...] = ()
    wake_at_us: int | None = None
    memory: Mapping[str, Any] = NOTHING


class Fact(NamedTuple):
    """Something that happened to a table: it is so far behind its trailing edge now, a job of it started or ended, an outage
    that is over owes it a recovery."""

    at_us: int
    table: str
    what: Literal["lags", "starts", "ends", "owed"]
    lag_us: int
    # Of a job that starts: since when it could, if something had held it up before.
    able_us: int | None = None
