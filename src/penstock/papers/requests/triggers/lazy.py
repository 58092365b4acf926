"""Lazy with a look back: only who reads a dataset directly is asked when a new version of it is published.

A request that is made then looks at the job's other inputs: a change that is still on its way to one of them, found by
walking the graph back over all pending and running work, is waited for (Xu, Gao, Davidson 2023, Def. 3.4 and Sec. 4.3.2).
Without this walk a job runs once for each path and each origin.

A patient request waits for all that was on its way when something was asked of it. Then each change reaches each
partition in one update; but where changes come faster than jobs finish, there is always another one to wait for. One
that is not patient waits for what is no newer than its oldest change. Then each update brings at least that one, so
there are never more updates than changes, and a stream of changes holds up nobody; a newer one may come in two parts.

The live controller works this way (`control/settling.py`), and its requests are patient: see `tests/requests/test_live.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.papers.requests.book import Book, Run
from penstock.papers.requests.request import OWN, Demand
from penstock.requests.plan import Backfill, affected_by, following


class Lazy:
    def __init__(self, *, patient: bool = True) -> None:
        self.patient = patient
        # Datasets with nothing on its way to them; they stay so until something is submitted above them.
        self._calm: set[str] = set()
        self._stamp = 0
        # Who waits for the work of a dataset.
        self._waiting: dict[str, set[str]] = {}

    def submitted(self, book: Book, stamp: int, backfills: Iterable[Backfill]) -> None:
        asked = [(b.table, b.partitions & book.extent(b.table), Demand(stamp, {OWN: stamp})) for b in backfills]
        self._ask(book, asked)

    def published(self, book: Book, run: Run) -> None:
        graph = book.graph
        asked: list[tuple[str, PartitionSet, Demand]] = []
        for edge in graph.out[run.dataset]:
            reader = graph.tables[edge.table]
            for start, end, demand in run.pieces:
                changed = PartitionSet(((start, end),))
                there = affected_by(reader, edge, changed) if graph.has_time[run.dataset] else EVERYTHING
                there &= book.extent(edge.table)
                if there:
                    asked.append((edge.table, there, Demand(demand.oldest, {run.dataset: demand.newest})))
        self._ask(book, asked)

    def _ask(self, book: Book, asked: list[tuple[str, PartitionSet, Demand]]) -> None:
        """First ask all, then look back: whoever was asked may be among what another one waits for. What is on its way
        to an input now is demanded of it."""
        self._calm.difference_update(name for name, _, _ in asked)
        for name, there, demand in asked:
            if there:
                book.ask(name, there, demand)
        # A request that is not patient does not wait for all of that, so it must not say that it will have it.
        for name, there, demand in asked if self.patient else ():
            for edge in book.graph.into[name] if there else ():
                moving = self.moving(book, edge.source, edge.map.required(there), book.stamp, name)
                if moving:
                    late = affected_by(book.graph.tables[name], edge, moving) & there
                    book.add(name, late, Demand(demand.oldest, {edge.source: book.stamp}))

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        """Walk back from some partitions to all work that would change them, then forward again to see which."""
        if self._stamp != book.stamp:
            self._stamp = book.stamp
            self._calm.clear()
        if dataset in self._calm:
            return EMPTY
        graph = book.graph
        rank, order, chained = graph.rank, graph.order, graph.chained
        single = graph.tables[dataset].grain is WHOLE
        needed, found = {dataset: partitions}, {}
        visited: list[str] = []
        back = [-rank[dataset]]
        while back:
            name = order[-heappop(back)]
            visited.append(name)
            want = needed[name] = book.extent(name) if name in chained else needed[name]
            late = book.lacking(name, want, version)
            if late:
                self._waiting.setdefault(name, set()).add(reader)
                if single:
                    return partitions  # what moves anywhere above moves all of it
                found[name] = late
                want -= late  # nothing further up matters to these
            for edge in graph.into[name] if want else ():
                source = edge.source
                if source == name or source in self._calm:
                    continue
                above = edge.map.required(want)
                if source in needed:
                    needed[source] |= above
                else:
                    needed[source] = above
                    heappush(back, -rank[source])
        if not found:
            self._note_calm(book, visited)
            return EMPTY
        for name in reversed(visited):
            late = found.get(name, EMPTY)
            for edge in graph.into[name]:
                if edge.source != name and edge.source in found:
                    late |= affected_by(graph.tables[name], edge, found[edge.source]) & needed[name]
            for edge in graph.into[name] if name in chained else ():
                if edge.source == name:
                    late = following(edge, late, book.extent(name))
            if late:
                found[name] = late
        return found.get(dataset, EMPTY) & partitions

    def _note_calm(self, book: Book, visited: list[str]) -> None:
        for name in reversed(visited):  # what is above comes first
            active = book.pending.get(name) or book.busy.get(name)
            if not active and all(edge.source == name or edge.source in self._calm for edge in book.graph.into[name]):
                self._calm.add(name)

    def awaited(self, demand: Demand, source: str) -> int | None:
        return demand.carried.get(source) if self.patient else demand.oldest

    def concerned(self, book: Book, dataset: str) -> Iterable[str]:
        """What waited for it, wherever in the graph."""
        return (dataset, *self._waiting.pop(dataset, ()))
