"""The minimum cut of a small network, by Dinic's method (1970): as long as the sink can be reached, send a blocking flow
along shortest ways. Capacities may be fractions or infinite."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt

# Below this a residual capacity is nothing but rounding.
_NOTHING = 1e-9


class MinimumCut:
    """A network between SOURCE and SINK.

    >>> from math import inf
    >>> cut = MinimumCut()
    >>> for tail, head, capacity in [(cut.SOURCE, "a", 3), ("a", "b", inf), ("b", cut.SINK, 2)]:
    ...     cut.connect(tail, head, capacity)
    >>> cut.value(), sorted(cut.source_side())
    (2.0, ['a', 'b'])
    """

    SOURCE, SINK = "\0source", "\0sink"

    def __init__(self) -> None:
        # Edges in pairs: the one with the next number (exclusive or 1) runs back.
        self._heads: list[str] = []
        self._left: list[float] = []
        self._edges: dict[str, list[int]] = {self.SOURCE: [], self.SINK: []}

    def connect(self, tail: str, head: str, capacity: float) -> None:
        for node, towards, left in ((tail, head, capacity), (head, tail, 0.0)):
            self._edges.setdefault(node, []).append(len(self._heads))
            self._heads.append(towards)
            self._left.append(left)

    def value(self) -> float:
        """The largest flow, which is the smallest cut."""
        flow = 0.0
        while self.SINK in (levels := self._levels()):
            tried = dict.fromkeys(self._edges, 0)
            while sent := self._send(levels, tried):
                flow += sent
        return flow

    def source_side(self) -> set[str]:
        """The nodes that the source still reaches: of all smallest cuts the one nearest to it."""
        self.value()
        return set(self._levels()) - {self.SOURCE}

    def _levels(self) -> dict[str, int]:
        levels, waiting = {self.SOURCE: 0}, deque([self.SOURCE])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                head = self._heads[edge]
                if self._left[edge] > _NOTHING and head not in levels:
                    levels[head] = levels[node] + 1
                    waiting.append(head)
        return levels

    def _send(self, levels: dict[str, int], tried: dict[str, int]) -> float:
        """One more way from source to sink along rising levels; an edge that leads nowhere is not tried again."""
        way: list[int] = []
        node = self.SOURCE
        while node != self.SINK:
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                head = self._heads[edge]
                if self._left[edge] > _NOTHING and levels.get(head, -1) == levels[node] + 1:
                    way.append(edge)
                    node = head
                    break
                tried[node] += 1
            else:
                if not way:
                    return 0.0
                node = self._heads[way.pop() ^ 1]
                tried[node] += 1
        sent = min(self._left[edge] for edge in way)
        for edge in way:
            self._left[edge] -= sent
            self._left[edge ^ 1] += sent
        return sent


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
class BestWait:
    """What to do with a ready update while a change is on its way to it."""

    waits: bool
    # All tables that should wait, and what that saves: seconds of updates, and how many updates.
    tables: frozenset[str]
    saved: float
    updates: int


def decide(root: str, children: Children, cost: Callable[[str], float], penalty: Callable[[str], float]) -> BestWait:
    """Whether an update of the root should wait, given what an update of each table below costs and what it costs that
    the table is late by that much."""
    chosen = best_closure(root, children, lambda name: cost(name) - penalty(name))
    saved = sum(cost(name) - penalty(name) for name in chosen)
    return BestWait(root in chosen, chosen, saved, len(chosen))


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
