"""Lazy with a look back: only who reads a dataset directly is asked when a new version of it is published.

A request that is made then looks at the job's other inputs: a change that is still on its way to one of them, found by
walking the graph back over all pending and running work, is waited for (Xu, Gao, Davidson 2023, Def. 3.4 and Sec. 4.3.2).
Without this walk a job runs once for each path and each origin. A change that is submitted later is not waited for, so
that a stream of changes holds up nobody.

The live controller works this way (`control/settling.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.requests.book import Book, Run
from penstock.requests.campaign import Backfill
from penstock.requests.reach import affected_by, following
from penstock.requests.request import OWN, Demand


class Lazy:
    def submitted(self, book: Book, stamp: int, backfills: Iterable[Backfill]) -> None:
        for backfill in backfills:
            self._ask(book, backfill.table, backfill.partitions & book.extent(backfill.table), stamp, OWN, stamp)

    def published(self, book: Book, run: Run) -> None:
        graph = book.graph
        for edge in graph.out[run.dataset]:
            reader = graph.tables[edge.table]
            for start, end, demand in run.pieces:
                changed = PartitionSet(((start, end),))
                there = affected_by(reader, edge, changed) if graph.flows[run.dataset] else EVERYTHING
                there &= book.extent(edge.table)
                if there:
                    self._ask(book, edge.table, there, demand.oldest, run.dataset, demand.newest)

    def _ask(self, book: Book, name: str, there: PartitionSet, oldest: int, source: str, version: int) -> None:
        """Ask, and demand of the other inputs whatever is on its way to them now."""
        if not there:
            return
        book.ask(name, there, Demand(oldest, {source: version}))
        for edge in book.graph.into[name]:
            moving = self.moving(book, edge.source, edge.map.required(there), book.stamp)
            if moving:
                late = affected_by(book.graph.tables[name], edge, moving) & there
                book.ask(name, late, Demand(oldest, {edge.source: book.stamp}))
                book.counts.asked -= 1  # it is one request

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int) -> PartitionSet:
        """Walk back from some partitions to all work that would change them, then forward again to see which."""
        graph = book.graph
        rank, order = graph.rank, graph.order
        needed = {dataset: partitions}
        back, found = [-rank[dataset]], {}
        visited: list[str] = []
        while back:
            name = order[-heappop(back)]
            visited.append(name)
            chained = name in graph.chained
            want = needed[name] = book.extent(name) if chained else needed[name]
            late = book.lacking(name, want, version)
            if late:
                found[name] = late
                if late == want:
                    continue  # nothing further up matters
            for edge in graph.into[name]:
                if edge.source == name:
                    continue
                above = edge.map.required(want - late)
                if edge.source in needed:
                    needed[edge.source] |= above
                else:
                    needed[edge.source] = above
                    heappush(back, -rank[edge.source])
        if not found:
            return EMPTY
        for name in reversed(visited):
            late = found.get(name, EMPTY)
            for edge in graph.into[name]:
                if edge.source != name and edge.source in found:
                    late |= affected_by(graph.tables[name], edge, found[edge.source]) & needed[name]
            for edge in graph.into[name] if name in graph.chained else ():
                if edge.source == name:
                    late = following(edge, late, book.extent(name))
            if late:
                found[name] = late
        return found.get(dataset, EMPTY) & partitions

    def concerned(self, book: Book, dataset: str) -> Iterable[str]:
        """What waits may wait for anything that is above it."""
        return [name for name, pieces in book.pending.items() if pieces or name == dataset]
