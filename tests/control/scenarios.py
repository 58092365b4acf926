"""Random warehouses and what happens to them: graphs of tables, files in and out of order, corrections, crashes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from penstock.control.events import (
    BackfillRequested,
    Event,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileQuarantined,
    PunctuationArrived,
    RequestCancelled,
    TableRetried,
    UpdateStarted,
    UpdateStopped,
)
from penstock.control.readiness import held_by_group, ready_work
from penstock.declare.check_names import circles
from penstock.model.freshness import out_of_reach
from penstock.model.grain import WHOLE, Grain, nested, parse_grain
from penstock.model.graph import Graph
from penstock.model.partitions import PartitionSet
from penstock.model.relations import fits
from penstock.model.tables import ALL, Feed, Source, Table
from penstock.model.time import BEGIN_US, END_US, HOUR_US, MINUTE_US
from penstock.scheduling.protocol import UpdatePolicy
from tests.control.schedule_world import NEVER, World, denoted, made, mixed

T0 = 1_709_200_800_000_000  # 2024-02-29 10:00, so that days, weeks and months change on the way


def random_window(rng: Random, source: Grain, table: Grain) -> tuple[int, int] | None:
    if source is WHOLE or table is WHOLE or rng.random() < 0.06:
        return None
    if not fits(source, table) and not nested(table, source) and rng.random() < 0.5:
        return (0, 1)
    return rng.choice([(0, 1)] * 8 + [(-1, 0), (-1, 0), (-2, 1), (-1, 1), (-3, 0), (-2, -1), (0, 2), (1, 2)])


def random_feed(rng: Random, name: str) -> Feed:
    kind = rng.random()
    if kind < 0.12:
        return Feed(name, mode="snapshot", timed=rng.random() < 0.5)
    if kind < 0.18:
        return Feed(name, timed=False)
    if kind < 0.26:
        return Feed(name, mode="snapshot", timed=True)
    lateness = rng.choice([0, 0, 30 * MINUTE_US, 2 * HOUR_US, 7 * HOUR_US])
    return Feed(name, lateness_us=lateness, punctuated=rng.random() < 0.2)


def random_base(rng: Random, feed: Feed, name: str) -> Table:
    partition = rng.choice(["hour", "360m", "day", "day", "none"])
    if not feed.timed or (feed.mode == "snapshot" and rng.random() < 0.5):
        partition = "none"
    return Table(name, partition, feed=feed.name, logic="x", attempts=1000)


def random_view(rng: Random, name: str, feeds: list[Feed], above: list[Table]) -> Table:
    flows = Graph(feeds, above).has_time
    zone = "America/New_York" if rng.random() < 0.1 else "UTC"
    partition = rng.choice(["hour", "hour", "360m", "360m", "day", "day", "day", "none", "week", "month"])
    count = rng.choice([1, 1, 1, 2, 2, 3])
    # Rather what was made last, so that graphs get deep.
    read = {rng.choice(above[-3:] if rng.random() < 0.6 else above).name for _ in range(count)}
    chosen = [table for table in above if table.name in read]
    lineage = {above_ for table in chosen for above_ in Graph(feeds, above).ancestors[table.name]} | read
    if any(table.partition in ("week", "month") for table in above if table.name in lineage) and partition in (
        "hour",
        "360m",
    ):
        partition = "day"  # else there are too many partitions for a quick test
    if not any(flows[table.name] for table in chosen):
        partition = "none"
    grain = parse_grain(partition, zone)
    sources = [Source(table.name, random_window(rng, table.grain, grain)) for table in chosen]
    table = Table(name, partition, zone, sources=tuple(sources), logic="x", attempts=1000)
    if len(sources) == 1 and flows[chosen[0].name]:
        exact = chosen[0].is_base or chosen[0].exact_time
        same = sources[0].window in (None, (0, 1))
        table = replace(table, exact_time=exact and same and rng.random() < 0.5, foldable=rng.random() < 0.7)
    elif table.partition == "none" or all(s.window == (0, 1) for s in sources if flows[s.table]):
        looked_up = tuple(table.name for table in chosen if not flows[table.name])
        table = replace(table, foldable=Random(name + repr(sources)).random() < 0.6, looked_up=looked_up)
    if grain is not WHOLE and any(flows[t.name] for t in chosen):
        if rng.random() < 0.12 and not table.exact_time and partition not in ("hour",):
            own = Source(name, rng.choice([(-1, 0), (-1, 0), (-2, 0)]))
            table = replace(table, sources=(*table.sources, own), foldable=False)
        if rng.random() < 0.25:
            table = replace(table, chop=rng.choice([1, 2, 3]))
    if rng.random() < 0.25:
        table = replace(table, when="closed")
    return replace(table, priority=rng.choice([0.1, 1.0, 5.0]))


def random_warehouse(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Mostly anything at all; and the shapes in which rows are most easily lost or doubled."""
    feeds, tables = rng.choice([anything, anything, folds, folds, diamonds, chains])(rng)
    own = Random(repr(tables))
    patience = {table.name: own.choice([0, 0, None, 5 * MINUTE_US, 3 * HOUR_US]) for table in tables}
    known = {table.name: own.choice(["", "", "", "10:30", "11:00..14:00", "Thu 12:15"]) for table in tables}
    tables = [replace(t, patience_us=patience[t.name], restated=known[t.name]) for t in tables]
    return feeds, [unwaited(own, table) if own.random() < 0.25 else table for table in tables]


