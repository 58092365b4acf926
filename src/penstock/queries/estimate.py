"""How long something takes, as far as it can be known: a mean and a spread (standard deviation) in seconds.

Times are never negative and have a long tail, so the distribution is taken as log-normal with these two moments. Sums
of independent times keep their mean and variance exactly and are taken as log-normal again (Fenton and Wilkinson).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
