"""Where a time of a partition came twice, date_trunc gives the first one for the second, too: such views are refused, wherever it stands."""

from __future__ import annotations

import pytest

from penstock.app import check
from tests.conftest import Write

TOML = """
    name = "island"
    zone = "{zone}"
    [feeds.ev]
    path = "landing/*.csv"
    format = "csv"
    columns = "ts timestamp, n bigint"
    time = "ts"
    partition = "{grain}"
"""
HEAD = '-- partition = "{grain}"\n-- time = "at"\n'
PLAIN = "SELECT date_trunc('{grain}', ts) AS at, sum(n) AS n FROM ev GROUP BY 1"
UNION = """
    SELECT at, sum(n) AS n FROM (
      SELECT date_trunc('{grain}', ts) AS at, n FROM ev UNION ALL SELECT date_trunc('{grain}', ts), 0 FROM ev
    ) GROUP BY at
"""
START = "SELECT :partition_start AS at, sum(n) AS n FROM ev"


@pytest.mark.parametrize("grain", ["hour", "day"])
@pytest.mark.parametrize("sql", [PLAIN, UNION, START, "SELECT ts AS at, n FROM ev"])
@pytest.mark.parametrize("zone", ["America/St_Johns", "America/New_York", "Asia/Kolkata"])
def test_only_what_spark_puts_elsewhere_is_refused(project: Write, grain: str, sql: str, zone: str) -> None:
    view = (HEAD + sql).format(grain=grain)
    folder = project({"penstock.toml": TOML.format(grain=grain, zone=zone), "tables/v.sql": view})
    found = [problem.message for problem in check(folder) if problem.severity == "error"]
    assert len(found) == (zone == "America/St_Johns" and "date_trunc" in sql), found
