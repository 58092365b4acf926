"""Priorities that sources inherit from what is made from them (Golab, Johnson, Shkapenyuk 2011, Sec. 3.3).

none       the table's own
sum        of itself and everything made from it
max        the largest among itself and everything made from it
max-plus   max(own, K * the largest of its direct readers), recursively: a long chain pulls its base harder
chain      the largest mean over the table and what follows from it, or their sum per level if that is more (ours, not the paper's)

With the recursion max-plus differs from K times the maximum, which would order tables just as max does.

A job that makes several tables, those of a group or the targets of a flow, weighs what all of them weigh together.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush

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
    weight of a job is what it and the best of its followers bring together, per update: the largest ratio of an
    initial set under precedence (Sidney 1975), with all updates counted as equally long. A join needs all its sources, so it counts
    at each of them, and the updates of the others count, too. Where Max gives a base the full priority of the end of
    its chain, this finishes chains before it begins new ones.

    That is right while all of them compete for the tracks. But followers can wait until it is quiet, or until there is more for them,
    and a source that is late makes all of them stale, however soon they run. So where many follow side by side, it counts what they weigh
    together, divided by the number of levels: those of one chain come one after the other anyway."""
    job = graph.updated_as
    worth = dict.fromkeys(job.values(), 0.0)
    sources: dict[str, set[str]] = {name: set() for name in worth}
    readers: dict[str, dict[str, None]] = {name: {} for name in worth}
    for name in graph.order:
        worth[job[name]] += own[name]
        for edge in graph.into[name]:
            if job[edge.source] != job[name]:
                sources[job[name]].add(job[edge.source])
                readers[job[edge.source]][job[name]] = None
    blocks: dict[str, list[frozenset[str]]] = {}
    found: dict[str, float] = {}
    for name in reversed(tuple(TopologicalSorter(sources).static_order())):
        below = list(dict.fromkeys(block for reader in readers[name] for block in blocks[reader]))
        block, found[name] = _best_begun(name, below, worth, sources)
        blocks[name] = [block, *(each for each in below if not each <= block)]
    whole = dict(worth)
    for name in graph.order:
        for above in {job[each] for each in graph.ancestors[name]} - {job[name]}:
            whole[above] += own[name]
    levels: dict[str, int] = {}
    for name in reversed(tuple(TopologicalSorter(sources).static_order())):
        levels[name] = 1 + max((levels[reader] for reader in readers[name]), default=0)
        found[name] = max(found[name], whole[name] / levels[name])
    shared = {name: sum(own[each] for each in tables) for name, tables in _together(graph).items()}
    return {
        name: found[first] * (own[name] / shared[first] if shared[first] else 1 / len(_together(graph)[first]))
        for name, first in job.items()
    }


def _together(graph: Graph) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, first in graph.updated_as.items():
        found[first] = (*found.get(first, ()), name)
    return found


def _best_begun(
    name: str, below: list[frozenset[str]], worth: Mapping[str, float], sources: Mapping[str, set[str]]
) -> tuple[frozenset[str], float]:
    """The set of updates that begins with this one and brings most per update, and what it brings."""
    block, total, count = {name}, worth[name], 1
    needs = [frozenset().union(*(sources[one] for one in each)) - each for each in below]
    waits: dict[str, list[int]] = {}
    for number, each in enumerate(below):
        for one in each | needs[number]:
            waits.setdefault(one, []).append(number)
    best: list[tuple[float, int, float, int]] = []

    def offer(number: int) -> None:
        new = below[number] - block
        if new:
            more, updates = sum(worth[one] for one in new), len(new) + len(needs[number] - block)
            heappush(best, (-more / updates, number, more, updates))

    for number in range(len(below)):
        offer(number)
    while best:
        ratio, number, more, updates = heappop(best)
        new = below[number] - block
        if not new or len(new) + len(needs[number] - block) != updates:
            continue  # it was offered again since then
        if -ratio * count <= total:
            break
        block |= new
        total, count = total + more, count + updates
        for again in {other for one in new for other in waits[one]}:
            offer(again)
    return frozenset(block), total / count
