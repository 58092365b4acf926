"""Backfills on Spark: merged, at most once per partition, through three levels, while running, killed in the middle; after
each every table equals what DuckDB computes from the feed files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import UpdateStarted
from penstock.control.state import State
from penstock.model.time import DAY_US, parse_instant
from tests.conftest import Write
from tests.oracle import assert_same, attach

pytestmark = pytest.mark.spark

FILES = {
    "penstock.toml": """
        name = "shop"
        [feeds.sales]
        path = "landing/*.csv"
        format = "csv"
        columns = "k string, ts timestamp, v bigint"
        time = "ts"
        partition = "day"
        settle = "0s"
    """,
    # A diamond: sums and peaks of the days meet again; above it weeks, and months of the weeks that overlap them.
    "tables/sums.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT date_trunc('day', ts) AS day, k, sum(v) AS v FROM sales GROUP BY 1, 2
    """,
    "tables/peaks.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT date_trunc('day', ts) AS day, k, max(v) AS top FROM sales GROUP BY 1, 2
    """,
    "tables/both.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT s.day, s.k, s.v, p.top FROM sums s JOIN peaks p ON s.day = p.day AND s.k = p.k
    """,
    "tables/weekly.sql": """
        -- partition = "week"
        -- time = "week"
        SELECT date_trunc('week', day) AS week, sum(v) AS v, max(top) AS top FROM both GROUP BY 1
    """,
    "tables/monthly.sql": """
        -- partition = "month"
        -- time = "month"
        -- sources.weekly = "MONTH.weeks()"
        SELECT :partition_start AS month, count(*) AS weeks, sum(v) AS v FROM weekly
    """,
}
EXPECTED = {
    "sales": "SELECT * FROM s",
    "sums": "SELECT date_trunc('day', ts), k, sum(v)::BIGINT FROM s GROUP BY 1, 2",
    "peaks": "SELECT date_trunc('day', ts), k, max(v) FROM s GROUP BY 1, 2",
    "both": "SELECT date_trunc('day', ts), k, sum(v)::BIGINT, max(v) FROM s GROUP BY 1, 2",
    "weekly": "SELECT date_trunc('week', ts), sum(v)::BIGINT, max(v) FROM s GROUP BY 1",
    "monthly": """SELECT month, count(DISTINCT date_trunc('week', ts)), sum(v)::BIGINT FROM s,
        (SELECT DISTINCT date_trunc('month', ts) AS month FROM s)
        WHERE date_trunc('week', ts) < month + INTERVAL 1 MONTH AND date_trunc('week', ts) + INTERVAL 7 DAYS > month
        GROUP BY 1""",
}
FIRST = parse_instant("2024-01-29")


def day(number: int) -> str:
    """Days are counted from Monday, 2024-01-29: month, week and leap day change on the way."""
    from penstock.model.time import format_instant

    return format_instant(FIRST + number * DAY_US).split()[0]


def deliver(folder: Path, number: int, factor: int = 1) -> None:
    """The file of a day, or a correction of it."""
    rows = [f"{k},{day(number)}T{10 + at:02}:00:00Z,{(number + at) * factor}" for at, k in enumerate("abc")]
    staged = folder / "landing" / f".{number}"
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("\n".join(["k,ts,v", *rows]) + "\n")
    staged.rename(folder / "landing" / f"{number:03}.csv")


def check(folder: Path) -> None:
    con = attach(folder)
    con.execute(
        f"CREATE VIEW s AS SELECT k, ts::TIMESTAMPTZ AS ts, v::BIGINT AS v "
        f"FROM read_csv('{folder}/landing/*.csv', header=true, all_varchar=true)"
    )
    for name, expected in EXPECTED.items():
        assert_same(con, f"SELECT * FROM lake.{name}", expected, name)
    con.close()


def made(warehouse: Warehouse, after: int) -> Counter[tuple[str, str]]:
    """How often each partition was made since an event of the log."""
    found: Counter[tuple[str, str]] = Counter()
    with warehouse.store.read() as conn:
        for _, event in warehouse.store.events(conn, after):
            if isinstance(event, UpdateStarted):
                grain = warehouse.declared.graph.tables[event.job.table].grain
                for piece in event.job.pieces:
                    at = piece.start_us
                    while at < piece.end_us:
                        found[event.job.table, str((at - FIRST) // DAY_US)] += 1
                        at = grain.shift(at, 1)
    return found


def run(warehouse: Warehouse) -> State:
    state = warehouse.run(until_idle=True)
    assert not [table.error for table in state.tables.values() if table.error]
    return state


@pytest.fixture
def shop(project: Write, spark: SparkSession) -> Warehouse:
    folder = project(FILES)
    for number in range(40):
        deliver(folder, number)
    warehouse = Warehouse(folder, spark=spark)
    run(warehouse)
    return warehouse


def test_overlapping_backfills_are_one_campaign(shop: Warehouse) -> None:
    folder = shop.declared.declarations.folder
    check(folder)
    edges = {name: table.edge_us for name, table in shop.state().tables.items()}
    # What it would come to, before anybody asks.
    wishes = [("both", f"{day(3)}..{day(8)}"), ("sales", f"{day(5)}..{day(9)}"), ("sums", f"{day(1)}..{day(6)}")]
    planned = shop.plan(*wishes)
    before = shop.state().applied
    asked = [shop.backfill(name, span, reason="audit").request for name, span in wishes]
    first, second, third = (each.request for each in asked)
    assert asked[1].merged_with == (first,)
    assert asked[2].merged_with == (first, second)
    # The second is further up, so that the first waits for it; of the third a part could run at once.
    assert {each.request: each.stage for each in shop.requests()} == dict(
        zip((first, second, third), ("waiting", "queued", "queued"), strict=True)
    )
    state = run(shop)
    check(folder)
    times = made(shop, before)
    assert set(times.values()) == {1}, "a partition was made more than once"
    assert {name: sum(n for (table, _), n in times.items() if table == name) for name in shop.declared.graph.order} == {
        work.table: work.partitions for work in planned.work
    }
    # Days 5 to 9, and through the others 1 to 9; these are two weeks, and the first of them lies in two months.
    assert planned.summary == f"3 requests: {planned.separately} updates -> {planned.updates}"
    assert {work.table: work.partitions for work in planned.work} == {
        "sales": 5, "sums": 9, "peaks": 5, "both": 9, "weekly": 2, "monthly": 2,
    }  # fmt: skip
    assert {name: table.edge_us for name, table in state.tables.items()} == edges
    assert all(each.stage == "done" and each.left == 0 for each in shop.requests())
