"""Whether an update should wait for another change that is on its way (Xu, Gao, Davidson 2023, Sec. 4).

An update of R is ready. A change further up will make R run again in t seconds. If R waits, it and everything that is
made from it run once instead of twice; but all of that is later by t. And if R does not wait, its readers may still.
Waiting spreads downward: what is made from a table that waits is late with it. So the tables that should wait are a set
that is closed under "made from", and the best one is the closure of largest weight

    weight(S) = cost of one update of S - penalty of S being late by t

which a minimum cut finds exactly. (The printed recursion over the children counts tables that several children share
once for each, and compares ratios, which do not add up; `penstock experiment youtube-closure` shows by how much.)

With freshness targets the penalty is a prohibition: infinite if the table would probably miss its target, else nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt

from penstock.requests.flow import MinimumCut

Children = Callable[[str], Iterable[str]]


def descendants(root: str, children: Children) -> list[str]:
    """The root and all that is made from it, each once."""
    found, new = {root: None}, [root]
    while new:
        for child in children(new.pop()):
            if child not in found:
                found[child] = None
                new.append(child)
    return list(found)


def best_closure(root: str, children: Children, weight: Callable[[str], float]) -> frozenset[str]:
    """Of all sets of the root's descendants that contain the children of each of their members, the one of largest
    weight; of several the smallest, so that nothing waits without a gain."""
    tables = descendants(root, children)
    weights = {name: weight(name) for name in tables}
    if weights[root] <= 0 and all(found <= 0 for found in weights.values()):
        return frozenset()
    cut = MinimumCut()
    for name, value in weights.items():
        if value > 0:
            cut.connect(cut.SOURCE, name, value)
        elif value < 0:
            cut.connect(name, cut.SINK, -value)
        for child in children(name):
            if child != name:
                cut.connect(name, child, inf)
    return frozenset(cut.source_side()) & frozenset(tables)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What to do with a ready update while a change is on its way to it."""

    waits: bool
    # All tables that should wait, and what that saves: seconds of updates, and how many updates.
    tables: frozenset[str]
    saved: float
    updates: int


def decide(root: str, children: Children, cost: Callable[[str], float], penalty: Callable[[str], float]) -> Waiting:
    """Whether an update of the root should wait, given what an update of each table below costs and what it costs that
    the table is late by that much."""
    chosen = best_closure(root, children, lambda name: cost(name) - penalty(name))
    saved = sum(cost(name) - penalty(name) for name in chosen)
    return Waiting(root in chosen, chosen, saved, len(chosen))


# How long it takes

# Mean absolute deviation of a normal distribution to its standard deviation.
_DEVIATION = 1.2533


@dataclass(frozen=True, slots=True)
class Duration:
    """A run time as a distribution: of several in a row the means add up, and so do the variances."""

    mean_s: float
    stdev_s: float = 0.0

    @staticmethod
    def learned(expected_s: float, spread_s: float) -> Duration:
        """From what a cost model has learned: its spread is the mean absolute residual."""
        return Duration(expected_s, spread_s * _DEVIATION)

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.mean_s + other.mean_s, sqrt(self.stdev_s**2 + other.stdev_s**2))

    def at_most_s(self, deviations: float = 2.0) -> float:
        """A time that it probably does not exceed."""
        return self.mean_s + deviations * self.stdev_s


def longest(ways: Iterable[Duration]) -> Duration:
    """Of several ways the one that probably takes longest."""
    return max(ways, key=Duration.at_most_s, default=Duration(0.0))


def arrival(
    path: Iterable[str], run_time: Mapping[str, Duration], begun_s: Mapping[str, float] | None = None
) -> Duration:
    """When a change that has all tables of a path before it will be there: the first may have begun a while ago."""
    begun = begun_s or {}
    found = Duration(0.0)
    for name in path:
        took = run_time[name]
        found = found + Duration(max(0.0, took.mean_s - begun.get(name, 0.0)), took.stdev_s)
    return found