def unwaited(rng: Random, table: Table) -> Table:
    """The time of some sources does not hold the table back: of all but one, or of all of a table without partitions."""
    others = [source.table for source in table.sources if source.table != table.name]
    kept = {rng.choice(others)} if others and (table.partition != "none" or rng.random() < 0.7) else set()
    sources = [replace(s, waits=s.table in kept or s.table == table.name or rng.random() < 0.3) for s in table.sources]
    if not all(source.waits for source in sources if source.table != table.name):
        table = replace(table, exact_time=table.exact_time and len(others) > 1)
    return replace(table, sources=tuple(sources))


def outside(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Others make some of the tables, when they are told to."""
    feeds, tables = random_warehouse(rng)
    theirs = [table.name for table in tables if not table.is_base and rng.random() < 0.5]
    return feeds, [
        replace(table, external="files", foldable=False, exact_time=False) if table.name in theirs else table
        for table in tables
    ]


def grouped(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Some of the tables are updated together."""
    feeds, tables = rng.choice([anything, anything, folds, diamonds, fans])(rng)
    for number in range(rng.choice([1, 1, 2])):
        free = [n for n, table in enumerate(tables) if not table.is_base and table.group is None]
        rng.shuffle(free)
        for size in (3, 2):
            tried = list(tables)
            for n in free[:size]:
                tried[n] = replace(tried[n], group=f"g{number}")
            if not list(circles(Graph(feeds, tried))):
                tables = tried
                break
    return feeds, tables


def fans(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Several views over one source, and a view over them."""
    feeds = [Feed("f0", lateness_us=rng.choice([0, HOUR_US]))]
    tables = [Table("b0", rng.choice(["hour", "360m"]), feed="f0", logic="x", attempts=1000)]
    for n in range(rng.choice([2, 3, 4])):
        partition = rng.choice(["360m", "day", "none"])
        window = None if partition == "none" else (0, 1)
        fold = rng.random() < 0.7
        tables.append(view(rng, f"v{n}", partition, Source("b0", window), foldable=fold))
    read = [table for table in tables[1:] if table.partition != "none"][:2]
    if read:
        tables.append(view(rng, "d0", "day", *(Source(table.name, (0, 1)) for table in read)))
    return feeds, tables


def anything(rng: Random) -> tuple[list[Feed], list[Table]]:
    feeds = [random_feed(rng, f"f{n}") for n in range(rng.choice([1, 1, 2, 2, 3]))]
    if not any(feed.timed for feed in feeds):
        feeds[0] = Feed("f0", lateness_us=30 * MINUTE_US)
    tables = [random_base(rng, feed, f"b{n}") for n, feed in enumerate(feeds)]
    if rng.random() < 0.1:
        tables.append(random_base(rng, feeds[0], "b9"))
    for n in range(rng.choice([1, 2, 3, 3, 4, 5])):
        tables.append(random_view(rng, f"v{n}", feeds, tables))
    return feeds, tables


def view(rng: Random, name: str, partition: str, *sources: Source, **more) -> Table:
    when = "closed" if rng.random() < 0.2 else "continuous"
    return Table(name, partition, sources=sources, logic="x", attempts=1000, when=when, **more)


def folds(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Chains of views with one source each, row by row or summed up, most of them folded."""
    punctuated = rng.random() < 0.5
    feeds = [Feed("f0", lateness_us=rng.choice([0, HOUR_US, 5 * HOUR_US]), punctuated=punctuated)]
    tables = [Table("b0", rng.choice(["hour", "360m", "day"]), feed="f0", logic="x", attempts=1000)]
    order = ["hour", "360m", "day", "none"]
    for n in range(rng.choice([1, 2, 3, 4])):
        source = rng.choice(tables)
        partition = rng.choice(order[order.index(source.partition) :])
        window = None if "none" in (partition, source.partition) else (0, 1)
        exact = (source.is_base or source.exact_time) and rng.random() < 0.6
        fold = rng.random() < 0.75
        tables.append(view(rng, f"v{n}", partition, Source(source.name, window), exact_time=exact, foldable=fold))
    return feeds, tables


def diamonds(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Roll-ups of the same rows that meet again, once or twice, perhaps with a table that has no time."""
    feeds = [
        Feed("f0", lateness_us=rng.choice([0, HOUR_US])),
        Feed("f1", mode="snapshot"),
        Feed("f2", lateness_us=HOUR_US),
    ]
    feeds = feeds[: rng.choice([1, 1, 2, 3])]
    tables = [Table("b0", rng.choice(["hour", "day"]), feed="f0", logic="x", attempts=1000)]
    if len(feeds) > 1:
        tables.append(Table("b1", feed="f1", logic="x", attempts=1000))
    if len(feeds) > 2:
        tables.append(Table("b2", "day", feed="f2", logic="x", attempts=1000))
    upper = [
        view(
            rng,
            f"u{n}",
            rng.choice(["hour", "360m", "day", "day"]),
            Source("b2" if n == 2 and len(feeds) > 2 else "b0", (0, 1)),
        )
        for n in range(rng.choice([2, 3]))
    ]
    if tables[0].partition == "day":
        upper = [replace(table, partition="day") for table in upper]
    tables += upper
    for n in range(rng.choice([1, 1, 2])):
        read = rng.sample(upper, 2) + ([tables[1]] if len(feeds) > 1 and rng.random() < 0.5 else [])
        if n and rng.random() < 0.5:
            read.append(tables[-1])
        partition = rng.choice(["day", "day", "week", "none"])
        windows = [None if "none" in (partition, t.partition) else rng.choice([(0, 1), (0, 1), (-1, 1)]) for t in read]
        sources = [Source(t.name, w) for t, w in zip(read, windows, strict=True)]
        tables.append(view(rng, f"d{n}", partition, *sources, chop=rng.choice([None, None, 1])))
        upper.append(tables[-1])
    return feeds, tables


def chains(rng: Random) -> tuple[list[Feed], list[Table]]:
    """Tables that carry something on from partition to partition."""
    feeds = [Feed("f0", lateness_us=rng.choice([0, HOUR_US]), punctuated=rng.random() < 0.3)]
    tables = [Table("b0", "360m", feed="f0", logic="x", attempts=1000)]
    if rng.random() < 0.5:
        tables.append(view(rng, "v0", "360m", Source("b0", (0, 1)), exact_time=rng.random() < 0.5))
    read = tables[-1].name
    own = Source("c0", rng.choice([(-1, 0), (-1, 0), (-2, 0)]))
    tables.append(view(rng, "c0", rng.choice(["360m", "day"]), Source(read, (0, 1)), own))
    below = [Source("c0", rng.choice([(0, 1), (-1, 1)])), Source("b0", (0, 1))][: rng.choice([1, 2])]
    tables.append(view(rng, "v1", "day", *below))
    return feeds, tables


class Scenario:
    """One random history, driven to its end."""

    def __init__(
        self,
        seed: int,
        *,
        calm: bool = False,
        asking: bool = False,
        promising: bool = False,
        warehouse: tuple[list[Feed], list[Table]] | None = None,
        policy: UpdatePolicy | None = None,
    ) -> None:
        self.rng = rng = Random(seed)
        feeds, tables = warehouse or random_warehouse(rng)
        # Whether feeds often promise something else than before.
        self.calm, self.asking, self.promising = calm, asking, promising
        if asking and rng.random() < 0.6:
            tables = self.policies(tables)
        self.world = World(rng, feeds, tables, tracks=rng.choice([1, 2, 2, 3]), policy=policy)
        self.world.watches_claims = promising
        self.seed = seed
        self.clock = {feed.name: T0 + rng.randrange(0, 90 * MINUTE_US) for feed in feeds}
        self.step_us = rng.choice([20 * MINUTE_US, HOUR_US, 3 * HOUR_US])
        self.trouble = 0.0 if calm else rng.choice([0.0, 0.0, 0.1, 0.3])
        self.world.fail_rate = self.trouble
        self.new_tables = 0
        self.backfills = 0
        # Requests that must be carried out, because they show what nobody else noticed.
        self.corrections: set[int] = set()

    # What happens outside

    def file(self, feed: Feed, late: bool = False) -> None:
        world, rng = self.world, self.rng
        if not feed.timed or feed.mode == "snapshot":
            at = self.clock[feed.name]
            self.clock[feed.name] += rng.randrange(1, 12 * HOUR_US)
            # One whole partition of the coarsest of its tables, restated.
            times = [at + rng.randrange(-HOUR_US, HOUR_US) for _ in range(rng.randrange(1, 4))]
            world.deliver(feed.name, world.new_rows(times))
            return
        at = self.clock[feed.name]
        end = at + rng.randrange(1, self.step_us)
        times = [rng.randrange(at, end) for _ in range(rng.randrange(0 if rng.random() < 0.1 else 1, 5))]
        if not late or rng.random() < 0.5:
            self.clock[feed.name] = end
        else:
            times = []
        if late:
            back = rng.choice([feed.lateness_us, HOUR_US, 8 * HOUR_US, 40 * HOUR_US])
            times += [at - rng.randrange(0, back + 1) for _ in range(rng.randrange(1, 3))]
        world.deliver(feed.name, world.new_rows(times))

    def rewrite(self) -> None:
        world, rng = self.world, self.rng
        candidates = [uri for uri in world.newest if uri not in world.state.quarantine]
        if not candidates:
            return
        uri = rng.choice(candidates)
        delivery = world.newest[uri]
        kept = [row for row in delivery.rows if rng.random() < 0.7]
        moved = [rng.choice(delivery.rows)[0] + rng.randrange(-HOUR_US, HOUR_US)] if delivery.rows else []
        feed = world.feeds[delivery.feed]
        if feed.mode == "snapshot":
            kept, moved = delivery.rows[:1], []
        world.deliver(delivery.feed, kept + world.new_rows(moved), uri)

    def quarantine(self) -> None:
        world, rng = self.world, self.rng
        for name, table in world.state.tables.items():
            fed = [t.name for t in world.tables.values() if t.feed == table.table.feed]
            free = [
                uri
                for uri in table.files
                if sum(known == uri for known, _ in world.delivered) == 1
                and all(uri in world.state.tables[other].files for other in fed)
            ]
            if table.table.is_base and free and name in fed:
                uri = rng.choice(free)
                delivery = world.newest[uri]
                world.emit(FileQuarantined(world.tick(), delivery.feed, delivery.file, "bad"))
                if rng.random() < 0.5:
                    world.deliver(delivery.feed, delivery.rows, uri)
                return

    def declare(self) -> None:
        """New tables, changed tables; with a new process, as the engine does it."""
        world, rng = self.world, self.rng
        world.redefined = True
        feeds, tables = list(world.feeds.values()), list(world.tables.values())
        derived = [n for n, table in enumerate(tables) if not table.is_base]
        what = rng.random()
        if self.promising and what < 0.2:
            n = rng.choice(derived)
            tables[n] = unwaited(rng, tables[n])
        elif what < (0.7 if self.promising else 0.12):
            n = rng.randrange(len(feeds))
            if feeds[n].timed and feeds[n].mode == "append":
                lateness = rng.choice([0, 30 * MINUTE_US, 2 * HOUR_US, 7 * HOUR_US])
                feeds[n] = replace(feeds[n], lateness_us=lateness, punctuated=rng.random() < 0.3)
        elif what < 0.4:
            tables.append(random_view(rng, f"w{self.new_tables}", feeds, tables))
            self.new_tables += 1
        elif what < 0.75:
            n = rng.choice(derived)
            tables[n] = replace(tables[n], logic=tables[n].logic + "x")
        elif what < 0.85:
            n = rng.choice([n for n, table in enumerate(tables) if table.is_base])
            tables[n] = replace(tables[n], logic=tables[n].logic + "x")
        elif what < 0.9:
            read = {source.table for table in tables for source in table.sources if source.table != table.name}
            gone = [n for n in derived if tables[n].name not in read]
            if len(gone) > 1:
                del tables[gone[0]]
        else:
            n = rng.choice(derived)
            table = tables[n]
            if table.chop is None:
                tables[n] = replace(table, chop=2 if table.grain is not WHOLE else None)
            else:
                tables[n] = replace(table, chop=None, when="continuous")
        world.crash()
        world.declare(feeds, tables, rng.choice([1, 2, 3]))

    def backfill(self) -> None:
        """Partitions of any table again; or a request is taken back, open or not."""
        world, rng = self.world, self.rng
        self.backfills += 1
        if world.state.requests and rng.random() < 0.25:
            request = rng.choice(list(world.state.requests.values()))
            if request.number in self.corrections:
                return
            world.emit(RequestCancelled(world.tick(), request.number, request.table))
            return
        name = rng.choice(list(world.tables))
        low = T0 + rng.randrange(-6 * HOUR_US, 60 * HOUR_US)
        ranges = ((low, low + rng.choice([1, HOUR_US, 8 * HOUR_US, 60 * HOUR_US])),)
        reason = rng.choice(["", "", "fix"])
        if world.tables[name].is_base and rng.random() < 0.7:
            ranges = self.correct_silently(world.tables[name]) or ranges
        world.emit(BackfillRequested(world.tick(), name, ranges, reason, downstream=rng.random() < 0.8))

    def correct_silently(self, table: Table) -> tuple[tuple[int, int], ...] | None:
        """Other content of a file that nobody notices: only making its partitions again shows it, once and everywhere."""
        world = self.world
        shared = sum(other.feed == table.feed for other in world.tables.values()) > 1
        if shared or world.feeds[table.feed].mode == "snapshot" or not world.graph.has_time[table.name]:
            return None
        loaded = [d for d in world.loaded(table) if d.rows and d is world.newest[d.file.uri]]
        if not loaded:
            return None
        delivery = self.rng.choice(loaded)
        delivery.rows = world.new_rows([time for time, _ in delivery.rows])
        self.corrections.add(len(world.log) + 1)
        times = [time for time, _ in delivery.rows]
        return ((min(times), max(times) + 1),)

    def policies(self, tables: list[Table]) -> list[Table]:
        """Some tables follow only some changes, or stop or skip what overruns them."""
        rng = self.rng
        return [
            replace(
                table,
                propagate=rng.choice([ALL, ALL, (), ("new",), ("fix",), ("new", "fix")]),
                overrun=rng.choice(["queue", "queue", "preempt", "skip"]),
                optional=tuple(source.table for source in table.sources[1:] if rng.random() < 0.5),
            )
            if not table.is_base and rng.random() < 0.4
            else table
            for table in tables
        ]

    def stop(self) -> None:
        """The runtime stops what was overrun, if it does not finish before."""
        world = self.world
        for name, table in world.state.tables.items():
            if table.overrun and self.rng.random() < 0.7:
                assert table.running is not None
                world.running.pop(table.running.job.id)
                world.emit(UpdateStopped(world.tick(), table.running.job.id, name, 1.0))

    def outside(self) -> None:
        rng, world = self.rng, self.world
        what = rng.random()
        if self.asking and rng.random() < 0.25:
            self.backfill()
            return
        feed = rng.choice(list(world.feeds.values()))
        if feed.punctuated and rng.random() < 0.3:
            what = 0.75
        if what < 0.55:
            self.file(feed)
        elif what < 0.67:
            self.file(feed, late=True)
        elif what < 0.73:
            self.rewrite()
        elif what < 0.80:
            feeds = [f for f in world.feeds.values() if f.punctuated]
            if feeds:
                feed = rng.choice(feeds)
                upto = self.clock[feed.name] - rng.choice([0, 0, HOUR_US])
                world.emit(PunctuationArrived(world.tick(), feed.name, upto))
        elif self.calm:
            self.file(feed)
        elif what < 0.84:
            self.quarantine()
        elif what < 0.88:
            world.save()
        elif what < 0.92 and self.trouble:
            world.crash()
        elif what < 0.95 and (self.promising or rng.random() < 0.5):
            self.declare()
        elif what >= 0.95:
            self.silence(feed)

    def silence(self, feed: Feed) -> None:
        """Users pause and resume feeds, and feeds fall silent and come back."""
        world, known = self.world, self.world.state.feeds[feed.name]
        what: Event
        if self.rng.random() < 0.6:
            at, name = world.tick(), feed.name
            what = FeedPaused(at, name) if known.paused_us is None else FeedResumed(at, name)
        elif known.out_since_us is None:
            what = FeedWentOut(world.tick(), feed.name, world.now, known.heard.last_us)
        else:
            what = FeedCameBack(world.tick(), feed.name, known.out_since_us)
        world.emit(what)

    def resume(self) -> None:
        for name, known in self.world.state.feeds.items():
            if known.paused_us is not None:
                self.world.emit(FeedResumed(self.world.tick(), name))

    # What the runtime does

    def jobs(self, *, settling: bool = False) -> bool:
        """Decide and start; sometimes other things happen between the two."""
        world, rng = self.world, self.rng
        starts: list[UpdateStarted] = world.decide()
        if starts and rng.random() < 0.2 and not self.calm:
            for _ in range(rng.randrange(1, 3)):
                if world.running and (settling or rng.random() < 0.5):
                    world.finish(rng.choice(sorted(world.running)))
                elif not settling:
                    feed = rng.choice(list(world.feeds.values()))
                    self.file(feed, late=rng.random() < 0.5)
                    if rng.random() < 0.3:
                        self.rewrite()
                    if self.asking:
                        self.backfill()
        for start in starts:
            world.start(start)
        return bool(starts)

    def turn(self) -> None:
        rng, world = self.rng, self.world
        what = rng.random()
        self.stop()
        if what < 0.3:
            self.outside()
        elif what < 0.65 or not world.running:
            self.jobs()
        else:
            world.finish(rng.choice(sorted(world.running)))

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def release(self) -> None:
        """Nothing that was held is lost: every table follows everything again, and what was to stay is asked for."""
        world = self.world
        if not any(table.held for table in world.state.tables.values()):
            return
        tables = [replace(table, propagate=ALL, overrun="queue") for table in world.tables.values()]
        world.declare(list(world.feeds.values()), tables)
        self.settle()
        for name in world.graph.order:
            held = world.state.tables[name].held
            if held:
                assert all(need.parked for _, _, need in held.pieces())
                world.emit(BackfillRequested(world.tick(), name, held.domain().intervals))
        self.settle()
        assert not any(table.held for table in world.state.tables.values())

    def settle(self, limit: int = 2000) -> None:
        """No more trouble: run until nothing is left to do."""
        world, rng = self.world, self.rng
        world.fail_rate = 0.0
        self.resume()
        for name, table in list(world.state.tables.items()):
            if table.failed:
                world.emit(TableRetried(world.tick(), name))
        for _ in range(limit):
            started = self.jobs(settling=True) if rng.random() < 0.7 or not world.running else False
            if world.running and (not started or rng.random() < 0.5):
                world.finish(rng.choice(sorted(world.running)))
            elif not started and not world.running:
                if world.controller.idle:
                    if any(table.needs for table in world.state.tables.values()):
                        return
                    assert all(request.finished_us is not None for request in world.state.requests.values())
                    return
                wake = world.controller.wake_at_us
                if wake is not None and wake > world.now:
                    world.now = wake
        raise AssertionError("it never comes to rest")


# What must hold when nothing is left to do


def check_at_rest(world: World) -> int:
    """Every table is what its definition says; how many partitions were compared."""
    checked = 0
    memo: dict = {}
    moving = unreachable_tables(world)
    for name in world.graph.order:
        table = world.graph.tables[name]
        if table.is_base:
            check_base(world, table)
        else:
            check_pending(world, name, moving)
            checked += check_derived(world, table, memo)
    return checked


def unreachable_tables(world: World) -> set[str]:
    return {
        name
        for name, table in world.state.tables.items()
        if not table.table.is_base and table.needs and ready_work(world.state, table).unreachable
    }


def check_pending(world: World, name: str, unreachable: set[str]) -> None:
    """What is pending cannot be made: it is out of reach, or waits for something that is."""
    table = world.state.tables[name]
    assert table.running is None
    if not table.needs:
        return
    if held_by_group(world.state, table) is not None:
        return  # tables of a group become visible together; the one that holds it back is looked at by itself
    work = ready_work(world.state, table)
    assert not work.pieces, f"{name} could run"
    if work.unreachable:
        assert world.state.source_edges(name) is None, f"{name} waits though its sources are there"
    rest = table.needs.domain() - work.unreachable - work.unsettled
    if name not in world.graph.chained or not (work.unreachable or work.unsettled):
        assert not rest, f"{name} has pending work that nothing holds back"
    if work.unsettled:
        assert work.waits_for & unreachable, f"{name} waits for {work.waits_for}, which could run"


def check_base(world: World, table: Table) -> None:
    """A base table holds the rows of its files, each once."""
    state = world.state.tables[table.name]
    assert not state.files and not state.needs
    feed = world.feeds[table.feed]
    content = world.contents[table.name]
    have = sorted(row for start in content.starts for row in content.at(start))
    if feed.mode == "snapshot":
        return
    want = sorted(
        (time, mixed(len(table.logic), key))
        for delivery in world.held.get(table.name, {}).values()
        for time, key in delivery.rows
    )
    assert have == want, f"{table.name} lost or doubled rows"


def check_derived(world: World, table: Table, memo: dict) -> int:
    state, name = world.state.tables[table.name], table.name
    graph = world.graph
    content = world.contents[name]
    if not state.exists:
        held_back = (
            not world.state.sources_exist(name) or not graph.has_time[name] or state.seen_us is None or state.lacks
        )
        assert held_back, f"{name} should exist"
        if graph.has_time[name] and state.seen_us is None and world.state.sources_exist(name):
            edge, begin = world.state.trailing_edge(name), world.state.begin(name)
            assert edge is None or begin is None or begin >= edge, f"{name} should have begun"
        return 0
    if not graph.has_time[name]:
        assert not state.needs
        if state.held:
            return 0
        edge = None
        assert content.at(BEGIN_US) == current(world, table, BEGIN_US, None), f"{name} is not what its sources say"
        return 1
    edge = world.state.trailing_edge(name)
    if state.seen_us is None:
        # A feed that was complete up to its newest row is now complete up to markers, of which none has come.
        assert edge is None and state.edge_us is None and state.lacks
        return 0
    pending = state.lacks
    gone = out_of_reach(world.state.source_edges(name) or [], table.grain, state.seen_us)
    if edge is not None and edge > state.seen_us:
        raise AssertionError(f"{name} should have gone on to {edge}")
    if not pending:
        assert state.edge_us == state.seen_us, f"{name} is complete up to {state.seen_us}, not {state.edge_us}"
    else:
        assert state.edge_us is None or state.edge_us <= state.seen_us
    # Everything that it has or should have.
    begin = world.state.begin(name)
    starts = {start for start in content.starts if content.at(start)}
    if table.grain is WHOLE:
        starts.add(BEGIN_US)
    elif begin is not None and begin < state.seen_us:
        starts |= set(PartitionSet.of(table.grain.hull(begin, state.seen_us)).starts(table.grain))
    checked = 0
    for start in sorted(starts):
        if start in pending:
            continue
        assert start < state.seen_us, f"{name} has rows beyond its edge"
        if start not in gone:
            want = current(world, table, start, state.seen_us)
            assert content.at(start) == want, f"{name} at {start}: not what its sources hold now"
        if firm(world, name):
            want = sorted(denoted(world, name, start, state.seen_us, {}, memo))
            assert content.at(start) == want, f"{name} at {start}: not what the base tables say"
        checked += 1
    if not state.lacks and not world.redefined and firm(world, name):
        assert state.consistent, f"{name} has come to rest between two states"
    return checked


def current(world: World, table: Table, start: int, edge: int | None) -> list[tuple[int, int]]:
    """A full recompute from what the sources hold now."""
    graph = world.graph

    def read(way, required: PartitionSet) -> list[tuple[int, int]]:
        cut = way.map.cut(edge) if edge is not None and graph.holds(way) and way.source != table.name else None
        return [(row.time, row.key) for row in world.contents[way.source].read(required, NEVER - 1, cut)]

    return sorted(made(table, graph, start, read))


def firm(world: World, name: str) -> bool:
    """Whether a table is a function of the base tables and its edge alone: nothing above it changes old partitions, or
    still has to be made again."""
    above = world.graph.ancestors[name] | {name}
    chained = world.graph.chained
    if any(reader in above for _, reader in world.graph.optional) or reads_as_it_is(world, above):
        return False
    return not any(world.graph.fluid[n] or ((n != name or n in chained) and world.state.tables[n].lacks) for n in above)


def reads_as_it_is(world: World, names: Iterable[str]) -> bool:
    """Whether any of these tables reads a derived one as it is, whatever time that has reached."""
    edges = (edge for name in names for edge in world.graph.into[name])
    return any(not edge.waits and not world.graph.tables[edge.source].is_base for edge in edges)


def check_reflects(world: World, rng: Random, sample: int = 6) -> int:
    """A version that says which publications of the base tables it reflects holds exactly those, up to its edge."""
    if world.redefined:
        return 0
    said = [entry for entry in world.published if entry[3] is not None and not world.graph.tables[entry[0]].is_base]
    checked = 0
    for name, snapshot, complete, reflects in rng.sample(said, min(sample, len(said))):
        table = world.graph.tables[name]
        lineage = world.graph.ancestors[name] | {name}
        # What is used as it is may hold more than what is before the edge.
        uncut = {(s, r) for s, r in world.graph.optional if not world.graph.tables[s].is_base}
        if any(world.graph.fluid[n] for n in lineage) or any(reader in lineage for _, reader in uncut):
            continue
        if reads_as_it_is(world, lineage):
            continue
        edge = complete if world.graph.has_time[name] else END_US
        content = world.contents[name]
        memo: dict = {}
        for start in content.starts:
            if start < edge:
                have = [row for row in content.at(start, snapshot) if not table.exact_time or row[0] < edge]
                want = sorted(denoted(world, name, start, edge, dict(reflects), memo))
                assert have == want, f"{name} at {start} does not hold what version {snapshot} says it reflects"
                checked += 1
    return checked
