"""The minimum cut of a small network, by Dinic's method (1970): as long as the sink can be reached, send a blocking flow
along shortest ways. Capacities may be fractions or infinite."""

from __future__ import annotations

from collections import deque

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
