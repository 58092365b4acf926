"""The clusters of Proportional and what they need, kept up while costs are learned: with ten thousand tables one of them gets
another cost all the time, and rarely another cluster."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from penstock.scheduling.placement.base import Recurring, unless_equal
from penstock.scheduling.placement.proportional import clusters

# Loads are whole numbers of this part of a track: their sum is the same in whatever order they come and go.
_PART = 1e-12


class Clusters:
    """Shortest updates first. As if `clusters` were asked anew after each change, with periods that can be kept."""

    def __init__(self, jobs: Iterable[Recurring], k: float, by: Literal["E", "P"], tracks: int) -> None:
        self.k, self.by, self.tracks = k, by, tracks
        self._jobs = {job.table: job for job in jobs}
        # Of each table its cluster; the same object as long as no table has another.
        self.cluster: Mapping[str, int] = {}
        self._make()

    def _make(self) -> None:
        jobs, self._stretched = kept(list(self._jobs.values()), self.tracks)
        groups = clusters(jobs, self.k, self.by)
        made = {job.table: number for number, group in enumerate(groups) for job in group}
        self.cluster = unless_equal(made, self.cluster)
        # All tables by cost, and where in this list each cluster begins and the last one ends.
        self._order = [(job.cost_s, job.table) for group in groups for job in group]
        self._begins = [0, *accumulate(len(group) for group in groups)]
        self._loads = [sum(map(_load, group)) for group in groups]
        self.shortest_s = [min(job.period_s for job in group) for group in groups]
        longest = [max(map(self._measure, group)) for group in groups]
        # Whether each member would belong to the cluster wherever in it it stood.
        self._loose = [most < self.k * least for most, least in zip(longest, self.shortest_s, strict=True)]

    @property
    def loads(self) -> list[float]:
        """Of each cluster, in tracks."""
        return [load * _PART for load in self._loads]

    def change(self, jobs: Iterable[Recurring]) -> None:
        """Some tables cost something else now."""
        stay = True
        for job in jobs:
            stay = self._stays(job) and stay
        if not stay:
            self._make()

    def _stays(self, job: Recurring) -> bool:
        """Whether a new cost changes nothing but the load of the cluster. Else all is to be made again, and what is noted
        here of the order does not matter."""
        before, self._jobs[job.table] = self._jobs[job.table], job
        number = self.cluster[job.table]
        begin, end = self._begins[number : number + 2]
        order, key, old = self._order, (job.cost_s, job.table), (before.cost_s, before.table)
        if self._stretched or max(job.cost_s - job.period_s, before.cost_s - before.period_s) > 0:
            return False
        if not self._loose[number] or self._measure(job) >= self.k * self.shortest_s[number]:
            return False
        if end < len(order) and key > order[end]:
            return False
        begins = number and (key < order[begin] or old == order[begin])
        # Whoever begins a cluster must not belong to the one before.
        if begins and (self.by == "P" or key < order[begin - 1] or job.cost_s < self.k * self.shortest_s[number - 1]):
            return False
        del order[bisect_left(order, old)]
        insort(order, key)
        self._loads[number] += _load(job) - _load(before)
        return sum(self._loads) * _PART <= self.tracks

    def _measure(self, job: Recurring) -> float:
        return job.cost_s if self.by == "E" else job.period_s


def kept(jobs: Sequence[Recurring], tracks: int) -> tuple[list[Recurring], bool]:
    """With periods that can be kept, and whether all had to be stretched. Updates of one table never run side by side, and files
    that wait are loaded together: where one update a period would be more than the tracks can do, all come less often.
    Without that, short jobs would be given tracks that they cannot use."""
    alone = [job if job.cost_s <= job.period_s else job._replace(period_s=job.cost_s) for job in jobs]
    load = sum(map(_load, alone)) * _PART
    if load <= tracks:
        return alone, False
    return [job._replace(period_s=job.period_s * (load / tracks)) for job in alone], True


def _load(job: Recurring) -> int:
    return round(job.utilisation / _PART)
