"""What `verify --deep` compares, and what it costs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.cli.test_commands import penstock
from tests.conftest import Write

pytestmark = pytest.mark.spark

TOML = """
    name = "deep"
    zone = "America/New_York"

    [feeds.ev]
    path = "landing/ev/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v bigint"
    time = "ts"
    settle = "0s"
    partition = "day"
"""
DAILY = """
    -- partition = "day"
    -- time = "day"
    SELECT k, date_trunc('day', ts) AS day, sum(v) AS v FROM ev GROUP BY k, date_trunc('day', ts)
"""


def test_it_computes_in_the_zone_of_the_project(project: Write, spark: SparkSession) -> None:
    folder = project(
        {
            "penstock.toml": TOML,
            "tables/d.sql": DAILY,
            "landing/ev/1.csv": "k,ts,v\na,2026-03-01 10:00:00,1\na,2026-03-01 23:00:00,2\n",
        }
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        found = warehouse.verify(deep=True)
    assert {one.table: (one.equal, one.why) for one in found.compared} == {"ev": (True, ""), "d": (True, "")}


def test_a_table_that_cannot_be_computed_again_is_not_ok(project: Write, spark: SparkSession) -> None:
    broken = (
        '-- partition = "day"\n-- time = "ts"\nSELECT k, ts, v FROM ev WHERE v < 9 OR raise_error(\'no\') IS NULL\n'
    )
    folder = project(
        {"penstock.toml": TOML, "tables/d.sql": broken, "landing/ev/1.csv": "k,ts,v\na,2026-03-01 10:00:00,1\n"}
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    (folder / "tables/d.sql").write_text(broken.replace("v < 9", "v < 1"))
    shown = penstock("verify", "--deep", "-p", str(folder))
    assert shown.exit_code == 1 and "1 of 2 tables were compared, 1 were not" in shown.stdout, shown.stdout
    (folder / "landing/ev/1.csv").unlink()
    (folder / "tables/d.sql").write_text(broken)
    shown = penstock("verify", "--deep", "-p", str(folder))
    assert shown.exit_code == 0 and "1 of 2 tables were compared, 1 were not" in shown.stdout, shown.stdout
