"""What must be refreshed so that a query reads fresh data, and nothing else: exactly the stale partitions that it touches,
and of their ancestors exactly the stale partitions that these are made from.

Going up, a partition needs those source partitions that it reads. Going down, a partition that reads a refreshed one must be
made again. What the query does not touch, directly or through what it reads, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.time import BEGIN_US
from penstock.queries.estimate import AT_ONCE, Estimate


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
