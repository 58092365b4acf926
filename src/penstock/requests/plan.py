"""Where a change of some partitions arrives in the end: the covered datasets of a request.

They are found by walking forward once, in the order of the graph, through the partition maps. Nothing is enumerated: ten
years of hours travel as one interval, and a table that reads its own earlier partitions is closed in one step.

(Xu, Gao, Davidson 2023, Sec. 3.2 and 6.1. The paper keeps the frontier of the covered datasets in each request and
extends it by walking back; here a request keeps its direct inputs only, and this module finds the rest when asked.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.relations import Window
from penstock.model.tables import Edge, Table
from penstock.model.time import END_US

# The partitions that a table has, or may have: a change concerns nothing outside of them.
Extent = Callable[[str], PartitionSet]


def everywhere(_table: str) -> PartitionSet:
    return EVERYTHING


def affected_by(table: Table, edge: Edge, changed: PartitionSet) -> PartitionSet:
    """The partitions of a reader that changed rows of a source concern. A row-wise view that keeps the time of its
    rows passes them to the partition of that time, whatever it reads to find them."""
    return changed.hull(table.grain) if table.exact_time else edge.map.affected(changed)


def following(edge: Edge, changed: PartitionSet, extent: PartitionSet) -> PartitionSet:
    """A table that reads its own earlier partitions: the changed ones and all that follow from them."""
    relation = edge.map.relation
    if not changed or edge.map.table is WHOLE:
        return changed
    if isinstance(relation, Window) and relation.high == 0:
        # Each partition reads the one before, so nothing after the first changed one stays as it is.
        return changed | extent.within(changed.intervals[0][0], END_US)
    found = new = changed
    while new:
        new = (edge.map.affected(new) & extent) - found
        found |= new
    return found


def reach(
    graph: Graph, changed: Mapping[str, PartitionSet], extent: Extent = everywhere, *, downstream: bool = True
) -> dict[str, PartitionSet]:
    """Of each table the partitions that must be made again when these are, themselves included. In the order of the
    graph, so that each table comes after all that it is made from. Tables that one job makes are made again together."""
    rank = graph.rank
    coming: dict[str, PartitionSet] = {}
    for name, partitions in changed.items():
        if partitions:
            first = graph.tables[name].leader or name
            coming[first] = coming.get(first, EMPTY) | partitions
    waiting = [(rank[name], name) for name in coming]
    heapify(waiting)
    found: dict[str, PartitionSet] = {}
    while waiting:
        _, name = heappop(waiting)
        here = coming[name] & extent(name)
        if not here:
            continue
        if downstream:
            for edge in graph.out[name]:
                if edge.table == name:
                    here = following(edge, here, extent(name))
            for edge in graph.out[name]:
                if edge.table != name:
                    _pass_on(graph, edge, here, coming, waiting)
        for follower in graph.followers.get(name, ()):
            _arrive(graph, follower, here, coming, waiting)
        found[name] = here
    return found


def _pass_on(
    graph: Graph, edge: Edge, here: PartitionSet, coming: dict[str, PartitionSet], waiting: list[tuple[int, str]]
) -> None:
    reader = graph.tables[edge.table]
    there = affected_by(reader, edge, here) if graph.has_time[edge.source] else EVERYTHING
    _arrive(graph, edge.table, there, coming, waiting)


def _arrive(
    graph: Graph, name: str, there: PartitionSet, coming: dict[str, PartitionSet], waiting: list[tuple[int, str]]
) -> None:
    before = coming.get(name)
    if before is None:
        heappush(waiting, (graph.rank[name], name))
    coming[name] = (before or EMPTY) | there


@dataclass(frozen=True, slots=True)
class Backfill:
    """A wish to make partitions of a table again, and (unless it is only about this table) whatever is made from them."""

    table: str
    partitions: PartitionSet
    downstream: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class TableWork:
    """The part of a campaign that concerns one table."""

    table: str
    partitions: PartitionSet
    updates: int
    # Updates if every request ran for itself.
    separately: int
    # Updates that work which was pending before makes anyway.
    already: int
    # The requests, by number, that reach it.
    requests: tuple[int, ...]

    @property
    def saved(self) -> int:
        return self.separately - self.updates


@dataclass(frozen=True, slots=True)
class Campaign:
    """What a set of requests comes to, in the order in which it can be carried out."""

    requests: int
    work: tuple[TableWork, ...]

    @property
    def updates(self) -> int:
        return sum(work.updates for work in self.work)

    @property
    def separately(self) -> int:
        return sum(work.separately for work in self.work)

    @property
    def already(self) -> int:
        return sum(work.already for work in self.work)

    @property
    def saved(self) -> int:
        return self.separately - self.updates

    def __str__(self) -> str:
        asked = f"{self.requests:,} request{'s' * (self.requests != 1)}"
        return f"{asked}: {self.separately:,} updates -> {self.updates:,}"


def plan(
    graph: Graph,
    backfills: Iterable[Backfill],
    extent: Extent = everywhere,
    pending: Mapping[str, PartitionSet] | None = None,
) -> Campaign:
    """The campaign that these requests merge into. `extent` says which partitions a table has, `pending` which of them
    are to be updated already."""
    pending = pending or {}
    merged: dict[str, PartitionSet] = {}
    separately: dict[str, int] = {}
    asked: dict[str, list[int]] = {}
    count = 0
    for count, backfill in enumerate(backfills, 1):
        reached = reach(graph, {backfill.table: backfill.partitions}, extent, downstream=backfill.downstream)
        for name, partitions in reached.items():
            merged[name] = merged.get(name, EMPTY) | partitions
            separately[name] = separately.get(name, 0) + partitions.count(graph.tables[name].grain)
            asked.setdefault(name, []).append(count)
    work = []
    for name in sorted(merged, key=graph.rank.__getitem__):
        partitions, grain = merged[name], graph.tables[name].grain
        work.append(
            TableWork(
                name,
                partitions,
                partitions.count(grain),
                separately[name],
                (partitions & pending.get(name, EMPTY)).count(grain),
                tuple(asked[name]),
            )
        )
    return Campaign(count, tuple(work))
