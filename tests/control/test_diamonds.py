"""A change goes through the graph once: exact counts, whatever the order in which jobs run."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.control.events import UpdateStarted
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, parse_instant
from tests.control.scenarios import Scenario, check_at_rest

DAY_1 = parse_instant("2024-03-01")
SAME = (0, 1)


def base(name: str = "a", feed: str = "f", partition: str = "hour") -> Table:
    return Table(name, partition, feed=feed)


def view(name: str, *sources: str, partition: str = "hour", window: tuple[int, int] = SAME, **more) -> Table:
    return Table(name, partition, sources=tuple(Source(source, window) for source in sources), **more)


DIAMOND = [base(), view("b", "a"), view("c", "a"), view("d", "b", "c")]
ROWS = [base(), view("b", "a", exact_time=True), view("c", "a", exact_time=True), view("d", "b", "c")]
DEEP = [base(), view("b", "a"), view("c1", "a"), view("c2", "c1"), view("c3", "c2"), view("d", "b", "c3", "a")]
DOUBLE = [*DIAMOND, view("e", "a", "d"), view("g", "d"), view("h", "e", "g")]
GRAPHS = {"diamond": DIAMOND, "rows": ROWS, "deep": DEEP, "double": DOUBLE}


def scenario(seed: int, tables: list[Table], feeds: list[Feed] | None = None) -> Scenario:
    return Scenario(seed, calm=True, warehouse=(feeds or [Feed("f")], tables))


def load(run: Scenario, *times: int, feed: str = "f") -> Counter[tuple[str, int]]:
    """Deliver rows and run to the end; how often each partition was made for it."""
    before = Counter(run.world.counts)
    run.world.deliver(feed, run.world.new_rows(list(times)))
    run.settle()
    check_at_rest(run.world)
    return Counter(run.world.counts) - before


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("seed", range(8))
def test_in_order_every_table_is_made_once_per_advance(graph: str, seed: int) -> None:
    tables = GRAPHS[graph]
    derived = [table.name for table in tables if not table.is_base]
    run = scenario(seed, tables)
    load(run, DAY_1 + 5 * MINUTE_US)
    for minute in range(10, 150, 10):
        made = load(run, DAY_1 + minute * MINUTE_US)
        hour = DAY_1 + minute // 60 * HOUR_US
        # The edge is just behind the row: at a full hour the old hour gets its last microseconds, too.
        hours = [hour - HOUR_US, hour] if minute % 60 == 0 else [hour]
        assert made == {(name, start): 1 for name in derived for start in hours}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("seed", range(12))
def test_a_late_change_goes_through_a_diamond_once(graph: str, seed: int) -> None:
    tables = GRAPHS[graph]
    derived = [table.name for table in tables if not table.is_base]
    run = scenario(seed, tables)
    load(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(6)))
    edges = {name: run.world.state.tables[name].edge_us for name in derived}
    made = load(run, DAY_1 + 2 * HOUR_US + 7)
    assert made == {(name, DAY_1 + 2 * HOUR_US): 1 for name in derived}
    made = load(run, DAY_1 + 7, DAY_1 + 3 * HOUR_US + 7)
    assert made == {(name, DAY_1 + hour * HOUR_US): 1 for name in derived for hour in (0, 3)}
    # A backfill does not make anything look fresher.
    assert {name: run.world.state.tables[name].edge_us for name in derived} == edges


@pytest.mark.parametrize("seed", range(10))
def test_late_and_new_rows_in_one_file(seed: int) -> None:
    run = scenario(seed, DIAMOND)
    load(run, DAY_1 + 1, DAY_1 + HOUR_US + 1)
    made = load(run, DAY_1 + 2, DAY_1 + HOUR_US + 30 * MINUTE_US)
    assert made == {(name, DAY_1 + hour * HOUR_US): 1 for name in "bcd" for hour in (0, 1)}


@pytest.mark.parametrize("seed", range(10))
def test_roll_ups_of_all_time_that_meet(seed: int) -> None:
    """They cannot be cut at a time, so their reader waits until both have come to the same."""
    tables = [base(), view("x", "a"), whole("b", "a"), whole("c", "x"), whole("d", "b", "c")]
    run = scenario(seed, tables)
    load(run, DAY_1 + 1)
    for minute in range(5, 60, 5):
        made = load(run, DAY_1 + minute * MINUTE_US)
        assert {name: count for (name, _), count in made.items()} == {"x": 1, "b": 1, "c": 1, "d": 1}


def whole(name: str, *sources: str) -> Table:
    return Table(name, sources=tuple(Source(source) for source in sources))


def test_roll_ups_of_all_time_from_feeds_that_are_never_equally_far() -> None:
    """No common edge ever comes; their reader must not wait for one."""
    tables = [base("a", "f"), base("b", "g"), whole("x", "a"), whole("y", "b"), whole("z", "x", "y")]
    run = scenario(1, tables, [Feed("f"), Feed("g")])
    for minute in range(1, 40, 3):
        load(run, DAY_1 + minute * MINUTE_US, feed="f")
        made = load(run, DAY_1 + (minute // 2) * MINUTE_US + 1, feed="g")
        assert any(name == "z" for name, _ in made)


@pytest.mark.parametrize("seed", range(8))
def test_a_table_that_reads_its_past_goes_partition_by_partition(seed: int) -> None:
    tables = [
        base(),
        Table("s", "hour", sources=(Source("a", SAME), Source("s", (-1, 0)))),
        view("t", "s", partition="day"),
    ]
    run = scenario(seed, tables)
    made = load(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(5)))
    assert made == {("s", DAY_1 + hour * HOUR_US): 1 for hour in range(5)} | {("t", DAY_1): made["t", DAY_1]}
    starts = [e for _, e in run.world.log if isinstance(e, UpdateStarted) and e.job.table == "s"]
    assert [piece.start_us for start in starts for piece in start.job.pieces] == [DAY_1 + h * HOUR_US for h in range(5)]
    # A late row in the second hour: that one and all that follow, in order, once.
    made = load(run, DAY_1 + HOUR_US + 9)
    assert {key: count for key, count in made.items() if key[0] == "s"} == {
        ("s", DAY_1 + hour * HOUR_US): 1 for hour in range(1, 5)
    }
    assert made["t", DAY_1] == 1  # its reader waits for the last of them


@pytest.mark.parametrize("seed", range(6))
def test_what_cannot_be_cut_comes_on_with_each_of_its_sources(seed: int) -> None:
    """`v` is made from whole days of a, also where the day is still in progress, and from hours of `u` that are long over. So
    new rows of a change all of its day, at once and again when `u` has come: new rows at the edge never wait. That is
    the one kind of table of which one file may make a partition more than once: but no more often than it has
    sources."""
    tables = [
        base(partition="day"),
        Table("u", "hour", sources=(Source("a", (-3, 0)),)),
        Table("v", "360m", sources=(Source("a", SAME), Source("u", (-2, -1)))),
    ]
    run = scenario(seed, tables)
    load(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(0, 60, 5)))
    most = 0
    for times in ([70], [20], [75, 30], [100]):
        made = load(run, *(DAY_1 + hour * HOUR_US + 7 for hour in times))
        assert {count for (name, _), count in made.items() if name == "u"} == {1}
        most = max(most, *(count for (name, _), count in made.items() if name == "v"))
    assert most == 2


def test_a_stream_of_late_rows_does_not_hold_anybody_up() -> None:
    """Late rows keep coming faster than they are worked off; still the bottom of the diamond is brought up to date, at
    most once for each of them."""
    run = scenario(3, DIAMOND)
    world = run.world
    load(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(3)))
    before = world.counts["d", DAY_1]
    loads = 0
    for turn in range(240):
        if turn % 3 == 0:
            world.deliver("f", world.new_rows([DAY_1 + 10 + turn]))
            loads += 1
        for start in world.decide():
            world.start(start)
        if world.running:
            world.finish(run.rng.choice(sorted(world.running)))
    assert 10 < world.counts["d", DAY_1] - before <= loads


def test_an_advance_of_one_source_waits_for_the_other() -> None:
    """Roll-ups b and c: when only b has moved on, the hour in progress cannot be made as of the old edge again."""
    run = scenario(1, DIAMOND)
    load(run, DAY_1 + 5 * MINUTE_US)
    world = run.world
    world.deliver("f", world.new_rows([DAY_1 + 20 * MINUTE_US]))
    order = []
    while True:
        starts = world.decide()
        for start in starts:
            world.start(start)
        if not world.running:
            break
        done = min(world.running, key=lambda job: (world.running[job][0].table, job))
        order.append(world.running[done][0].table)
        world.finish(done)
    assert order == ["a", "b", "c", "d"]


def test_a_day_of_hours_is_made_from_the_hours_that_changed() -> None:
    tables = [base(), view("h", "a"), view("d", "h", partition="day")]
    run = scenario(1, tables)
    load(run, *(DAY_1 + hour * HOUR_US for hour in range(0, 60, 5)))
    made = load(run, DAY_1 + 13 * HOUR_US)
    assert made == {("h", DAY_1 + 13 * HOUR_US): 1, ("d", DAY_1): 1}
    made = load(run, DAY_1 + 25 * HOUR_US + 3)
    assert made == {("h", DAY_1 + 25 * HOUR_US): 1, ("d", DAY_1 + DAY_US): 1}
