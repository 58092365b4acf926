"""Scheduling by an index: the ready job with the largest index goes first. Alone it is a global policy (whenever a track
is free, the first job takes it); a placement says otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration, format_instant
from penstock.scheduling.jobs import NOTHING, Decision, ReadyJob, Situation
from penstock.scheduling.placement.base import Global


class IndexPolicy(ABC):
    """A local order. Subclasses say how a job ranks (a + b * now) and why, nothing else."""

    @abstractmethod
    def index(self, job: ReadyJob) -> tuple[float, float]: ...

    @abstractmethod
    def why(self, job: ReadyJob, value: float) -> str: ...

    # What is needed only by orders that are more than an index.

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        """The ready jobs with their values, first to last."""
        return situation.ready.ranked(situation.now_us, self.busy_since_us(situation))

    def busy_since_us(self, situation: Situation) -> int | None:
        """Since when the tracks have been busy, for `lines`, if the order has them and they depend on that."""
        return None

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        """What to know at the next decision. Asked for before the jobs are ranked."""
        return NOTHING

    def knowing(self, graph: Graph, weights: Mapping[str, float]) -> IndexPolicy:
        """The same order, for these tables with these priorities."""
        return self

    def decide(self, situation: Situation) -> Decision:
        known = self.remember(situation)
        return Decision(Global().place(situation, self.ranked(situation), self.why), None, known)


class Fifo(IndexPolicy):
    """First in, first out: the job whose work has waited longest. The baseline to compare with."""

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return -job.release_us / SECOND_US, 0.0

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has waited longest, since {format_instant(job.release_us)}"


class Edf(IndexPolicy):
    """Earliest deadline first. The deadline of an update is the arrival of its oldest batch plus the period of its table, so
    every batch should be in before the next one comes. It knows no priorities: a baseline (Golab, Johnson, Shkapenyuk 2011,
    Sec. 3.1)."""

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return -job.deadline_us / SECOND_US, 0.0

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has the earliest deadline, {format_instant(job.deadline_us)}"


class EdfP(IndexPolicy):
    """Prioritised EDF (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1): by priority, then by deadline."""

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return job.inherited, 0.0

    def tie(self, job: ReadyJob) -> int:
        return job.deadline_us

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has the highest priority, {job.inherited:g}, and of those the earliest deadline, {format_instant(job.deadline_us)}"


# Any ready job, all with the same chance: the baseline for an order. The generator (splitmix64; Steele, Lea, Flood 2014)
# lives in the policy's memory, so that the same log gives the same choices.

_MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """64 bits that look random and depend on all bits of the number."""
    z = (number + 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


class Random(IndexPolicy):
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return 0.0, 0.0

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        entries = situation.ready.in_order(situation.now_us)
        # First what queries wait for, last the upkeep: only between them is drawn.
        first, last = bisect_left(entries, (0.0,)), bisect_left(entries, (1.0,))
        for entry in entries[:first]:
            yield 0.0, entry[-1]
        # The list as it would be if each one drawn were replaced by the last: only what differs is kept.
        moved: dict[int, int] = {}
        state = self._state(situation)
        for count in range(last - first, 0, -1):
            state = mixed(state)
            place, end = state % count, count - 1
            found = moved.get(place, place)
            moved[place] = moved.get(end, end)
            yield 0.0, entries[first + found][-1]
        for entry in entries[last:]:
            yield 0.0, entry[-1]

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        return {"random": mixed(self._state(situation) ^ 0x5DEECE66D)}

    def _state(self, situation: Situation) -> int:
        return int(situation.memory.get("random", mixed(self.seed)))

    def why(self, job: ReadyJob, value: float) -> str:
        return "was drawn by lot"


class MaxBenefit(IndexPolicy):
    """Max Benefit (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1): the most priority-weighted freshness per second of work.

        benefit = priority * (freshness delta + history_weight * sum over changed old partitions of their age)

    divided by the expected time alpha + beta * amount. The second term is ours: at the leading edge alone a backfill would
    have no benefit and would starve. It grows while the job waits, so the index is linear in time."""

    def index(self, job: ReadyJob) -> tuple[float, float]:
        weight = job.inherited / job.expected_s
        if not job.late:
            return weight * job.gain_us / SECOND_US, 0.0
        history = job.history_weight * job.late
        return (
            weight * (job.gain_us - history * job.late_since_us) / SECOND_US,
            weight * history,
        )

    def why(self, job: ReadyJob, value: float) -> str:
        parts = []
        if job.gain_us:
            parts.append(f"gains {format_duration(job.gain_us)} of freshness")
        if job.late:
            parts.append(f"brings {job.late} changed old partition{'s' if job.late > 1 else ''} up to date")
        what = " and ".join(parts) or "has work"
        return (
            f"{what} in about {job.expected_s:.2f}s at priority {job.inherited:g}: "
            f"benefit {value:.3g} per second, the largest of the ready tables"
        )


class Youngest(MaxBenefit):
    """Max Benefit, where of equal jobs the one released last goes first. Not from the paper.

    Ties are the rule among tables that are alike. Max Benefit gives them to who waits longest; but that one's next batch is
    also the nearest, and if it waits a little more it loads two batches and pays its start-up once. The youngest would have to
    wait longest for that. At full load the difference is large: on the workload of Fig. 6 Random is better than Max Benefit with
    the oldest first, and this is better than Random."""

    def tie(self, job: ReadyJob) -> int:
        return -job.release_us


# Sets are made of so many of the best short jobs, and of so many at once, to keep their number in bounds.
_BRIDGES = 6
_TOGETHER = 3


class Lookahead(MaxBenefit):
    """Max Benefit with lookahead (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1).

    The job J with the largest marginal benefit would keep the track for E. If a better job K is expected before that time
    is over, other ready jobs that bridge the time until then, and K after them, may bring more per second than J:

        B[S] = (sum of benefits in S + benefit of K) / (sum of times in S + time of K)   for r_K <= time of S < E_J

    (line 2a prints E_j for E_i). The paper finds almost no gain, and in a long mild overload it is worse than Max Benefit:
    it is here to be compared with."""

    def __init__(self, graph: Graph | None = None, weights: Mapping[str, float] | None = None) -> None:
        self._graph = graph
        self._weights = weights or {}

    def knowing(self, graph: Graph, weights: Mapping[str, float]) -> Lookahead:
        return Lookahead(graph, weights)

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        jobs = list(situation.ready.ranked(situation.now_us))
        if len(jobs) > 1 and self._graph is not None and not jobs[0][1].upkeep:
            chosen = self.chosen(situation, [entry for entry in jobs if not entry[1].upkeep])
            jobs.insert(0, jobs.pop(chosen))
        return iter(jobs)

    def chosen(self, situation: Situation, jobs: list[tuple[float, ReadyJob]]) -> int:
        """Which of the ready jobs goes first."""
        best, first = jobs[0]
        bridges = [
            (number, benefit, job) for number, (benefit, job) in enumerate(jobs) if job.expected_s < first.expected_s
        ][:_BRIDGES]
        found, value = 0, best
        for in_s, benefit, time_s in self._upcoming(situation, first.expected_s):
            if benefit / time_s <= best:
                continue
            for size in range(1, min(_TOGETHER, len(bridges)) + 1):
                for some in combinations(bridges, size):
                    total_s = sum(job.expected_s for _, _, job in some)
                    if not in_s <= total_s < first.expected_s:
                        continue
                    together = (sum(rate * job.expected_s for _, rate, job in some) + benefit) / (total_s + time_s)
                    if together > value:
                        found, value = some[0][0], together
        return found

    def _upcoming(self, situation: Situation, within_s: float) -> Iterator[tuple[float, float, float]]:
        """Base tables whose next batch is expected within a time: in how many seconds, its benefit, its cost."""
        assert self._graph is not None
        busy = {job.table for job in situation.running.values()}
        outlook = situation.outlook
        for name, table in self._graph.tables.items():
            if not table.is_base or name in situation.ready or name in busy:
                continue
            release = outlook.next_release_us(name)
            if release is None or not situation.now_us < release:
                continue
            in_s = (release - situation.now_us) / SECOND_US
            if in_s <= within_s:
                benefit = self._weights[name] * self._graph.periods_us[name] / SECOND_US
                yield in_s, benefit, outlook.period_cost_s(name)
