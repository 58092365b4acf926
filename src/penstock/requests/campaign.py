"""Several requests as one piece of work: what will be updated, and what merging them saves.

Each request alone would update every partition that it reaches. Merged, a partition that several of them reach is
updated once, after all that it is made from (Xu, Gao, Davidson 2023, Sec. 1.2). Both numbers are exact, and neither
needs to enumerate partitions or to run anything.

>>> from penstock.model.graph import Graph
>>> from penstock.model.tables import Feed, Source, Table
>>> from penstock.model.time import DAY_US
>>> graph = Graph([Feed("f")], [Table("a", "day", feed="f"), Table("b", "day", sources=(Source("a", (0, 1)),))])
>>> first_week, second_day = PartitionSet.of((0, 7 * DAY_US)), PartitionSet.of((DAY_US, 2 * DAY_US))
>>> print(plan(graph, [Backfill("a", first_week), Backfill("b", second_day), Backfill("a", second_day)]))
3 requests: 17 updates -> 14
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.requests.reach import Extent, everywhere, reach


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
