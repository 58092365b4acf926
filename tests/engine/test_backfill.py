"""Backfills on Spark: merged, at most once per partition, through three levels, while running, killed in the middle; after
each every table equals what DuckDB computes from the feed files."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.controller import Controller
from penstock.control.events import UpdateStarted
from penstock.control.state import State
from penstock.model.time import DAY_US, format_instant, parse_instant
from tests.conftest import Write
from tests.control.replay import replay
from tests.engine.crashing import write_project
from tests.oracle import assert_same, attach, rows

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
    return format_instant(FIRST + number * DAY_US).split()[0]


def deliver(folder: Path, number: int, factor: int = 1) -> None:
    """The file of a day, or a correction of it."""
    rows = [f"{k},{day(number)}T{10 + at:02}:00:00Z,{(number + at) * factor}" for at, k in enumerate("abc")]
    staged = folder / "landing" / f".{number}"
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("\n".join(["k,ts,v", *rows]) + "\n")
    staged.rename(folder / "landing" / f"{number:03}.csv")


def correct_silently(folder: Path, number: int) -> None:
    """Other values in the file of a day that nobody can notice: same size, same time. Only making it again shows them."""
    path = folder / "landing" / f"{number:03}.csv"
    before = path.stat()
    header, *rows = path.read_text().splitlines()
    rows = [re.sub(r"\d+$", lambda v: "9" * len(v[0]) if v[0].strip("9") else "8" * len(v[0]), row) for row in rows]
    path.write_text("\n".join([header, *rows]) + "\n")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


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


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    """One warehouse for the tests of this module, which go on from where the last one left it."""
    folder = tmp_path_factory.mktemp("shop")
    write_project(folder, FILES)
    for number in range(24):
        deliver(folder, number)
    with Warehouse(folder, spark=spark) as warehouse:
        run(warehouse)
        yield warehouse


def test_overlapping_backfills_are_one_campaign(shop: Warehouse) -> None:
    folder = shop.declared.declarations.folder
    check(folder)
    edges = {name: table.edge_us for name, table in shop.state().tables.items()}
    # What it would come to, before anybody asks.
    wishes = [("both", f"{day(3)}..{day(8)}"), ("sales", f"{day(5)}..{day(9)}"), ("sums", f"{day(1)}..{day(6)}")]
    planned = shop.plan(*wishes)
    before = shop.state().applied
    for number in range(5, 10):
        correct_silently(folder, number)
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
    # Of days 1 and 2 the sums are the same as before: what is made from them is not made again.
    assert {name: sum(n for (table, _), n in times.items() if table == name) for name in shop.declared.graph.order} == {
        work.table: work.partitions - (2 if work.table == "both" else 0) for work in planned.work
    }
    assert state.tables["both"].counts.spared >= 2
    # Days 5 to 9, and through the others 1 to 9; these are two weeks, and the first of them lies in two months.
    assert planned.summary == f"3 requests: {planned.separately} updates -> {planned.updates}"
    assert {work.table: work.partitions for work in planned.work} == {
        "sales": 5, "sums": 9, "peaks": 5, "both": 9, "weekly": 2, "monthly": 2,
    }  # fmt: skip
    assert {name: table.edge_us for name, table in state.tables.items()} == edges
    assert all(each.stage == "done" and each.left == 0 for each in shop.requests())


def test_requests_and_corrections_while_it_runs(shop: Warehouse) -> None:
    """A correction of a file and backfills come while updates run; another process asks. All of it through three levels and
    into the months of the weeks, against DuckDB."""
    folder = shop.declared.declarations.folder
    before = shop.state().applied
    deliver(folder, 3, factor=10)
    asked: list[int] = []

    def on_round(controller: Controller) -> None:
        busy = {running.job.table for running in controller.state.busy.values()}
        if busy and len(asked) < 2:
            with Warehouse(folder) as other:
                span = [f"{day(2)}..{day(4)}", f"{day(3)}..{day(5)}"][len(asked)]
                asked.append(other.backfill("sums", span, deadline_us=1).request.request)
                if len(asked) == 2:
                    deliver(folder, 20, factor=7)

    state = shop.run(until_idle=True, on_round=on_round)
    assert len(asked) == 2 and not [table.error for table in state.tables.values() if table.error]
    check(folder)
    assert {each.request: each.stage for each in shop.requests()}.items() >= dict.fromkeys(asked, "done").items()
    assert max(made(shop, before).values()) <= 3  # the correction, and twice a request that met a running update
    with shop.store.read() as conn:
        assert replay(list(shop.store.events(conn))) == []


POLICIES = {
    "penstock.toml": FILES["penstock.toml"]
    + """
        [feeds.rates]
        path = "rates/*.csv"
        format = "csv"
        columns = "k string, at timestamp, rate bigint"
        time = "at"
        partition = "day"
        settle = "0s"
        [feeds.places]
        path = "places/*.csv"
        format = "csv"
        columns = "k string, place string"
        mode = "snapshot"
        settle = "0s"
        [feeds.stock]
        path = "stock/*.csv"
        format = "csv"
        columns = "at timestamp, n int"
        time = "at"
        mode = "snapshot"
        settle = "0s"
    """,
    "tables/places.sql": """
        -- feed = "places"
        SELECT k, place FROM places
    """,
    "tables/stock.sql": """
        -- feed = "stock"
        -- partition = "day"
        SELECT at, n FROM stock
    """,
    "tables/priced.sql": """
        -- partition = "day"
        -- time = "ts"
        -- absent.rates = "empty"
        SELECT s.k, s.ts, s.v * coalesce(r.rate, 1) AS v FROM sales s
        LEFT JOIN rates r ON r.k = s.k AND date_trunc('day', r.at) = date_trunc('day', s.ts)
    """,
    "tables/frozen.sql": """
        -- partition = "day"
        -- time = "day"
        -- propagate = "none"
        SELECT date_trunc('day', ts) AS day, sum(v) AS v FROM sales GROUP BY 1
    """,
    "tables/slow.py": """
        from pathlib import Path

        import penstock as ps

        HERE = Path(__file__).parents[1]


        @ps.table(partition="day", time="ts", overrun="preempt")
        def slow(sales):
            if (HERE / "sleep").exists():
                return sales.selectExpr("k", "ts", "v", "java_method('java.lang.Thread', 'sleep', 600000L) AS slept")
            return sales.selectExpr("k", "ts", "v", "'' AS slept")
    """,
}


def test_policies_of_tables(project: Write, spark: SparkSession) -> None:
    folder = project(POLICIES)
    for number in (0, 1, 2):
        deliver(folder, number)
    for name in ("places", "stock", "rates"):
        (folder / name).mkdir()
    (folder / "places/1.csv").write_text("k,place\na,here\n")
    (folder / "stock/1.csv").write_text(
        "at,n\n2024-01-01T00:00:00Z,1\n2024-01-02T00:00:00Z,2\n2024-01-03T00:00:00Z,3\n"
    )
    (folder / "stock/2.csv").write_text("at,n\n2024-01-01T00:00:00Z,10\n2024-01-03T00:00:00Z,30\n")
    warehouse = Warehouse(folder, spark=spark)
    run(warehouse)  # priced goes on without rates, of which nothing has come
    con = attach(folder)
    assert rows(con, "SELECT sum(v), count(*) FROM lake.priced") == [(0 + 1 + 2 + 1 + 2 + 3 + 2 + 3 + 4, 9)]
    # An update that would sleep for ten minutes is stopped when a change of the same day comes.
    (folder / "sleep").touch()
    warehouse.backfill("slow", day(1))

    def on_round(controller: Controller) -> None:
        running = {each.job.table for each in controller.state.busy.values()}
        if "slow" in running and not (folder / "landing/101.csv").exists():
            (folder / "landing/101.csv").write_text(f"k,ts,v\nz,{day(1)}T09:00:00Z,100\n")
        if controller.state.tables["slow"].overrun:
            (folder / "sleep").unlink(missing_ok=True)

    (folder / "rates/1.csv").write_text(f"k,at,rate\na,{day(0)}T08:00:00Z,1\nb,{day(1)}T08:00:00Z,5\n")
    state = warehouse.run(until_idle=True, on_round=on_round)
    assert not [table.error for table in state.tables.values() if table.error]
    with warehouse.store.read() as conn:
        kinds = Counter(event.kind for _, event in warehouse.store.events(conn))
        assert list(warehouse.catalogue.unknown_files(conn)) == [], "staged files of a stopped update are swept"
    assert kinds["update-stopped"] == 1 and kinds["update-failed"] == 0
    assert [each.stage for each in warehouse.requests()] == ["done"]
    con = attach(folder)
    assert rows(con, "SELECT count(*), sum(v), max(slept) FROM lake.slow") == [(10, 118, "")]
    # Rates came later: b's row of the second day is made again with its rate. What came for the frozen table waits.
    assert rows(con, f"SELECT v FROM lake.priced WHERE k = 'b' AND ts::DATE = '{day(1)}'") == [(2 * 5,)]
    assert rows(con, "SELECT sum(v) FROM lake.frozen") == [(18,)]
    (row,) = (row for row in warehouse.status() if row.table == "frozen")
    assert row.held == row.inconsistent == ((FIRST + DAY_US, FIRST + 2 * DAY_US),)
    warehouse.close()
    # Followed again, nothing is lost.
    text = (folder / "tables/frozen.sql").read_text()
    (folder / "tables/frozen.sql").write_text(text.replace('"none"', '"all"'))
    # Changed tables of feeds that state things anew: from the newest file of each partition.
    (folder / "tables/places.sql").write_text("-- feed = 'places'\nSELECT k, upper(place) AS place FROM places\n")
    (folder / "tables/stock.sql").write_text("-- feed = 'stock'\n-- partition = 'day'\nSELECT at, -n AS n FROM stock\n")
    with Warehouse(folder, spark=spark) as warehouse:
        planned = {work.table: work.why for work in warehouse.plan().work}
        assert planned["places"] == planned["stock"] == ("changed logic",)
        run(warehouse)
    con = attach(folder)
    assert rows(con, "SELECT sum(v) FROM lake.frozen") == [(118,)]
    assert rows(con, "SELECT * FROM lake.places") == [("a", "HERE")]
    assert sorted(rows(con, "SELECT n FROM lake.stock")) == [(-30,), (-10,), (-2,)]
