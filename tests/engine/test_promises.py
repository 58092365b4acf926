"""Feeds that promise something else than before: tables hold the rows up to the edge that the present declaration gives, no row is lost or
doubled, and nothing claims more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.state import State
from penstock.model.time import moment
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

T = datetime(2024, 3, 1, 22, 0, tzinfo=UTC)
TOML = """
name = "promises"
[feeds.ev]
path = "landing/*.csv"
format = "csv"
columns = "k string, ts timestamp, v int"
time = "ts"
partition = "hour"
settle = "0s"
"""
VIEWS = {
    "tables/plain.sql": '-- partition = "hour"\n-- time = "ts"\nSELECT k, ts, v FROM ev\n',
    "tables/hourly.sql": '-- partition = "hour"\n-- time = "hour"\n'
    "SELECT k, date_trunc('hour', ts) AS hour, sum(v) AS v, count(*) AS n FROM ev GROUP BY 1, 2\n",
    "tables/total.sql": "SELECT k, sum(v) AS v FROM plain GROUP BY k\n",
}
# What the feed says of rows to come, and how much of the newest row's time that leaves; None: as far as the marker.
SAYS: dict[str, int | None] = {
    'lateness = "30m"': 30,
    "": 0,
    'lateness = "2h"': 120,
    'punctuation = "landing/*.mark"': None,
    'lateness = "10m"': 10,
}


@pytest.mark.parametrize(
    "order",
    [(0, 3, 1, 4), *(pytest.param(order, marks=pytest.mark.soak) for order in ((0, 1, 2, 1), (2, 0, 1, 3)))],
    ids=str,
)
def test_promises_change(project: Write, spark: SparkSession, order: tuple[int, ...]) -> None:
    folder = project(VIEWS)
    (folder / "landing").mkdir()
    delivered: list[tuple[str, datetime, int]] = []
    marker: datetime | None = None
    for step, chosen in enumerate(order):
        said, behind = list(SAYS.items())[chosen]
        (folder / "penstock.toml").write_text(TOML + said + "\n")
        check(run(folder, spark), folder, delivered, behind, marker)
        # Rows on both sides of every edge, and late ones.
        newest = T + timedelta(minutes=55 * step)
        new = [(f"k{n % 2}", newest - timedelta(minutes=9 * n), 100 * step + n) for n in range(8)]
        lines = "".join(f"{k},{ts.isoformat()},{v}\n" for k, ts, v in new)
        (folder / f"landing/{step}.csv").write_text("k,ts,v\n" + lines)
        delivered += new
        if behind is None:
            run(folder, spark)
            marker = newest - timedelta(minutes=20)
            (folder / f"landing/{step}.mark").write_text(marker.isoformat())
        check(run(folder, spark), folder, delivered, behind, marker)


def run(folder: Path, spark: SparkSession) -> State:
    with Warehouse(folder, spark=spark) as warehouse:
        return warehouse.run(until_idle=True)


def check(
    state: State, folder: Path, delivered: list[tuple[str, datetime, int]], behind: int | None, marker: datetime | None
) -> None:
    edge = marker
    if behind is not None and delivered:
        edge = max(ts for _, ts, _ in delivered) - timedelta(minutes=behind) + timedelta(microseconds=1)
    for name, table in state.tables.items():
        claimed = None if table.edge_us is None else moment(table.edge_us)
        assert claimed == edge, name
        assert edge is None or not table.needs
    if edge is None:
        return
    lake = attach(folder)
    before = [(k, ts, v) for k, ts, v in delivered if ts < edge]
    assert rows(lake, "SELECT k, ts, v FROM lake.plain") == by_text(before)
    hours: dict[tuple[str, datetime], list[int]] = {}
    totals: dict[str, int] = {}
    for k, ts, v in before:
        hours.setdefault((k, ts.replace(minute=0)), []).append(v)
        totals[k] = totals.get(k, 0) + v
    assert rows(lake, "SELECT k, hour, v, n FROM lake.hourly") == by_text(
        [(k, hour, sum(vs), len(vs)) for (k, hour), vs in hours.items()]
    )
    assert rows(lake, "SELECT k, v FROM lake.total") == by_text(list(totals.items()))


def by_text(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(found, key=lambda row: tuple(str(value) for value in row))
