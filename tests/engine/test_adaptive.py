"""The adaptive policy on Spark: one of two feeds was out, and all of its files come at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import UpdateStarted
from penstock.control.views.recovery import guarantees
from tests.conftest import Write
from tests.control.replay import replay
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

TOML = """
    name = "two"
    [run]
    tracks = 2
    policy = "adaptive"
    [feeds.steady]
    path = "landing/steady/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v int"
    time = "ts"
    partition = "day"
    period = "1h"
    settle = "0s"
    cost = "2m"
    [feeds.broken]
    path = "landing/broken/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v int"
    time = "ts"
    partition = "day"
    period = "1h"
    settle = "0s"
    cost = "2m"
"""
SUMS = """
    -- partition = "day"
    -- time = "day"
    -- cost = "2m"
    SELECT date_trunc('day', ts) AS day, k, sum(v) AS v FROM broken GROUP BY 1, 2
"""


def put(folder: Path, feed: str, hour: int) -> None:
    into = folder / "landing" / feed
    into.mkdir(parents=True, exist_ok=True)
    staged = into / f".{hour}"
    staged.write_text(f"k,ts,v\na,2024-01-{1 + hour // 12:02d}T{hour % 12 + 6:02d}:00:00Z,{hour}\n")
    staged.rename(into / f"{hour:03d}.csv")


def test_a_backlog_is_loaded_file_by_file_in_order_and_decided_again_from_the_log(
    project: Write, spark: SparkSession
) -> None:
    folder = project({"penstock.toml": TOML, "tables/sums.sql": SUMS})
    with Warehouse(folder, spark=spark) as warehouse:
        for feed in ("steady", "broken"):
            put(folder, feed, 0)
        warehouse.run(until_idle=True)
        for hour in range(1, 6):
            put(folder, "broken", hour)
        put(folder, "steady", 1)
        state = warehouse.run(until_idle=True)
        with warehouse.store.read() as conn:
            log = list(warehouse.store.events(conn))
        starts = [event for _, event in log if isinstance(event, UpdateStarted)]
        loads = [[f.uri[-7:] for f in e.job.files] for e in starts if e.job.table == "broken"]
        assert [uri for job in loads for uri in job] == [f"{hour:03d}.csv" for hour in range(6)]
        assert all(len(job) == 1 for job in loads)
        assert any("deadline" in event.why for event in starts)
        assert any("an idle track" in event.why for event in starts)
        assert replay(log) == []
        con = attach(folder)
        assert rows(con, "SELECT sum(v), count(*) FROM lake.broken") == [(15, 6)]
        assert rows(con, "SELECT sum(v) FROM lake.sums") == [(15,)]
        # What was learned or declared is enough for bounds.
        report, _ = guarantees(state.graph, {name: table.cost for name, table in state.tables.items()}, 2)
        assert report.fits and all(found.bound is not None for found in report.guarantees)
