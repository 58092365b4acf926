"""What several requests come to, against counting partition by partition."""

from __future__ import annotations

from random import Random

from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US
from penstock.requests.plan import Backfill, plan, reach

DAYS = 30
MONTH = PartitionSet.of((0, DAYS * DAY_US))


def within_the_month(name: str) -> PartitionSet:
    return EVERYTHING if name == "ever" else MONTH


def warehouse() -> Graph:
    return Graph(
        [Feed("f"), Feed("g")],
        [
            Table("hits", "hour", feed="f"),
            Table("days", "day", sources=(Source("hits", (0, 1)),)),
            Table("average", "day", sources=(Source("days", (-3, 0)),)),
            Table("so_far", "day", sources=(Source("days", (0, 1)), Source("so_far", (-1, 0)))),
            Table("ever", sources=(Source("average"), Source("so_far"))),
        ],
    )


def test_one_hour_reaches_its_day_the_next_three_averages_and_all_days_that_follow() -> None:
    hour = PartitionSet.of((25 * HOUR_US, 26 * HOUR_US))
    found = reach(warehouse(), {"hits": hour}, within_the_month)
    assert list(found) == list(warehouse().order)
    assert found["days"] == PartitionSet.of((DAY_US, 2 * DAY_US))
    assert found["average"] == PartitionSet.of((2 * DAY_US, 5 * DAY_US))
    assert found["so_far"] == PartitionSet.of((DAY_US, DAYS * DAY_US))
    assert found["ever"] == EVERYTHING


def test_the_sentence_that_people_read() -> None:
    # Each of four weeks of days: 7 days, the averages of 3 + 6 days, all later sums, once all time.
    weeks = [Backfill("days", PartitionSet.of((7 * w * DAY_US, 7 * (w + 1) * DAY_US))) for w in range(4)]
    found = plan(warehouse(), weeks, within_the_month)
    averages = [9, 9, 9, 8]  # the last week's averages end with the month: days 22..29
    assert found.separately == sum(7 + averages[w] + (DAYS - 7 * w) + 1 for w in range(4)) == 145
    assert found.updates == 28 + (DAYS - 1) + DAYS + 1 == 88
    assert str(found) == "4 requests: 145 updates -> 88"
    assert found.saved == 57


def test_only_this_table() -> None:
    found = plan(warehouse(), [Backfill("days", MONTH, downstream=False)], within_the_month)
    assert [(work.table, work.updates) for work in found.work] == [("days", DAYS)]


def test_what_is_pending_anyway_is_told() -> None:
    pending = {"days": PartitionSet.of((0, 3 * DAY_US))}
    found = plan(warehouse(), [Backfill("days", PartitionSet.of((2 * DAY_US, 4 * DAY_US)))], within_the_month, pending)
    assert found.work[0].already == 1 == found.already


def test_a_request_far_from_everything_is_no_work() -> None:
    assert plan(warehouse(), [Backfill("days", PartitionSet.of((-DAY_US, 0)))], within_the_month).work == ()


def _brute(graph: Graph, starts: set[tuple[str, int]], days: int) -> set[tuple[str, int]]:
    """Follow single partitions along single edges until nothing is new."""
    found, new = set(starts), set(starts)
    while new:
        following = set()
        for name, day in new:
            for edge in graph.out[name]:
                affected = edge.map.affected(PartitionSet.of((day * DAY_US, (day + 1) * DAY_US)))
                following |= {(edge.table, d) for d in range(days) if d * DAY_US in affected}
        new = following - found
        found |= new
    return found


def test_it_is_what_following_single_partitions_gives() -> None:
    days = 12
    extent = PartitionSet.of((0, days * DAY_US))
    for seed in range(300):
        rng = Random(seed)
        tables = [Table("t0", "day", feed="f")]
        for n in range(1, rng.randrange(2, 7)):
            read = rng.sample(range(n), min(n, rng.choice([1, 1, 2, 3])))
            windows = [(0, 1), (0, 1), (-1, 0), (-3, 0), (-2, 1), (0, 2), (-5, -4)]
            sources = [Source(f"t{m}", rng.choice(windows)) for m in read]
            if rng.random() < 0.3:
                sources.append(Source(f"t{n}", rng.choice([(-1, 0), (-2, 0), (-3, -2), (-4, -1)])))
            tables.append(Table(f"t{n}", "day", sources=tuple(sources)))
        graph = Graph([Feed("f")], tables)
        backfills, separately, merged = [], 0, set()
        for _ in range(rng.randrange(1, 5)):
            name, chosen = rng.choice(list(graph.tables)), rng.sample(range(days), rng.randrange(1, 4))
            backfills.append(Backfill(name, PartitionSet.of(*((d * DAY_US, (d + 1) * DAY_US) for d in chosen))))
            reached = _brute(graph, {(name, day) for day in chosen}, days)
            separately += len(reached)
            merged |= reached
        found = plan(graph, backfills, lambda _: extent)
        assert (found.updates, found.separately) == (len(merged), separately), seed
        assert {(w.table, d) for w in found.work for d in range(days) if d * DAY_US in w.partitions} == merged, seed
