"""Random graphs, changes and orders of completion for the live controller, and what must hold of every update.

Changes are late files, corrected and withdrawn ones, snapshots, other logic and backfills. The checker of `tests/requests/world.py`, which knows nothing of how
the controller decides, follows each of them to each partition. Beyond what it checks, each update of a partition must
contain all that had come by the first reason for it: the first change of an input, or the first request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from penstock.control.events import BackfillRequested, UpdateFailed, UpdateFinished, UpdateStarted
from penstock.control.readiness import blocked
from penstock.declare.check_names import circles
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.relations import Everything
from penstock.model.tables import AUTO, Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from penstock.requests.budget import OVERTAKING_US
from penstock.requests.job import Job
from penstock.requests.needs import partitions_of
from penstock.requests.windows import is_open
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


def settings(rng: Random, shape: Shape, feeds: list[Feed]) -> Shape:
    """The same graph with whatever can be said of tables besides, in combination."""
    tables = list(shape.graph.tables.values())
    for n, table in enumerate(tables):
        tables[n] = replace(
            table,
            queue_us=rng.choice([0, 0, MINUTE_US, 10 * MINUTE_US, AUTO]),
            restated=rng.choice(["", "", "00:05", "00:10..00:20", "00:00..01:00"]),
            target_us=rng.choice([None, None, MINUTE_US, 10 * MINUTE_US, HOUR_US]),
            late_cost=rng.choice([0.0, 0.0, 60.0, 3600.0]),
            chop=rng.choice([None, None, 1, 2]) if table.partition != "none" and not table.is_base else None,
            external="files" if not table.is_base and rng.random() < 0.2 else "",
        )
    views = [n for n, table in enumerate(tables) if not (table.is_base or table.external)]
    grouped = list(tables)
    for n in rng.sample(views, min(len(views), rng.choice([0, 2, 3]))):
        grouped[n] = replace(grouped[n], group="g")
    graph = Graph(feeds, grouped)
    return Shape(Graph(feeds, tables) if list(circles(graph)) else graph, shape.days)


@dataclass(slots=True)
class Update:
    """A running job: what of its table it makes, what had come by the first reason for each partition, and the changes of
    logic that it knows."""

    job: Job
    first: dict[int, int]
    # The tables for whose changes it waited long enough, as it says itself.
    gave_up: frozenset[str]
    logic: int
    # The base tables that collected for as long as targets allow, for which nobody waits.
    collected: frozenset[str]


@dataclass(slots=True)
class Change:
    """Changes of a base table that come with a file, or with its withdrawal, and the days they are in."""

    bits: int = 0
    numbers: frozenset[int] = frozenset()

    def __or__(self, other: Change) -> Change:
        return Change(self.bits | other.bits, self.numbers | other.numbers)


def bits(mask: int) -> Iterator[int]:
    while mask:
        yield mask & -mask
        mask &= mask - 1


class LiveDriver:
    def __init__(self, seed: int, *, set_up: bool = False) -> None:
        self.rng = rng = Random(seed)
        self.shape, feeds = live_shape(rng)
        self.set_up = set_up
        if set_up:
            self.shape = settings(Random(-seed), self.shape, feeds)
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
        self.updates: dict[str, list[Update]] = {}
        # What had come by the first reason for a partition, as a mask of changes; and the changes by file and request.
        self.first: dict[Key, int] = {}
        self.of_file: dict[tuple[str, str], Change] = {}
        self.of_withdrawal: dict[str, Change] = {}
        self.of_request: dict[int, int] = {}
        self.of_logic: Counter[str] = Counter()
        self.fail_rate = rng.choice([0.0, 0.0, 0.2])
        # New rows at the edge in between, where no table reads all of it.
        flowing = all(table.partition != "none" for table in self.shape.graph.tables.values())
        self.advances = flowing and rng.random() < 0.7
        # The days that each content of a file has rows in.
        self.days: dict[tuple[str, str], frozenset[int]] = {}
        # The changes that came before the newest rows at the edge.
        self.before_advance = 0
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
            if world.running:
                world.finish(next(iter(world.running)))
            elif (wake := world.controller.wake_at_us) is not None:
                world.now = max(world.now, wake)
            else:
                return

    def run(self, changes: int) -> None:
        left = changes
        for _ in range(1000):
            what = self.rng.random()
            if left and what < 0.25:
                self.change()
                left -= 1
            elif left and self.advances and what < 0.35:
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
        for name, table in self.world.state.tables.items():
            origins = self.world.graph.origins[name]
            newest = {base: self.world.state.tables[base].snapshot for base in origins}
            if not table.table.is_base and not (table.consistent and table.reflects == newest):
                raise Wrong(f"{name} reflects {table.reflects} at rest, not {newest}")
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
        what = self.rng.random()
        if table.is_base and what < 0.7:
            self.file(name, numbers, what)
            return
        if not table.is_base and what < 0.15:
            self.other_logic(name)
            return
        bit = 1 << self.checker.changed(name, numbers)
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

    def file(self, name: str, numbers: list[int], what: float) -> None:
        """A new file, another content of one, or one is taken back; also while it waits or is being loaded."""
        feed = self.shape.graph.tables[name].feed
        state, newest = self.world.state.tables[name], self.world.newest
        loading = {file.uri for file in state.running.job.files} if state.running is not None else set()
        known = sorted({uri for uri, _ in self.of_file if uri in newest and uri.startswith(f"{feed}/")})
        pending = loading | set(state.files)
        if what < 0.2:
            # Of what was never loaded, nothing can be taken back; and where a correction waits, only that is changed which is loaded.
            held = {uri: self.loaded_days(uri) for uri in known}
            known = [
                uri
                for uri in known
                if held[uri] and (uri not in pending or held[uri] == self.of_file[self.newest(uri)].numbers)
            ]
        uri = self.rng.choice(known) if known and what < 0.4 else None
        old = Change() if uri is None else self.of_file[self.newest(uri)]
        if uri is not None and uri not in pending:  # what it held and does not hold any more is out already
            old = replace(old, numbers=self.days[self.newest(uri)])
        withdrawn = uri is not None and what < 0.2
        changed = old.numbers if withdrawn else old.numbers | set(numbers)
        new = Change(1 << self.checker.changed(name, sorted(changed)), changed)
        # What it said may never be loaded, and what it says now takes its place: in all days, for else nothing may change in some.
        if uri in pending:
            new |= old
            numbers = sorted(new.numbers)
        if withdrawn:
            self.world.withdraw(uri)
            self.of_withdrawal[uri] = new
            return
        times = [(FIRST + n) * DAY_US + self.rng.randrange(1, DAY_US) for n in numbers]
        self.world.deliver(feed, self.world.new_rows(times), uri)
        uri = uri or next(reversed(newest))
        self.of_file[self.newest(uri)] = new
        self.days[self.newest(uri)] = frozenset(numbers)

    def loaded_days(self, uri: str) -> frozenset[int]:
        """The days in which the table has rows of a file now."""
        contents = [
            checksum for (each, checksum), found in self.world.delivered.items() if each == uri and found.loaded_by
        ]
        return self.days[uri, contents[-1]] if contents else frozenset()

    def newest(self, uri: str) -> tuple[str, str]:
        return uri, self.world.newest[uri].file.checksum

    def other_logic(self, name: str) -> None:
        numbers = self.shape.partitions[name]
        self.of_logic[name] |= 1 << self.checker.changed(name, numbers)
        tables = [
            replace(table, logic=table.logic + "x") if table.name == name else table
            for table in self.world.tables.values()
        ]
        self.world.declare(list(self.world.feeds.values()), tables)
        for n in numbers:
            self.reason((name, n))

    def advance(self) -> None:
        for feed in self.world.feeds:
            self.world.deliver(feed, self.world.new_rows([(FIRST + self.edge) * DAY_US]))
        self.edge += 1
        self.before_advance = (1 << self.checker.changes) - 1

    def reason(self, key: Key) -> None:
        self.first.setdefault(key, (1 << self.checker.changes) - 1)

    # What runs

    def numbers(self, name: str, start_us: int, end_us: int) -> list[int]:
        """The days that may change, of an interval."""
        if self.shape.graph.tables[name].partition == "none":
            return [0]
        low, high = start_us // DAY_US - FIRST, -(-end_us // DAY_US) - FIRST
        return [n for n in self.shape.partitions[name] if low <= n < high]

    def brought(self, job: Job) -> list[Change]:
        """What a load brings beside what was asked for."""
        files = [self.of_file.get((file.uri, file.checksum), Change()) for file in job.files]
        return files + [self.of_withdrawal.get(uri, Change()) for uri in job.withdrawn]

    def start(self) -> bool:
        if self.advances and not self.set_up:  # who is set up to collect keeps what follows waiting
            self.edge_is_not_kept_waiting()
        state = self.world.state
        collected = frozenset(name for name, table in state.tables.items() if is_open(state, table))
        starts = self.world.decide()
        for event in starts:
            self.world.start(event)
            self.updates[event.job.id] = [self.began(event, job, collected) for job in event.job.each]
        return bool(starts)

    def began(self, event: UpdateStarted, job: Job, collected: frozenset[str]) -> Update:
        # Where a file of a base table got other content, that alone changes its partitions.
        pieces = [piece for piece in job.pieces if job.kind != "load" or piece.need.requests]
        made = [n for piece in pieces for n in self.numbers(job.table, piece.start_us, piece.end_us)]
        for change in self.brought(job):
            made += change.numbers
        made = sorted(set(made))
        self.checker.started(job.table, made)
        if job.reflects is None and not self.shape.graph.tables[job.table].is_base and not self.between(job):
            raise Wrong(f"a version of {job.table} reflects nothing, though nothing else is to be made")
        first = {n: self.first.pop((job.table, n), 0) for n in made}
        return Update(job, first, self.gave_up(event), self.of_logic[job.table], collected)

    def between(self, job: Job) -> bool:
        """Whether more of a table is to be made than a job that has just started makes, also in consequence of it, or something
        is to be made from which it would be made."""
        name, graph, tables = job.table, self.world.graph, self.world.state.tables
        follows = name in graph.chained and job.pieces[0].end_us < (tables[name].seen_us or 0)
        if tables[name].lacks or follows:
            return True
        for one in graph.ancestors[name]:
            if graph.tables[one].is_base:
                continue
            running = tables[one].running
            moving = tables[one].lacks | (partitions_of(running.job.pieces) if running is not None else EMPTY)
            numbers = [n for start, end in moving for n in self.numbers(one, start, end)]
            # Windows reach two days ahead, to days that are not followed.
            followed_us = (FIRST + self.shape.days - 2) * DAY_US
            beyond = moving and (one in graph.chained or moving.intervals[-1][1] > followed_us)
            if beyond or any(key[0] == name for key in self.shape.reached(one, numbers)):
                return True
        return False

    def gave_up(self, event: UpdateStarted) -> frozenset[str]:
        """Nobody gives up before a time that is long enough; and who does says what it no longer waits for."""
        _, said, tables = event.why.partition("it waited long enough for what comes through ")
        if not said:
            return frozenset()
        late = (piece.need.known_us for job in event.job.each for piece in job.pieces if piece.need.late)
        told = min(late, default=0)
        pressed = any(table.target_us is not None for table in self.shape.graph.tables.values())
        if event.at_us < told + OVERTAKING_US and not pressed:
            raise Wrong(f"{event.job.table} gave up waiting after {(event.at_us - told) / SECOND_US:.0f} s")
        return frozenset(tables.split(", "))

    def excused(self, key: Key, bit: int, update: Update) -> bool:
        """Whether a change that is not in a partition was on its way through a table for which the update waited long enough."""
        new, seen = list(self.shape.inputs[key]), set()
        while new:
            source = new.pop()
            if source in seen or not self.checker.cover.get(source, 0) & bit:
                continue
            seen.add(source)
            if not self.checker.version(source, update.job.pin).all & bit:
                if source[0] in update.gave_up | update.collected:
                    return True
                new += self.shape.inputs[source]
        return False

    def edge_is_not_kept_waiting(self) -> None:
        """New rows may be taken up as soon as all that came before them is there, whatever comes later."""
        world, graph = self.world, self.world.graph
        ready = world.controller.ready_now()
        for name, table in world.state.tables.items():
            if (
                table.table.is_base
                or name in graph.chained
                or graph.fluid[name]
                or blocked(world.state, table) is not None
            ):
                continue
            if table.seen_us is None or table.edge_us is None or table.seen_us <= table.edge_us:
                continue
            sources = [key for n in self.shape.partitions[name] for key in self.shape.inputs[name, n]]
            before = self.before_advance
            if all(
                not before & self.checker.cover.get(key, 0) & ~self.checker.version(key, 1 << 60).all for key in sources
            ):
                self.found["edges"] += 1
                if name not in ready:
                    raise Wrong(f"{name} keeps new rows at the edge waiting")

    def end(self) -> None:
        identity = self.rng.choice(sorted(self.updates))
        updates = self.updates.pop(identity)
        if self.rng.random() < self.fail_rate:
            self.world.running.pop(identity)
            self.world.emit(UpdateFailed(self.world.tick(), identity, updates[0].job.table, "no luck", 1.0))
            for update in updates:
                self.checker.gave_up(update.job.table, list(update.first))
                self.first |= {(update.job.table, n): mask for n, mask in update.first.items() if mask}
            return
        own = [self.brings(update) for update in updates]
        before = len(self.world.log)
        self.world.finish(identity)
        (finished,) = [event for _, event in self.world.log[before:] if isinstance(event, UpdateFinished)]
        for update, mine, publication in zip(updates, own, finished.publications, strict=True):
            self.judge(update.job.table, mine, update, publication.snapshot)

    def brings(self, update: Update) -> dict[int, int]:
        """The changes of the table's own that an update brings to each partition."""
        name = update.job.table
        running = self.world.state.tables[name].running
        assert running is not None
        own = dict.fromkeys(update.first, 0)
        for piece in running.job.pieces:
            for n in self.numbers(name, piece.start_us, piece.end_us):
                for number in piece.need.requests:
                    own[n] |= self.of_request.get(number, 0)
        for change in self.brought(update.job):
            for n in change.numbers:
                own[n] |= change.bits
        return {n: mine | update.logic for n, mine in own.items()}

    def judge(self, name: str, own: dict[int, int], update: Update, snapshot: int) -> None:
        changed = PartitionSet.of(*((p.start_us, p.end_us) for p in update.job.pieces if p.need.late))
        whole = self.shape.graph.tables[name].partition == "none"
        if not self.shape.graph.tables[name].is_base:
            # At the edge, and where only new rows came, nothing that changes is made.
            own = {n: mine for n, mine in own.items() if whole or (FIRST + n) * DAY_US in changed}
        self.checker.gave_up(name, list(update.first))
        self.found["makes"] += len(own)
        self.found["gave up waiting"] += len(own) if update.gave_up else 0
        self.checker.published(
            name,
            own,
            update.job.pin,
            snapshot,
            excused=lambda key, missing: all(self.excused(key, bit, update) for bit in bits(missing)),
        )
        for n in own:
            key = (name, n)
            version = self.checker.version(key, 1 << 60)
            lacks = update.first[n] & self.checker.cover.get(key, 0) & ~version.all
            if any(not self.excused(key, bit, update) for bit in bits(lacks)):
                raise Wrong(f"{key} was made without changes {lacks:b} that had come by its first reason")
            for reader in self.shape.readers.get(key, ()):
                self.reason(reader)
