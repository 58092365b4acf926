"""Random graphs, changes and orders of completion for the live controller, and what must hold of every update.

Changes are late files, snapshots and backfills. The checker of `tests/requests/world.py`, which knows nothing of how
the controller decides, follows each of them to each partition. Beyond what it checks, each update of a partition must
contain all that had come by the first reason for it: the first change of an input, or the first request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from penstock.control.events import BackfillRequested, UpdateFailed, UpdateFinished
from penstock.model.graph import Graph
from penstock.model.partitions import PartitionSet
from penstock.model.relations import Everything
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, MINUTE_US
from penstock.requests.job import Job
from tests.control.schedule_world import World
from tests.requests.world import Checker, Key, Shape, Wrong, random_shape

# Day 0 of a shape, and how many days there are after those that change by themselves.
FIRST = 19_000
AFTER = 3


def live_shape(rng: Random) -> tuple[Shape, list[Feed]]:
    """A random graph in which each base table has a feed of its own; one without partitions is restated as a whole."""
    shape = random_shape(rng)
    tables: list[Table] = []
    feeds: list[Feed] = []
    timed: dict[str, bool] = {}
    for name in shape.graph.order:
        table = shape.graph.tables[name]
        patience_us = rng.choice([None, None, 0, 5 * MINUTE_US])
        table = replace(table, logic="x", attempts=1000, patience_us=patience_us)
        if table.is_base:
            table = replace(table, feed=f"f{name}")
            timed[name] = table.partition != "none"
            feeds.append(Feed(table.feed) if timed[name] else Feed(table.feed, mode="snapshot", timed=False))
        else:
            timed[name] = any(timed[source.table] for source in table.sources if source.table != name)
            if not timed[name]:
                others = tuple(Source(source.table) for source in table.sources if source.table != name)
                table = replace(table, partition="none", sources=others)
        # What is read by a table without partitions, or is one, is read as a whole.
        whole = {each.name for each in tables if each.partition == "none"}
        if table.partition == "none" or whole:
            sources = tuple(
                Source(source.table) if table.partition == "none" or source.table in whole else source
                for source in table.sources
            )
            table = replace(table, sources=sources)
        tables.append(table)
    return Shape(Graph(feeds, tables), shape.days), feeds


@dataclass(slots=True)
class Update:
    """A running job: what of its table it makes, and what had come by the first reason for each partition."""

    job: Job
    first: dict[int, int]
    gave_up_waiting: bool


class LiveDriver:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.shape, feeds = live_shape(rng)
        self.world = World(Random(seed), feeds, list(self.shape.graph.tables.values()), tracks=rng.choice([1, 2, 4]))
        self.changing = self.shape.days
        self.edge = self.changing + AFTER
        for feed in self.world.feeds:
            times = [(FIRST + n) * DAY_US for n in range(self.edge)]
            self.world.deliver(feed, self.world.new_rows(times))
        self._settle()
        for name in self.shape.graph.order:  # so that all is there that a change can reach
            self.world.emit(
                BackfillRequested(self.world.tick(), name, ((FIRST * DAY_US, (FIRST + self.edge) * DAY_US),))
            )
        self._settle()
        self.shape = self.existing()
        self.checker = Checker(self.shape)
        self.updates: dict[str, Update] = {}
        # What had come by the first reason for a partition, as a mask of changes; and the changes by file and request.
        self.first: dict[Key, int] = {}
        self.of_file: dict[str, tuple[int, list[int]]] = {}
        self.of_request: dict[int, int] = {}
        self.fail_rate = rng.choice([0.0, 0.0, 0.2])
        # New rows at the edge in between, where no table reads all of it.
        flowing = all(table.partition != "none" for table in self.shape.graph.tables.values())
        self.advances = flowing and rng.random() < 0.4
        self.found: Counter[str] = Counter()

    def existing(self) -> Shape:
        """The partitions that tables have now, before the edge: one that reads earlier days begins later."""
        state, shape = self.world.state, Shape(self.shape.graph, self.edge - 1)
        known: set[Key] = set()
        for name in shape.graph.order:
            whole = shape.graph.tables[name].partition == "none"
            extent = state.extent(state.tables[name])
            windowed = {edge.source for edge in shape.graph.into[name] if not isinstance(edge.map.relation, Everything)}
            shape.partitions[name] = [
                n
                for n in shape.partitions[name]
                if whole
                or (FIRST + n) * DAY_US in extent
                or any(key in known and key[0] in windowed for key in shape.inputs[name, n])
            ]
            known.update((name, n) for n in shape.partitions[name])
        shape.inputs = {
            key: [each for each in read if each in known] for key, read in shape.inputs.items() if key in known
        }
        shape.readers = {
            key: [each for each in read if each in known] for key, read in shape.readers.items() if key in known
        }
        return shape

    def _settle(self) -> None:
        world = self.world
        for _ in range(1000):
            for start in world.decide():
                world.start(start)
            if not world.running:
                return
            world.finish(next(iter(world.running)))

    def run(self, changes: int) -> None:
        left = changes
        for _ in range(1000):
            what = self.rng.random()
            if left and what < 0.25:
                self.change()
                left -= 1
            elif left and self.advances and what < 0.3:
                self.advance()
            elif self.updates and what < 0.6:
                self.end()
            elif self.start():
                continue
            elif self.updates:
                self.end()
            elif left:
                self.change()
                left -= 1
            elif (wake := self.world.controller.wake_at_us) is not None:
                self.world.now = max(self.world.now, wake)
            elif any(table.needs or table.files for table in self.world.state.tables.values()):
                raise Wrong("deadlock: nothing runs and nothing can")
            else:
                break
        else:
            raise Wrong("it never comes to rest")
        self.checker.at_rest()
        for request in self.world.state.requests.values():
            if request.finished_us is None:
                raise Wrong("a request is open though nothing is left to do")

    # What comes

    def change(self) -> None:
        name = self.rng.choice(list(self.shape.graph.tables))
        table = self.shape.graph.tables[name]
        numbers = [n for n in self.shape.partitions[name] if n < self.changing] or self.shape.partitions[name][:1]
        numbers = sorted(self.rng.sample(numbers, self.rng.randint(1, len(numbers))))
        if table.partition != "none":  # what a table does not say that it has cannot be asked for
            extent = self.world.state.extent(self.world.state.tables[name])
            numbers = [n for n in numbers if (FIRST + n) * DAY_US in extent]
        if not numbers:
            return
        bit = 1 << self.checker.changed(name, numbers)
        if table.is_base and self.rng.random() < 0.7:
            times = [(FIRST + n) * DAY_US + self.rng.randrange(1, DAY_US) for n in numbers]
            self.world.deliver(table.feed, self.world.new_rows(times))
            self.of_file[next(reversed(self.world.newest))] = bit, numbers
            return
        ranges = tuple(((FIRST + n) * DAY_US, (FIRST + n + 1) * DAY_US) for n in numbers)
        self.world.emit(BackfillRequested(self.world.tick(), name, ranges))
        number = len(self.world.log)
        self.of_request[number] = bit
        running = self.world.state.tables[name].running
        joined = set()
        for piece in running.job.pieces if running is not None else ():
            if number in piece.need.requests:
                joined.update(self.numbers(name, piece.start_us, piece.end_us))
        for n in numbers:
            if n not in joined and not table.is_base:
                self.reason((name, n))

    def advance(self) -> None:
        for feed in self.world.feeds:
            self.world.deliver(feed, self.world.new_rows([(FIRST + self.edge) * DAY_US]))
        self.edge += 1

    def reason(self, key: Key) -> None:
        self.first.setdefault(key, (1 << self.checker.changes) - 1)

    # What runs

    def numbers(self, name: str, start_us: int, end_us: int) -> list[int]:
        """The days that may change, of an interval."""
        if self.shape.graph.tables[name].partition == "none":
            return [0]
        low, high = start_us // DAY_US - FIRST, -(-end_us // DAY_US) - FIRST
        return [n for n in self.shape.partitions[name] if low <= n < high]

    def start(self) -> bool:
        starts = self.world.decide()
        for event in starts:
            job = event.job
            self.world.start(event)
            made = [n for piece in job.pieces for n in self.numbers(job.table, piece.start_us, piece.end_us)]
            for file in job.files:
                made += self.of_file.get(file.uri, (0, []))[1]
            made = sorted(set(made))
            self.checker.started(job.table, made)
            first = {n: self.first.pop((job.table, n), 0) for n in made}
            self.updates[job.id] = Update(job, first, "waited long enough" in event.why)
        return bool(starts)

    def end(self) -> None:
        identity = self.rng.choice(sorted(self.updates))
        update = self.updates.pop(identity)
        name = update.job.table
        if self.rng.random() < self.fail_rate:
            self.world.running.pop(identity)
            self.world.emit(UpdateFailed(self.world.tick(), identity, name, "no luck", 1.0))
            self.checker.gave_up(name, list(update.first))
            self.first |= {(name, n): mask for n, mask in update.first.items() if mask}
            return
        running = self.world.state.tables[name].running
        assert running is not None
        own = dict.fromkeys(update.first, 0)
        for piece in running.job.pieces:
            for n in self.numbers(name, piece.start_us, piece.end_us):
                for number in piece.need.requests:
                    own[n] |= self.of_request.get(number, 0)
        for file in update.job.files:
            bit, numbers = self.of_file.get(file.uri, (0, []))
            for n in numbers:
                own[n] |= bit
        before = len(self.world.log)
        self.world.finish(identity)
        (finished,) = [event for _, event in self.world.log[before:] if isinstance(event, UpdateFinished)]
        self.judge(name, own, update, finished.publications[0].snapshot)

    def judge(self, name: str, own: dict[int, int], update: Update, snapshot: int) -> None:
        changed = PartitionSet.of(*((p.start_us, p.end_us) for p in update.job.pieces if p.need.late))
        whole = self.shape.graph.tables[name].partition == "none"
        if not self.shape.graph.tables[name].is_base:
            # At the edge, and where only new rows came, nothing that changes is made.
            own = {n: mine for n, mine in own.items() if whole or (FIRST + n) * DAY_US in changed}
        self.checker.gave_up(name, list(update.first))
        self.found["makes"] += len(own)
        self.found["gave up waiting"] += len(own) if update.gave_up_waiting else 0
        self.checker.published(name, own, update.job.pin, snapshot, whole=not update.gave_up_waiting)
        for n in own:
            key = (name, n)
            version = self.checker.version(key, 1 << 60)
            lacks = update.first[n] & self.checker.cover.get(key, 0) & ~version.all
            if lacks and not update.gave_up_waiting:
                raise Wrong(f"{key} was made without changes {lacks:b} that had come by its first reason")
            for reader in self.shape.readers.get(key, ()):
                self.reason(reader)
        if update.job.reflects is None and not self.shape.graph.tables[name].is_base:
            self.found["reflect nothing"] += len(own)
