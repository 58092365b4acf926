"""Requests: a million open backfills over 100,000 tables on the controller that users run, and partition maps over ten years.

Times are processor time of this process, so that a busy machine does not spoil them.
"""

from __future__ import annotations

import random
import resource
from statistics import median
from time import perf_counter_ns, process_time

from penstock.control.controller import Controller
from penstock.control.events import BackfillRequested, UpdateFinished, UpdateStarted, WarehouseDeclared
from penstock.model.grain import parse_grain
from penstock.model.graph import Graph
from penstock.model.partitions import PartitionSet
from penstock.model.relations import SAME, PartitionMap, Window
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, parse_instant
from penstock.requests.job import Job, PublishedTable
from penstock.requests.plan import Backfill, plan
from penstock.scheduling.policies import DEFAULT

T0 = parse_instant("2015-01-01")
TABLES = 100_000
TEAM = 250
REQUESTS = 1_000_000
MOST_S, MOST_GIB = 60.0, 2.0
NOW = parse_instant("2025-06-01")
DECADE = PartitionSet.of((T0, parse_instant("2025-01-01")))


def run() -> list[dict[str, object]]:
    return [*submitting(), *planning(), *mapping()]


def warehouse(rng: random.Random) -> Graph:
    """Teams of tables by day that read one to three of their team's earlier tables, now and then another team's."""
    tables: list[Table] = []
    for n in range(TABLES):
        first = n - n % TEAM
        near = range(max(first, n - 40), n)
        if n - first < 10 or not near:
            tables.append(Table(f"t{n}", "day", feed="f"))
            continue
        read = set(rng.sample(near, min(len(near), rng.choice((1, 1, 2, 3)))))
        if first and rng.random() < 0.002:
            read.add(rng.randrange(first))
        windows = ((0, 1), (0, 1), (0, 1), (-1, 0), (-6, 1))
        tables.append(Table(f"t{n}", "day", sources=tuple(Source(f"t{m}", rng.choice(windows)) for m in sorted(read))))
    return Graph([Feed("f")], tables)


def submitting() -> list[dict[str, object]]:
    """Backfills of random weeks of random tables, submitted to the controller that users run, until a million are open."""
    rng = random.Random(1)
    controller, began = Controller(), process_time()
    graph = warehouse(rng)
    feeds, tables = tuple(graph.feeds.values()), tuple(graph.tables.values())
    controller.apply(WarehouseDeclared(NOW, feeds, tables, 8, DEFAULT))
    for number, name in enumerate(graph.order):
        # Each table holds ten years.
        job = Job(f"j{number}", name, "derive" if graph.tables[name].sources else "load", number)
        controller.apply(UpdateStarted(NOW, job, 0, "it is new"))
        made = PublishedTable(
            name, number + 1, True, DECADE.intervals, DECADE.intervals[0][1], DECADE.intervals[0][1] - 1, T0
        )
        controller.apply(UpdateFinished(NOW, job.id, name, (made,), 1.0))
    rows: list[dict[str, object]] = [
        {"benchmark": f"{TABLES:,} tables are declared and made", "seconds": process_time() - began}
    ]
    asked, began = 0, process_time()
    for goal in (REQUESTS // 100, REQUESTS // 10, REQUESTS):
        lap = process_time()
        before = asked
        while asked < goal:
            asked += 1
            week = T0 + rng.randrange(200) * DAY_US
            name = f"t{rng.randrange(TABLES)}"
            controller.apply(BackfillRequested(NOW + asked, name, ((week, week + 7 * DAY_US),)))
        now = process_time()
        rows.append(
            {
                "benchmark": f"submit and merge, {goal:,} requests open",
                "us": 1e6 * (now - lap) / (asked - before),
                "seconds": now - began,
                "requests": asked,
                "pieces": sum(1 for table in controller.state.tables.values() for _ in table.needs.pieces()),
                "max_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            }
        )
    # What a million requests may take, by processor time and by memory of the whole process.
    used_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows += [
        {"benchmark": f"{REQUESTS:,} requests", "value": process_time() - began, "unit": "s", "limit": MOST_S},
        {"benchmark": f"{REQUESTS:,} requests", "value": used_gib, "unit": "GiB", "limit": MOST_GIB},
    ]
    began = process_time()
    starts = controller.decide(NOW + asked)
    rows.append(
        {"benchmark": "the first decision after that", "seconds": process_time() - began, "requests": len(starts)}
    )
    return rows


def planning() -> list[dict[str, object]]:
    """`penstock plan` for a hundred backfills over the same graph."""
    rng = random.Random(2)
    graph = warehouse(rng)
    _ = graph.rank, graph.has_time, graph.chained
    weeks = [T0 + rng.randrange(2000) * DAY_US for _ in range(100)]
    asked = [Backfill(f"t{rng.randrange(TABLES)}", PartitionSet.of((week, week + 7 * DAY_US))) for week in weeks]
    began = process_time()
    found = plan(graph, asked, lambda _: DECADE)
    return [{"benchmark": f"plan: {found}", "seconds": process_time() - began, "requests": len(asked)}]


def mapping() -> list[dict[str, object]]:
    """One call of a partition map, forward and back, on ten years of minutes."""
    minute, hour, day, month = (parse_grain(text) for text in ("minute", "hour", "day", "month"))
    holes = PartitionSet.of(*((T0 + n * 97 * DAY_US, T0 + n * 97 * DAY_US + 13 * HOUR_US) for n in range(30)))
    rows: list[dict[str, object]] = []
    for text, relation, source, table in (
        ("minutes of the hour", SAME, minute, hour),
        ("minutes of the month", SAME, minute, month),
        ("last 60 minutes", Window(-60, 0), minute, minute),
        ("hours of the day", SAME, hour, day),
    ):
        found = PartitionMap(relation, source, table)
        for what, partitions in (("ten years", DECADE), ("30 ranges in them", holes)):
            aligned = partitions.hull(table)
            for way, call, given in (("affected", found.affected, partitions), ("required", found.required, aligned)):
                times = []
                for _ in range(300):
                    began = perf_counter_ns()
                    call(given)
                    times.append(perf_counter_ns() - began)
                rows.append({"benchmark": f"{way}: {text}, {what}", "us": median(times) / 1e3})
    assert DECADE.count(minute) == (DECADE.intervals[0][1] - T0) // MINUTE_US
    return rows
