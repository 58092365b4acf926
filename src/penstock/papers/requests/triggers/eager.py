"""Eager: a change makes requests for everything that it reaches, at once (Xu, Gao, Davidson 2023, Def. 3.5).

So all that is on its way to a dataset is in the book at that dataset itself, and whether it is at a version is a look at
its own pending and running work. A request carries the inputs by which the change comes; each edge is walked once.

It waits for all that it carries, so no update ever has a part of a change and each change reaches each partition in one
update. But where new changes come faster than jobs finish, there is always another one to wait for: then use `Lazy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.papers.requests.book import Book, Run
from penstock.papers.requests.request import OWN, Demand
from penstock.requests.plan import Backfill, affected_by, following

Coming = list[tuple[str, PartitionSet]]


class Eager:
    patient = True

    def submitted(self, book: Book, stamp: int, backfills: Iterable[Backfill]) -> None:
        for backfill in backfills:
            self._spread(book, stamp, backfill)

    def _spread(self, book: Book, stamp: int, backfill: Backfill) -> None:
        graph = book.graph
        rank, tables, out = graph.rank, graph.tables, graph.out
        coming: dict[str, Coming] = {backfill.table: [(OWN, backfill.partitions)]}
        waiting = [rank[backfill.table]]
        heapify(waiting)
        while waiting:
            name = graph.order[heappop(waiting)]
            here = self._ask(book, stamp, name, coming.pop(name))
            if not here or not backfill.downstream:
                continue
            for edge in out[name]:
                reader = edge.table
                if reader == name:
                    continue
                there = affected_by(tables[reader], edge, here) if graph.has_time[name] else EVERYTHING
                if reader in coming:
                    coming[reader].append((name, there))
                else:
                    coming[reader] = [(name, there)]
                    heappush(waiting, rank[reader])

    def _ask(self, book: Book, stamp: int, name: str, coming: Coming) -> PartitionSet:
        """One request per dataset, as long as its inputs change the same partitions."""
        graph = book.graph
        extent = book.extent(name)
        if extent is not EVERYTHING:
            coming = [(source, found) for source, there in coming if (found := there & extent)]
        if not coming:
            return PartitionSet()
        here = coming[0][1]
        same = len(coming) == 1 or all(there == here for _, there in coming)
        if not same:
            here = PartitionSet.of(*(interval for _, there in coming for interval in there))
        if name in graph.chained:
            for edge in graph.into[name]:
                if edge.source == name:
                    here = following(edge, here, extent)
                    coming.append((name, edge.map.affected(here) & here))
            same = False
        if same:
            book.ask(name, here, Demand(stamp, {source: stamp for source, _ in coming}))
        else:
            for source, there in coming:
                book.ask(name, there, Demand(stamp, {source: stamp}))
        return here

    def published(self, book: Book, run: Run) -> None:
        """Everything was asked for when the change came."""

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        return book.lacking(dataset, partitions, version)

    def awaited(self, demand: Demand, source: str) -> int | None:
        return demand.carried.get(source)

    def concerned(self, book: Book, dataset: str) -> Iterator[str]:
        yield dataset
        for edge in book.graph.out[dataset]:
            yield edge.table
