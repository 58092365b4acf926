"""Whatever a view does with its time, and however it and its source are partitioned: after arrivals, late rows, a correction
and backfills it holds what the plain query gives over all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.app import Warehouse
from penstock.model.time import moment
from tests.conftest import Write

pytestmark = pytest.mark.spark

TOML = """
    name = "views"
    [feeds.ev]
    path = "in/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v int"
    time = "ts"
    settle = "0s"
"""
BASE = """
-- feed = "ev"
-- partition = "{}"
SELECT * FROM ev
"""
# {b} is the base table, {g} the unit of the view's partition. The time is `t`.
SQL = {
    "rows": "SELECT k, ts AS t, v FROM {b}",
    "sums": "SELECT k, date_trunc('{g}', ts) AS t, sum(v) AS v, count(*) AS n FROM {b} GROUP BY k, date_trunc('{g}', ts)",
    "plain": "SELECT date_trunc('{g}', ts) AS t, count(DISTINCT k) AS n FROM {b} GROUP BY ALL",
    "later": "SELECT k, ts + INTERVAL 5 MINUTES AS t, v FROM {b}",
    "earlier": "SELECT k, v, ts - INTERVAL '5' MINUTE AS t FROM {b}",
    "ended": "SELECT date_trunc('{g}', ts) + INTERVAL 1 {g} AS t, max(v) AS v FROM {b} GROUP BY 1",
    "week_on": "SELECT k, v, date_add(to_date(ts), 7) AS t FROM {b}",
    "month_end": "SELECT last_day(ts) AS t, sum(v) AS v FROM {b} GROUP BY 1",
    "own": "SELECT k, max(ts) AS t, count(*) AS n FROM {b} GROUP BY k",
    "newest": "SELECT k, max(ts) AS t, count(*) AS n FROM {b} GROUP BY k",
    "first": "SELECT k, min(ts) AS t, sum(v) AS v FROM {b} GROUP BY k, date_trunc('{g}', ts)",
    "twice": "SELECT k, ts AS t, v FROM {b} UNION ALL SELECT k, ts + INTERVAL 1 HOUR, -v FROM {b}",
    "distinct": "SELECT DISTINCT k, date_trunc('{g}', ts) AS t FROM {b}",
    "ranks": "SELECT k, ts AS t, v, row_number() OVER (PARTITION BY k, date_trunc('{g}', ts) ORDER BY ts, v) AS n FROM {b}",
    "before": "SELECT k, ts AS t, v, lag(v) OVER (PARTITION BY k ORDER BY ts, v) AS w FROM {b}",
    "paired": "SELECT a.k, a.ts AS t, a.v + c.v AS v FROM {b} a JOIN {b} c ON a.k = c.k AND a.ts = c.ts",
    "either": "SELECT k, CASE WHEN v > 3 THEN ts ELSE date_trunc('minute', ts) END AS t FROM {b}",
}
EVERYTHING = {"newest", "before"}  # what a row is made of lies anywhere
GRAINS = ("hour", "day", "week", "month", "none")


@dataclass(frozen=True)
class Case:
    view: str
    base: str
    grain: str

    @property
    def name(self) -> str:
        return f"{self.view}_{self.grain}_of_{self.base}"

    @property
    def sql(self) -> str:
        return SQL[self.view].format(b=f"ev_{self.base}", g=self.grain if self.grain != "none" else "day")

    @property
    def plain(self) -> str:
        """The query over all rows that gives the same: one group for each partition, where each is computed by itself."""
        grouped = f", date_trunc('{self.grain}', ts)" if self.view == "own" and self.grain != "none" else ""
        return self.sql + grouped

    @property
    def text(self) -> str:
        lines = [f'-- partition = "{self.grain}"', '-- time = "t"']
        if self.base != "none" and self.grain != "none":
            if self.view in EVERYTHING:
                lines.append(f'-- sources.ev_{self.base} = "everything"')
            elif self.view == "own":
                lines.append(f'-- sources.ev_{self.base} = "PARTITION"')
            elif self.view == "earlier" or (self.base == "day" and self.grain == "hour"):
                lines.append(f'-- sources.ev_{self.base} = "PARTITION - 1 .. PARTITION + 1"')
        return "\n".join([*lines, self.sql])


def every_case() -> Iterator[Case]:
    for view in SQL:
        for base in ("none", "hour", "day"):
            for grain in GRAINS:
                coarse = view in ("week_on", "month_end") and grain == "hour" and base != "none"
                whole = view == "own" and (base == "none" or (base, grain) == ("day", "hour"))
                if not coarse and not whole:
                    yield Case(view, base, grain)


ALL = list(every_case())
FILES = [
    ["a,2024-01-30T10:00:00Z,1", "a,2024-01-30T10:58:00Z,2", "b,2024-01-31T23:59:00Z,3", "a,2024-02-01T00:02:00Z,4"],
    ["b,2024-01-30T10:59:00Z,5", "a,2024-02-01T12:00:00Z,6", "c,2024-02-05T11:57:00Z,7", "c,2024-02-05T12:01:00Z,8"],
    ["a,2024-01-31T23:58:00Z,9", "b,2024-02-05T12:01:00Z,10"],
]


def deliver(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number}.csv").write_text("\n".join(["k,ts,v", *FILES[number]]) + "\n")


def rows(frame: DataFrame, columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.select(*columns).collect())


def compare(warehouse: Warehouse, spark: SparkSession, cases: list[Case], when: str) -> None:
    state = warehouse.state()
    assert not {name: table.error for name, table in state.tables.items() if table.error}
    for base in ("none", "hour", "day"):
        files = [str(path) for path in sorted((warehouse.declared.declarations.folder / "in").iterdir())]
        spark.read.schema("k string, ts timestamp, v int").csv(files, header=True).createOrReplaceTempView(f"ev_{base}")
    expected = {case.name: spark.sql(case.plain) for case in cases}
    for case in cases:
        edge_us = state.tables[case.name].edge_us
        if edge_us is None and case.view == "earlier":
            continue  # it waits for the next partition
        assert edge_us is not None, case.name
        want, table = expected[case.name], warehouse.table(case.name)
        before = f"cast(t as timestamp) < timestamp'{moment(edge_us)}'"
        wanted, got = rows(want.where(before), want.columns), rows(table.where(before), want.columns)
        assert got == wanted, f"{when}: {case.name}\n{case.text}\nmissing {wanted - got}\nextra {got - wanted}"
        assert rows(table, want.columns) <= rows(want, want.columns), f"{when}: {case.name} beyond its edge"


def check(spark: SparkSession, project: Write, cases: list[Case]) -> None:
    bases = {f"tables/ev_{base}.sql": BASE.format(base) for base in ("none", "hour", "day")}
    folder = project({"penstock.toml": TOML, **bases, **{f"tables/{case.name}.sql": case.text for case in cases}})
    deliver(folder, 0)
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        compare(warehouse, spark, cases, "first")
        deliver(folder, 1)
        warehouse.run(until_idle=True)
        compare(warehouse, spark, cases, "second")
        deliver(folder, 2)
        warehouse.run(until_idle=True)
        compare(warehouse, spark, cases, "late")
        for case in cases:
            spans = {"hour": "2024-02-01 00:00..2024-02-01 00:00", "none": None}
            warehouse.backfill(case.name, spans.get(case.grain, "2024-02-01"))
        warehouse.run(until_idle=True)
        compare(warehouse, spark, cases, "backfill")


def test_some_views(spark: SparkSession, project: Write) -> None:
    some = [
        *("rows_day_of_none", "sums_hour_of_none", "later_hour_of_hour", "own_day_of_hour", "twice_hour_of_hour"),
        *("first_day_of_none", "ranks_week_of_day", "week_on_day_of_day"),
    ]
    check(spark, project, [case for case in ALL if case.name in some])


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_all_views(spark: SparkSession, project: Write, part: int) -> None:
    check(spark, project, ALL[part::8])
