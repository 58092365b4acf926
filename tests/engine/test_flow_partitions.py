"""A flow with partitions makes each of them by itself: its rows are of that partition only, whatever its source is cut into,
and its quarantine holds each bad row of the present input once, however often a partition is made again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from tests.conftest import Write
from tests.engine.test_flow_life import put
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

TOML = """
    name = "parts"
    [feeds.orders]
    path = "landing/*.csv"
    format = "csv"
    columns = "id bigint, at timestamp, quantity int"
    time = "at"
    settle = "0s"
    {partition}
"""
FLOW = """
    import penstock as ps


    @ps.flow(partition="day", time="day")
    def daily(orders):
        good = orders.in_domain("quantity", low=1, bad="quarantine").derive(
            day="date_trunc('day', at)", whose=":partition_start", text="':partition_end'"
        )
        many, few = good.route("quantity > 5 and at < :partition_end")
        sold = many.union(few).into("sold")
        sold.aggregate(["day", "whose"], n="count(*)").into("counted")
"""
HEAD = "id,at,quantity\n"


@pytest.mark.parametrize(
    "partition",
    [pytest.param("", id="whole"), pytest.param('partition = "day"', id="day", marks=pytest.mark.soak)],
)
def test_rows_and_bad_rows_stand_once(project: Write, spark: SparkSession, partition: str) -> None:
    folder = project({"penstock.toml": TOML.format(partition=partition), "tables/daily.py": FLOW})
    put(
        folder,
        "1.csv",
        HEAD
        + "1,2024-01-01T10:00:00Z,9\n2,2024-01-01T11:00:00Z,0\n3,2024-01-02T10:00:00Z,1\n4,2024-01-03T09:00:00Z,-1\n"
        "5,2024-01-03T10:00:00Z,2\n",
    )
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        put(folder, "2.csv", HEAD + "6,2024-01-01T12:00:00Z,0\n7,2024-01-02T12:00:00Z,7\n8,2024-01-04T01:00:00Z,1\n")
        warehouse.run(until_idle=True)
        warehouse.backfill("sold", "2024-01-01..2024-01-04")
        state = warehouse.run(until_idle=True)
    assert not state.tables["sold"].error
    con = attach(folder)
    sold = rows(con, "SELECT id, strftime(day, '%d'), day = whose, text FROM lake.sold ORDER BY id")
    assert sold == [
        (n, day, True, ":partition_end") for n, day in ((1, "01"), (3, "02"), (5, "03"), (7, "02"), (8, "04"))
    ]
    counted = rows(con, "SELECT strftime(day, '%d'), n FROM lake.counted")
    assert counted == [("01", 1), ("02", 2), ("03", 1), ("04", 1)]
    kept = rows(con, "SELECT json_extract_string(row, 'id') FROM lake.daily_quarantine")
    assert kept == [("2",), ("4",), ("6",)]
    # Once they are good they are bad no more.
    put(folder, "1.csv", HEAD + "2,2024-01-01T11:00:00Z,1\n4,2024-01-03T09:00:00Z,1\n")
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    con = attach(folder)
    assert rows(con, "SELECT id FROM lake.sold") == [(2,), (4,), (7,), (8,)]
    assert rows(con, "SELECT json_extract_string(row, 'id') FROM lake.daily_quarantine") == [("6",)]
