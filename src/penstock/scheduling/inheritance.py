"""Priorities that sources inherit from what is made from them (Golab, Johnson, Shkapenyuk 2011, Sec. 3.3).

none       the table's own
sum        of itself and everything made from it
max        the largest among itself and everything made from it
max-plus   max(own, K * the largest of its direct readers), recursively: a long chain pulls its base harder
chain      the largest mean over the table and what follows from it (ours, not the paper's)

With the recursion max-plus differs from K times the maximum, which would order tables just as max does.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.graph import Graph

RULES = ("none", "sum", "max", "max-plus", "chain")
DEFAULT_K = 1.5


def inherited(graph: Graph, rule: str, k: float = DEFAULT_K) -> Mapping[str, float]:
    """The priority that each table is scheduled with."""
    own = {name: table.priority for name, table in graph.tables.items()}
    if rule == "none":
        return own
    if rule == "max":
        return graph.inherited
    if rule == "sum":
        return _summed(graph, own)
    if rule == "chain":
        return _chained(graph, own)
    found: dict[str, float] = {}
    for name in reversed(graph.order):
        below = [k * found[edge.table] for edge in graph.out[name] if edge.table != name]
        found[name] = max([own[name], *below])
    return found


def _summed(graph: Graph, own: Mapping[str, float]) -> dict[str, float]:
    found = dict(own)
    for name, above in graph.ancestors.items():
        for source in above:
            found[source] += own[name]
    return found


def _chained(graph: Graph, own: Mapping[str, float]) -> dict[str, float]:
    """Updating a source is worth nothing until what it is for is updated too, and that takes their time as well. So the
    weight of a table is what it and the best of its followers bring together, per update: the largest ratio of an
    initial set under precedence (Sidney 1975), with all updates counted as equally long. Where Max gives a base the full
    priority of the end of its chain, this finishes chains before it begins new ones."""
    blocks: dict[str, list[tuple[float, int]]] = {}
    found: dict[str, float] = {}
    place = {name: number for number, name in enumerate(graph.order)}
    for name in reversed(graph.order):
        below: list[tuple[float, int]] = []
        for reader in dict.fromkeys(edge.table for edge in graph.out[name] if edge.table != name):
            sources = (edge.source for edge in graph.into[reader] if edge.source != reader)
            # What has several sources comes after the last of them: it counts there, once.
            if max(sources, key=place.__getitem__) == name:
                below += blocks[reader]
        below.sort(key=lambda block: block[0] / block[1], reverse=True)
        total, count = own[name], 1
        while below and below[0][0] * count > total * below[0][1]:
            more, updates = below.pop(0)
            total, count = total + more, count + updates
        blocks[name] = [(total, count), *below]
        found[name] = total / count
    return found
