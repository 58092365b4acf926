"""Rows that wait for another source: how many, for what, and how not to; tables that cannot say up to when they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

FEED = """
[feeds.{name}]
path = "landing/{name}-*.csv"
format = "csv"
columns = "k int, ts timestamp, v int"
time = "ts"
settle = "0s"
{more}
"""
JOINED = "SELECT o.k, o.v, i.v AS w FROM orders o JOIN items i ON o.k = i.k\n"
MONTHS = """-- partition = "month"
-- time = "month"
SELECT date_trunc('month', ts) AS month, count(*) AS n FROM items GROUP BY 1
"""
FILES = {
    "penstock.toml": 'name = "waiting"\n'
    + FEED.format(name="orders", more="")
    + FEED.format(name="items", more='partition = "day"'),
    "tables/joined.sql": JOINED,
    "tables/all_joined.sql": f"-- waits = false\n{JOINED}",
    "tables/one_joined.sql": f"-- waits = {{ orders = false }}\n{JOINED}",
    "tables/months.sql": MONTHS,
    "tables/rates.sql": "-- waits = true\nSELECT m.month, m.n, o.k FROM months m JOIN orders o ON date_trunc('month', o.ts) = m.month\n",
    "tables/shares.sql": """-- partition = "day"
-- time = "day"
-- sources = { items = "everything" }
SELECT date_trunc('day', ts) - INTERVAL 1 DAY AS day, count(*) AS n FROM items GROUP BY 1
""",
}


def put(folder: Path, feed: str, number: int, *lines: str) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / f"landing/{feed}-{number}.csv").write_text("\n".join(("k,ts,v", *lines)) + "\n")


def test_rows_that_wait(project: Write, spark: SparkSession) -> None:
    folder = project(FILES)
    warned = [str(found) for found in check_project(read_project(folder))[1] if "wait" in str(found)]
    assert len(warned) == 1 and "table `joined`" in warned[0] and "waits = false" in warned[0]
    put(folder, "orders", 1, "1,2024-03-10T10:00:00Z,10", "2,2024-03-12T10:00:00Z,20")
    put(folder, "items", 1, "1,2024-03-11T10:00:00Z,1", "2,2024-03-15T10:00:00Z,2", "2,2024-03-20T10:00:00Z,3")
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        waiting = {(one.table, one.source): one for one in warehouse.waiting()}
        assert set(waiting) == {("joined", "items"), ("rates", "months")}
        one = waiting["joined", "items"]
        assert (one.rows, one.exact, one.waits_for) == (2, True, ("orders",))
        lines = "\n".join(warehouse.explain("joined").lines)
        assert "2 rows of items wait for orders, complete up to 2024-03-12 10:00" in lines
        answer = warehouse.query("select * from joined")
        assert answer.plain()["waiting"][0]["rows"] == 2
        # A month that only one of two has: it says so, and that it has not been made.
        assert not state.tables["rates"].exists
        told = warehouse.explain("rates")
        assert (
            "nothing is pending" not in told.lines
            and told.waits is not None
            and "months is ahead of orders" in told.waits
        )
        # Rows of any day may come of rows of another: it does not say that it is complete.
        found = {row.table: row for row in warehouse.status()}
        assert found["shares"].complete_us is None and found["shares"].as_of_us == state.tables["items"].edge_us
        assert found["months"].complete_us == state.tables["items"].edge_us
        assert warehouse.query("select * from shares").plain()["complete_us"] is None
    lake = attach(folder)
    assert rows(lake, "SELECT k, v, w FROM lake.joined") == [(1, 10, 1)]
    whole = [(1, 10, 1), (2, 20, 2), (2, 20, 3)]
    assert rows(lake, "SELECT k, v, w FROM lake.all_joined") == whole
    assert rows(lake, "SELECT k, v, w FROM lake.one_joined") == whole
    # What comes to a source that nobody waits for is used at once.
    put(folder, "orders", 2, "2,2024-03-01T10:00:00Z,21", "1,2024-04-01T10:00:00Z,11")
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert not [one for one in warehouse.waiting() if one.table == "all_joined"]
    lake = attach(folder)
    want = "SELECT o.k, o.v, i.v FROM lake.orders o JOIN lake.items i ON o.k = i.k"
    for name in ("all_joined", "one_joined"):
        assert rows(lake, f"SELECT k, v, w FROM lake.{name}") == rows(lake, want)
    assert [row[1:] for row in rows(lake, "SELECT month, n, k FROM lake.rates")] == [(3, 1), (3, 2), (3, 2)]
