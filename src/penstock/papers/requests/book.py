"""The book of requests: what is asked for, what waits for what, what runs.

It is the whole request layer in one pure object: changes are submitted, jobs are started, finish or fail, and the book
says which partitions of which datasets could be updated now. It has no clock and decides no order; whoever drives it
(the simulator, a test, a benchmark) does.

* A partition has at most one pending demand; whatever else is asked of it is merged into that.
* A running job finishes; what is asked of its partitions meanwhile is the next job. So a partition never has two writers.
* A failed job's demand goes back. It is subsumed by what was asked meanwhile, else tried again with the same inputs.
* An event that is reported twice changes nothing.

How demands get from a change to all that must reflect it is the trigger's business: see `triggers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, IntervalMap, PartitionSet
from penstock.papers.requests.request import Demand, Request
from penstock.requests.plan import Backfill, Extent, affected_by, everywhere


@dataclass(frozen=True, slots=True)
class Run:
    """One update: these partitions, read from all inputs as they were at one publication."""

    id: int
    dataset: str
    pieces: tuple[tuple[int, int, Demand], ...]
    pin: int

    @property
    def partitions(self) -> PartitionSet:
        return PartitionSet.of(*((start, end) for start, end, _ in self.pieces))


@dataclass(slots=True)
class Counts:
    """What became of the requests."""

    asked: int = 0
    # Asked for exactly what was asked for already.
    repeated: int = 0
    # Asked for a part of what was asked for already, or is there.
    subsumed: int = 0
    # Joined a pending request that did not ask for all of it.
    merged: int = 0
    started: int = 0
    failed: int = 0


class Trigger(Protocol):
    """How demands travel."""

    def submitted(self, book: Book, stamp: int, backfills: Iterable[Backfill]) -> None:
        """Changes were submitted together: make demands."""

    def published(self, book: Book, run: Run) -> None:
        """A job published its partitions: make demands of who reads them, in the same transaction."""

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        """Which of these partitions, that a reader asks for, are not at a version yet."""

    def awaited(self, demand: Demand, source: str) -> int | None:
        """The version that an input must have before a job may run; None if any will do."""

    def concerned(self, book: Book, dataset: str) -> Iterable[str]:
        """Whose waiting may end when a job of a dataset ends."""


class Book:
    def __init__(self, graph: Graph, trigger: Trigger, extent: Extent = everywhere) -> None:
        self.graph = graph
        self.trigger = trigger
        self.extent = extent
        self.stamp = 0
        self.publication = 0
        self.pending: dict[str, IntervalMap[Demand]] = {}
        self.busy: dict[str, IntervalMap[Demand]] = {}
        self.runs: dict[int, Run] = {}
        self.counts = Counts()
        # Announced, but not there yet: these partitions must not be started.
        self.held: dict[str, PartitionSet] = {}
        # External data of an origin that has a version of its own: the newest that was asked for.
        self._versions: dict[str, IntervalMap[int]] = {}
        self._touched: set[str] = set()
        self._ready: dict[str, PartitionSet] = {}

    # Changes

    def submit(self, *backfills: Backfill, version: int | None = None) -> int:
        """Changes that are known together get one stamp. With a version of the external data behind them, one that is
        no newer than what was asked for before brings nothing and is dropped."""
        if version is not None:
            backfills = tuple(new for backfill in backfills if (new := self._newer(backfill, version)).partitions)
        if backfills:
            self.stamp += 1
            self.trigger.submitted(self, self.stamp, backfills)
        return self.stamp

    def _newer(self, backfill: Backfill, version: int) -> Backfill:
        known = self._versions.setdefault(backfill.table, IntervalMap(max))
        have = PartitionSet.of(*((s, e) for s, e, v in known.within(backfill.partitions) if v >= version))
        new = backfill.partitions - have
        if have:
            self.counts.asked += 1
            self.counts.subsumed += 1
        known.add(new, version)
        return Backfill(backfill.table, new, backfill.downstream, backfill.name)

    def hold(self, dataset: str, partitions: PartitionSet) -> None:
        """Something will come for these partitions: they are to be waited for, but cannot be made yet."""
        self.held[dataset] = self.held.get(dataset, EMPTY) | partitions
        self._touched.add(dataset)

    def release(self, dataset: str, partitions: PartitionSet) -> None:
        self.held[dataset] = self.held.get(dataset, EMPTY) - partitions
        self._touched.add(dataset)

    def ask(self, dataset: str, partitions: PartitionSet, demand: Demand) -> None:
        """Merge a demand into what is pending of a dataset."""
        counts, pending = self.counts, self.pending.get(dataset)
        counts.asked += 1
        if pending is None:
            self.pending[dataset] = pending = IntervalMap(Demand.__or__)
        elif pending:
            met = pending.within(partitions)
            if met:
                if all(demand <= other for _, _, other in met) and _covers(met, partitions):
                    exact = all(demand.carried == other.carried for _, _, other in met)
                    counts.repeated += exact
                    counts.subsumed += not exact
                    return
                counts.merged += 1
        pending.add(partitions, demand)
        self._touched.add(dataset)

    def add(self, dataset: str, partitions: PartitionSet, demand: Demand) -> None:
        """Add to a request that was just made: it is not another one."""
        self.pending[dataset].add(partitions, demand)
        self._touched.add(dataset)

    # What could run

    def ready(self) -> dict[str, PartitionSet]:
        """The partitions that could be updated now: nobody writes them, and all inputs are at the demanded versions."""
        for name in self._touched:
            found = self._ready_of(name)
            if found:
                self._ready[name] = found
            else:
                self._ready.pop(name, None)
        self._touched.clear()
        return self._ready

    def _ready_of(self, name: str) -> PartitionSet:
        pending = self.pending.get(name)
        if not pending:
            return EMPTY
        never = self.held.get(name, EMPTY)
        if busy := self.busy.get(name):
            never |= busy.domain()
        table, into, trigger = self.graph.tables[name], self.graph.into[name], self.trigger
        found: list[tuple[int, int]] = []
        for start, end, demand in pending.pieces():
            rest = PartitionSet(((start, end),))
            if never:
                rest -= never
            if demand.pin is None:
                for edge in into:
                    version = trigger.awaited(demand, edge.source)
                    if version is None or not rest:
                        continue
                    late = trigger.moving(self, edge.source, edge.map.required(rest), version, name)
                    if late:
                        rest -= affected_by(table, edge, late)
            found += rest.intervals
        return PartitionSet.of(*found)

    def active(self, dataset: str) -> Iterator[tuple[int, int, Demand]]:
        """All that is pending or runs."""
        for book in (self.pending, self.busy):
            if pieces := book.get(dataset):
                yield from pieces.pieces()

    def lacking(self, dataset: str, partitions: PartitionSet, version: int) -> PartitionSet:
        """Which of these partitions have a pending or running update for a change up to a version."""
        found: list[tuple[int, int]] = []
        for book in (self.pending, self.busy):
            pieces = book.get(dataset)
            if pieces:
                found += [(s, e) for s, e, demand in pieces.within(partitions) if demand.oldest <= version]
        return PartitionSet.of(*found) if found else EMPTY

    # Jobs

    def start(self, dataset: str, partitions: PartitionSet | None = None) -> Run:
        """Take what is ready (or a part of it) out of the pending demands. Those that are tried again with the inputs of
        their last try run by themselves."""
        ready = self.ready().get(dataset, EMPTY)
        wanted = ready if partitions is None else partitions
        if not wanted or not wanted <= ready:
            raise ValueError(f"{dataset}: not all of these partitions are ready")
        pieces = self.pending[dataset].within(wanted)
        pin = pieces[0][2].pin
        pieces = [piece for piece in pieces if piece[2].pin == pin]
        busy = self.busy.setdefault(dataset, IntervalMap(Demand.__or__))
        for start, end, demand in pieces:
            where = PartitionSet(((start, end),))
            self.pending[dataset].remove(where)
            busy.add(where, demand)
        self.counts.started += 1
        run = Run(self.counts.started, dataset, tuple(pieces), self.publication if pin is None else pin)
        self.runs[run.id] = run
        self._touched.add(dataset)
        return run

    def finish(self, identity: int) -> bool:
        """Publish a job's partitions, and ask its readers to follow. False if that happened before."""
        run = self._ended(identity)
        if run is None:
            return False
        self.publication += 1
        self.trigger.published(self, run)
        return True

    def fail(self, identity: int) -> bool:
        run = self._ended(identity)
        if run is None:
            return False
        self.counts.failed += 1
        pending = self.pending[run.dataset]
        for start, end, demand in run.pieces:
            pending.add(PartitionSet(((start, end),)), Demand(demand.oldest, demand.carried, run.pin))
        return True

    def _ended(self, identity: int) -> Run | None:
        run = self.runs.pop(identity, None)
        if run is not None:
            self.busy[run.dataset].remove(run.partitions)
            self._touched.update(self.trigger.concerned(self, run.dataset))
        return run

    # Reading it

    def requests(self) -> Iterator[Request]:
        """What is pending, for people."""
        for name, pieces in self.pending.items():
            for start, end, demand in pieces.pieces():
                yield Request(name, PartitionSet(((start, end),)), demand)

    @property
    def at_rest(self) -> bool:
        return not self.runs and not any(self.pending.values())


def _covers(pieces: list[tuple[int, int, Demand]], partitions: PartitionSet) -> bool:
    if len(pieces) == 1 == len(partitions.intervals):
        return pieces[0][:2] == partitions.intervals[0]
    return partitions <= PartitionSet.of(*((start, end) for start, end, _ in pieces))
