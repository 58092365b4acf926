"""The book of requests on a virtual clock: backfills come, jobs take as long as a distribution says, and a ready update
may be kept in the queue for a while so that it meets others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, IntervalMap, PartitionSet
from penstock.papers.requests.book import Book, Run, Trigger
from penstock.papers.requests.request import OWN, Demand
from penstock.papers.requests.triggers import Lazy
from penstock.requests.plan import Backfill, Extent, affected_by, everywhere, reach

RunTime = Callable[[str, Random], float]


@dataclass(frozen=True)
class Arrival:
    """Backfills that are issued together. `version` is that of the external data behind them, if they have one."""

    at_s: float
    backfills: tuple[Backfill, ...]
    version: int | None = None


@dataclass
class Outcome:
    """What was done: updates count partitions."""

    updates: Counter[str] = field(default_factory=Counter)
    runs: list[tuple[float, str, int]] = field(default_factory=list)
    asked: int = 0
    repeated: int = 0
    # By dataset, requests that were neither exact duplicates nor became an update of their own.
    merged: Counter[str] = field(default_factory=Counter)
    ended_s: float = 0.0
    # Of each dataset the longest time from the first of the changes in an update to its publication.
    delay_s: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.updates.total()


class _Counting(Book):
    """Notes where requests were merged that were not exact duplicates."""

    def __init__(self, graph: Graph, trigger: Trigger, extent: Extent) -> None:
        super().__init__(graph, trigger, extent)
        self.merged: Counter[str] = Counter()

    def ask(self, dataset: str, partitions: PartitionSet, demand: Demand) -> None:
        before = self.counts.merged + self.counts.subsumed
        super().ask(dataset, partitions, demand)
        self.merged[dataset] += self.counts.merged + self.counts.subsumed - before


def simulate(
    graph: Graph,
    trigger: Trigger,
    arrivals: Sequence[Arrival],
    run_time: RunTime,
    rng: Random,
    *,
    queue_s: Mapping[str, float] | None = None,
    extent: Extent = everywhere,
    by_partition: bool = False,
) -> Outcome:
    """Until everything is at rest. Any number of jobs may run at the same time; with `by_partition` each partition is a
    job of its own. A dataset's ready work waits for `queue_s` from when there was some."""
    book, outcome, queue = _Counting(graph, trigger, extent), Outcome(), queue_s or {}
    waiting: dict[str, float] = {}  # since when a dataset has ready work
    issued = [0.0]  # when each stamp was submitted
    events: list[tuple[float, int, Arrival | Run | None]] = []
    for number, arrival in enumerate(arrivals):
        heappush(events, (arrival.at_s, number, arrival))
    number = len(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:  # whatever happens at one moment is known together
            what = heappop(events)[2]
            if isinstance(what, Arrival):
                if book.submit(*what.backfills, version=what.version) == len(issued):
                    issued.append(now)
            elif isinstance(what, Run):
                book.finish(what.id)
                _note(outcome, what, now, issued, graph)
        for name in [name for name in waiting if name not in book.ready()]:
            del waiting[name]
        for name, ready in list(book.ready().items()):
            since = waiting.setdefault(name, now)
            due = since + queue.get(name, 0.0)
            if due > now:
                number += 1
                heappush(events, (due, number, None))
                continue
            del waiting[name]
            for part in _parts(ready, graph, name) if by_partition else (ready,):
                run = book.start(name, part)
                number += 1
                heappush(events, (now + run_time(name, rng), number, run))
    assert book.at_rest, "the simulation ended before the work"
    outcome.asked, outcome.repeated = book.counts.asked, book.counts.repeated
    outcome.merged = book.merged
    return outcome


def _parts(ready: PartitionSet, graph: Graph, name: str) -> Iterable[PartitionSet]:
    grain = graph.tables[name].grain
    return [PartitionSet((grain.hull(start, start + 1),)) for start in ready.starts(grain)]


def _note(outcome: Outcome, run: Run, now: float, issued: list[float], graph: Graph) -> None:
    name = run.dataset
    count = run.partitions.count(graph.tables[name].grain)
    outcome.updates[name] += count
    outcome.runs.append((now, name, count))
    outcome.ended_s = now
    oldest = min(demand.oldest for _, _, demand in run.pieces)
    outcome.delay_s[name] = max(outcome.delay_s.get(name, 0.0), now - issued[oldest])


# Ways of triggering to compare with


class Immediate(Lazy):
    """Naive: each new version makes its readers run, whatever else is on its way to them."""

    def _ask(self, book: Book, asked: list[tuple[str, PartitionSet, Demand]]) -> None:
        for name, there, demand in asked:
            if there:
                book.ask(name, there, demand)

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        return EMPTY

    def concerned(self, book: Book, dataset: str) -> Iterable[str]:
        return (dataset,)


class Covered(Lazy):
    """Lazy as it is printed (Xu, Gao, Davidson 2023, Sec. 3.3): a request waits for those inputs that the same backfill
    covers, but knows nothing of other backfills, and takes a larger version number for a newer content."""

    def __init__(self) -> None:
        super().__init__()
        self._cones: dict[int, dict[str, PartitionSet]] = {}
        self._versions: dict[str, IntervalMap[int]] = {}

    def submitted(self, book: Book, stamp: int, backfills: Iterable[Backfill]) -> None:
        backfills = tuple(backfills)
        cone = self._cones.setdefault(stamp, {})
        for backfill in backfills:
            for name, partitions in reach(book.graph, {backfill.table: backfill.partitions}, book.extent).items():
                cone[name] = cone.get(name, EMPTY) | partitions
            book.ask(backfill.table, backfill.partitions & book.extent(backfill.table), Demand(stamp, {OWN: stamp}))

    def published(self, book: Book, run: Run) -> None:
        graph = book.graph
        known = self._versions.setdefault(run.dataset, IntervalMap(max))
        for start, end, demand in run.pieces:
            changed = PartitionSet(((start, end),))
            known.add(changed, demand.newest)
            for edge in graph.out[run.dataset]:
                there = (
                    affected_by(graph.tables[edge.table], edge, changed) if graph.has_time[run.dataset] else EVERYTHING
                )
                there &= book.extent(edge.table)
                if there:
                    book.ask(edge.table, there, self._demand(book, run.dataset, edge.table, there, demand))

    def _demand(self, book: Book, source: str, reader: str, there: PartitionSet, demand: Demand) -> Demand:
        carried = {source: demand.newest}
        for stamp in set(demand.carried.values()):
            for edge in book.graph.into[reader]:
                covered = self._cones[stamp].get(edge.source)
                if covered and edge.source != reader and covered & edge.map.required(there):
                    carried[edge.source] = max(stamp, carried.get(edge.source, 0))
        return Demand(demand.oldest, carried)

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        known = self._versions.get(dataset)
        have = [(s, e) for s, e, v in known.within(partitions) if v >= version] if known else []
        covered = self._cones.get(version, {}).get(dataset, EMPTY)
        return (partitions & covered) - PartitionSet.of(*have)

    def concerned(self, book: Book, dataset: str) -> Iterable[str]:
        return (dataset, *(edge.table for edge in book.graph.out[dataset]))
