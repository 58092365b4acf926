"""Proportional (Golab, Johnson, Shkapenyuk 2011, Sec. 3.2.3): similar jobs form clusters, and each cluster owns tracks in
proportion to its load. The cluster of the longest jobs starts at track 0. Jobs may use idle tracks of clusters with
longer jobs, never of those with shorter ones.

k and `by`     a job joins the cluster of the next shorter ones if its execution time E (or its period P) is less than
               k times their shortest period. The text prints E; its example with k=2 needs P.
basic | all    tracks are shared out as far as the load needs them (the rest is free for all), or all of them
aggressive     a job takes an idle track of longer jobs even if one of these waits behind it in the list
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import ceil, floor, log2
from typing import Any, Literal

from penstock.model.graph import Graph
from penstock.scheduling.jobs import NOTHING, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Recurring, Why, among, recurring, unless_equal, upkeep

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Ranges:
    """Of each table its cluster, shortest jobs first; of each cluster the part of the tracks that it owns."""

    cluster: Mapping[str, int]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def tracks(self, cluster: int) -> range:
        """Those of which the cluster owns at least a part."""
        if cluster >= len(self.low):
            return range(0)
        return range(floor(self.low[cluster] + _ROUNDING), ceil(self.high[cluster] - _ROUNDING))

    @property
    def used(self) -> int:
        return ceil(max(self.high, default=0.0) - _ROUNDING)


def clusters(jobs: Sequence[Recurring], k: float, by: Literal["E", "P"] = "E") -> list[list[Recurring]]:
    found: list[list[Recurring]] = []
    shortest = 0.0
    for job in sorted(jobs, key=lambda job: (job.cost_s, job.table)):
        if found and (job.cost_s if by == "E" else job.period_s) < k * shortest:
            found[-1].append(job)
            shortest = min(shortest, job.period_s)
        else:
            found.append([job])
            shortest = job.period_s
    return found


def share_out(groups: Sequence[Sequence[Recurring]], tracks: int, *, all_tracks: bool) -> Ranges:
    loads = [sum(job.utilisation for job in group) for group in groups]
    total = sum(loads)
    whole = tracks if all_tracks or total > tracks else max(1, ceil(total - _ROUNDING))
    factor = whole / total if total else 0.0
    low, high = [0.0] * len(groups), [0.0] * len(groups)
    upto = 0.0
    for number in reversed(range(len(groups))):
        low[number] = upto
        upto += factor * loads[number]
        high[number] = upto
    return Ranges({job.table: number for number, group in enumerate(groups) for job in group}, tuple(low), tuple(high))


class Proportional(Placement):
    grouped = True

    def __init__(
        self,
        *,
        all_tracks: bool = False,
        aggressive: bool = False,
        k: float = 1.0,
        by: Literal["E", "P"] = "E",
        graph: Graph | None = None,
    ) -> None:
        self.all_tracks, self.aggressive, self.k, self.by = all_tracks, aggressive, k, by
        self._graph = graph
        self._planned: tuple[int, int, Ranges] | None = None

    def knowing(self, graph: Graph) -> Proportional:
        return Proportional(all_tracks=self.all_tracks, aggressive=self.aggressive, k=self.k, by=self.by, graph=graph)

    def ranges(self, situation: Situation) -> Ranges:
        version, tracks = situation.outlook.version, situation.tracks
        if self._planned is None or self._planned[:2] != (version, tracks):
            jobs = recurring(self._graph, situation.outlook) if self._graph is not None else []
            made = share_out(clusters(jobs, self.k, self.by), tracks, all_tracks=self.all_tracks)
            cluster = unless_equal(made.cluster, self._planned[2].cluster if self._planned else None)
            self._planned = (version, tracks, replace(made, cluster=cluster))
        return self._planned[2]

    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        ranges = self.ranges(situation)
        free = list(situation.free)
        starts: list[Start] = []
        # Those that wait, by cluster, as far as the list has not come to them.
        later: Counter[int] = Counter()
        if not self.aggressive:
            later.update(ranges.cluster.get(job.table, 0) for job in situation.ready.values() if not job.upkeep)

        def may_start(cluster: int | None) -> bool:
            return bool(free) and self._could(ranges, cluster or 0, free)

        for value, job in among(situation, ranked, ranges.cluster, may_start):
            if job.upkeep:
                return tuple(starts) if starts else upkeep(situation, job, free)
            cluster = ranges.cluster.get(job.table, 0)
            later[cluster] -= 1
            track = self._track(ranges, cluster, free, later)
            if track is None:
                continue
            free.remove(track)
            starts.append(
                Start(job.table, track, partial(_said, why, job, value, cluster, track in ranges.tracks(cluster)))
            )
        return tuple(starts)

    def _could(self, ranges: Ranges, cluster: int, free: list[int]) -> bool:
        """Whether any job of the cluster, now or further down the list, could get one of the free tracks."""
        own = ranges.tracks(cluster)
        return free[-1] >= ranges.used or free[0] < own.start or any(track in own for track in free)

    def _track(self, ranges: Ranges, cluster: int, free: list[int], later: Mapping[int, int]) -> int | None:
        own = ranges.tracks(cluster)
        for track in free:
            if track in own and track > own.start:
                return track
        if own.start in free and len(own):
            return own.start
        if free[-1] >= ranges.used:
            return next(r for r in free if r >= ranges.used)
        for track in free:
            if track >= own.start:
                break
            # A cluster that has a free track of its own is never left out of the list, so these are counted right.
            if self.aggressive or not any(
                later.get(other, 0) > 0 and track in ranges.tracks(other) for other in range(len(ranges.low))
            ):
                return track
        return None


def _said(why: Why, job: Any, value: float, cluster: int, own: bool) -> str:
    where = "on a track of its own cluster" if own else "on a track that longer jobs leave idle"
    return f"{why(job, value)}; {where} ({cluster})"


# The clusters of Proportional and what they need, kept up while costs are learned: with ten thousand tables one of them gets
# another cost all the time, and rarely another cluster.

# Loads are whole numbers of this part of a track: their sum is the same in whatever order they come and go.
_PART = 1e-12
# Periods are stretched by steps, so many to a doubling: else every cost that changes in an overload changes all periods.
_STEPS = 16


class Clusters:
    """Shortest updates first. As if `clusters` were asked anew after each change, with periods that can be kept.

    Updates of one table never run side by side, and files that wait are loaded together: where one update a period would
    be more than the tracks can do, all come less often. Without that, short jobs would be given tracks that they cannot use.
    """

    def __init__(self, jobs: Iterable[Recurring], k: float, by: Literal["E", "P"], tracks: int) -> None:
        self.k, self.by, self.tracks = k, by, tracks
        self._jobs = {job.table: _one_at_a_time(job) for job in jobs}
        # Of each table its cluster; the same object as long as no table has another.
        self.cluster: Mapping[str, int] = {}
        self._make()

    def _make(self) -> None:
        jobs = list(self._jobs.values())
        self._stretch = stretch(sum(map(_load, jobs)) * _PART / self.tracks)
        # What a job may measure, in periods as they are declared.
        self._reach = self.k * self._stretch if self.by == "E" else self.k
        groups = clusters(jobs, self._reach, self.by)
        made = {job.table: number for number, group in enumerate(groups) for job in group}
        self.cluster = unless_equal(made, self.cluster)
        # All tables by cost, and where in this list each cluster begins and the last one ends.
        self._order = [(job.cost_s, job.table) for group in groups for job in group]
        self._begins = [0, *accumulate(len(group) for group in groups)]
        self._loads = [sum(map(_load, group)) for group in groups]
        self._shortest_s = [min(job.period_s for job in group) for group in groups]
        # How many have it.
        self._shortest = [
            sum(job.period_s == least for job in group) for group, least in zip(groups, self._shortest_s, strict=True)
        ]
        longest = [max(map(self._measure, group)) for group in groups]
        # Whether each member would belong to the cluster wherever in it it stood.
        self._loose = [most < self._reach * least for most, least in zip(longest, self._shortest_s, strict=True)]

    @property
    def loads(self) -> list[float]:
        """Of each cluster, in tracks: no more than there are."""
        whole = sum(self._loads) * _PART
        return (
            [load * _PART * min(1.0, self.tracks / whole) for load in self._loads]
            if whole
            else [0.0] * len(self._loads)
        )

    @property
    def shortest_s(self) -> list[float]:
        """Of each cluster the shortest period."""
        return [least * self._stretch for least in self._shortest_s]

    def change(self, jobs: Iterable[Recurring]) -> None:
        """Some tables cost something else now."""
        stay = True
        for job in jobs:
            stay = self._stays(_one_at_a_time(job)) and stay
        if not stay:
            self._make()

    def _stays(self, job: Recurring) -> bool:
        """Whether a new cost changes nothing but the load of the cluster. Else all is to be made again, and what is noted
        here of the order does not matter."""
        before, self._jobs[job.table] = self._jobs[job.table], job
        number = self.cluster[job.table]
        begin, end = self._begins[number : number + 2]
        order, key, old = self._order, (job.cost_s, job.table), (before.cost_s, before.table)
        self._shortest[number] += (job.period_s == self._shortest_s[number]) - (
            before.period_s == self._shortest_s[number]
        )
        if job.period_s < self._shortest_s[number] or not self._shortest[number]:
            return False
        if not self._loose[number] or self._measure(job) >= self._reach * self._shortest_s[number]:
            return False
        if end < len(order) and key > order[end]:
            return False
        begins = number and (key < order[begin] or old == order[begin])
        # Whoever begins a cluster must not belong to the one before.
        if begins and (
            self.by == "P" or key < order[begin - 1] or job.cost_s < self._reach * self._shortest_s[number - 1]
        ):
            return False
        del order[bisect_left(order, old)]
        insort(order, key)
        self._loads[number] += _load(job) - _load(before)
        return stretch(sum(self._loads) * _PART / self.tracks) == self._stretch

    def _measure(self, job: Recurring) -> float:
        return job.cost_s if self.by == "E" else job.period_s


def _one_at_a_time(job: Recurring) -> Recurring:
    return job if job.cost_s <= job.period_s else job._replace(period_s=job.cost_s)


def stretch(load: float) -> float:
    """How many times longer all periods must be for a load of the tracks, at least."""
    return 2.0 ** (ceil(_STEPS * log2(load)) / _STEPS) if load > 1.0 else 1.0


def _load(job: Recurring) -> int:
    return round(job.utilisation / _PART)
