"""How long something takes, as far as it can be known: a mean and a spread (standard deviation) in seconds.

Times are never negative and have a long tail, so the distribution is taken as log-normal with these two moments. Sums
of independent times keep their mean and variance exactly and are taken as log-normal again (Fenton and Wilkinson).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import erfc, exp, hypot, inf, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.time import BEGIN_US

_NORMAL = NormalDist()
# What is this certain counts as certain.
_CERTAIN = 1e-9


class Estimate(NamedTuple):
    mean_s: float
    spread_s: float = 0.0

    def then(self, other: Estimate) -> Estimate:
        """One after the other."""
        return Estimate(self.mean_s + other.mean_s, hypot(self.spread_s, other.spread_s))

    def chance(self, within_s: float) -> float:
        """The probability that it takes at most so long.

        >>> Estimate(2).chance(1.9), Estimate(2).chance(2), round(Estimate(2, 1).chance(2), 3)
        (0.0, 1.0, 0.593)
        """
        if within_s == inf:
            return 1.0
        if self.spread_s <= 0 or self.mean_s <= 0:
            return 1.0 if within_s >= self.mean_s else 0.0
        if within_s <= 0:
            return 0.0
        place, scale = self._log()
        if not scale:  # too small a spread to make a difference
            return 1.0 if within_s >= self.mean_s else 0.0
        return 0.5 * erfc((place - log(within_s)) / (scale * sqrt(2)))

    def quantile(self, chance: float) -> float:
        """The shortest time within which it is done with this probability; infinite if that is never so certain."""
        if chance > 1 or (self.spread_s > 0 and self.mean_s > 0 and chance > 1 - _CERTAIN):
            return inf
        if chance <= 0:
            return 0.0
        if self.spread_s <= 0 or self.mean_s <= 0:
            return self.mean_s
        place, scale = self._log()
        return exp(place + scale * _NORMAL.inv_cdf(chance))

    def _log(self) -> tuple[float, float]:
        variance = log1p((self.spread_s / self.mean_s) ** 2)
        return log(self.mean_s) - variance / 2, sqrt(variance)


AT_ONCE = Estimate(0.0)


# What the queries that wait would lose if one more goes among them: the satisfaction check of Qu, Labrinidis and Mossé 2006 (Sec. 3.3) for
# several lanes, and for times that are not certain.
#
# All run in the order of their deadlines, each on the lane that is free first. With the new one, those behind it end later, and each is in time with
# a smaller chance. Queries that ask the same run once, so a question counts once, with what it is worth to all who ask it.

# How uncertain it is when a lane is free, as a part of the time until then.
_SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class WaitingQuery:
    """What waits for a lane: when it must be done, counted from now, how long it runs, and what is lost if it is late."""

    deadline_s: float
    run: Estimate
    worth: float


def loss(waiting: Iterable[WaitingQuery], new: WaitingQuery, free_in_s: Sequence[float]) -> float:
    """The expected satisfaction that those behind the new one lose; what they would lose anyway does not count. Lanes are free in so many
    seconds."""
    behind: list[WaitingQuery] = []
    lanes = list(free_in_s) or [0.0]
    heapify(lanes)
    for question in sorted(waiting, key=lambda one: one.deadline_s):
        if question.deadline_s <= new.deadline_s:
            heapreplace(lanes, lanes[0] + question.run.mean_s)
        else:
            behind.append(question)
    if not behind:
        return 0.0
    crowded = list(lanes)
    heapreplace(crowded, crowded[0] + new.run.mean_s)
    lost = 0.0
    for question in behind:
        lost += question.worth * (_chance(question, lanes[0]) - _chance(question, crowded[0]))
        heapreplace(lanes, lanes[0] + question.run.mean_s)
        heapreplace(crowded, crowded[0] + question.run.mean_s)
    return max(0.0, lost)


def _chance(question: WaitingQuery, start_s: float) -> float:
    return Estimate(start_s, _SPREAD * start_s).then(question.run).chance(question.deadline_s)


# What must be refreshed so that a query reads fresh data, and nothing else: exactly the stale partitions that it touches,
# and of their ancestors exactly the stale partitions that these are made from.
#
# Going up, a partition needs those source partitions that it reads. Going down, a partition that reads a refreshed one must be
# made again. What the query does not touch, directly or through what it reads, stays as it is.


@dataclass(frozen=True, slots=True)
class RefreshStep:
    """One update of the chain, after all earlier ones that it reads."""

    table: str
    partitions: PartitionSet


def refresh_chain(
    graph: Graph, touched: Mapping[str, PartitionSet], stale: Callable[[str], PartitionSet]
) -> tuple[RefreshStep, ...]:
    """The steps, sources first; empty if all that is touched is fresh. `stale` gives the partitions of a table that do not
    reflect what has arrived for it or was published of its sources."""
    order = _sources_first(graph, touched)
    read = {name: touched.get(name, EMPTY) for name in order}
    for name in reversed(order):
        own = [edge for edge in graph.into[name] if edge.source == name]
        if own and read[name]:  # each partition reads the one before it, back to the first
            read[name] = PartitionSet.of((BEGIN_US, read[name].intervals[-1][1]))
        for edge in graph.into[name]:
            if edge.source != name:
                read[edge.source] |= edge.map.required(read[name])
    steps: list[RefreshStep] = []
    made: dict[str, PartitionSet] = {}
    for name in order:
        changed = stale(name)
        for edge in graph.into[name]:
            if edge.source != name and edge.source in made:
                changed |= edge.map.affected(made[edge.source])
        changed &= read[name]
        if changed and name in graph.chained:
            changed = PartitionSet.of((changed.intervals[0][0], read[name].intervals[-1][1]))
        if changed:
            made[name] = changed
            steps.append(RefreshStep(name, changed))
    return tuple(steps)


def _sources_first(graph: Graph, tables: Iterable[str]) -> list[str]:
    """These tables and their ancestors; costs what they are, not what the graph is."""
    order: dict[str, None] = {}
    path = list(tables)
    while path:
        above = [e.source for e in graph.into[path[-1]] if e.source != path[-1] and e.source not in order]
        if above:
            path += above
        else:
            order[path.pop()] = None
    return list(order)


def span(
    graph: Graph,
    steps: Sequence[RefreshStep],
    cost: Callable[[RefreshStep], Estimate],
    free_in_s: Sequence[float] = (0.0,),
    running: Mapping[str, Estimate] | None = None,
) -> Estimate:
    """How long a chain takes on tracks that are free in so many seconds: each step starts when its sources are done and a
    track is free. An update of a table that runs already (`running`: what is left of it) is waited for, then its step runs."""
    tracks = list(free_in_s)
    heapify(tracks)
    done: dict[str, Estimate] = {}
    last = AT_ONCE
    for step in steps:
        before = [done[edge.source] for edge in graph.into[step.table] if edge.source in done]
        if running and step.table in running:
            before.append(running[step.table])
        start = max(before, default=AT_ONCE)
        if tracks[0] > start.mean_s:
            start = Estimate(tracks[0], start.spread_s)
        done[step.table] = start.then(cost(step))
        heapreplace(tracks, done[step.table].mean_s)
        last = max(last, done[step.table])
    return last
