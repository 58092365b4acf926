"""The clusters of Proportional and what they need, kept up while costs are learned: with ten thousand tables one of them gets
another cost all the time, and rarely another cluster."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil, log2
from typing import Literal

from penstock.scheduling.placement.base import Recurring, unless_equal
from penstock.scheduling.placement.proportional import clusters

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
