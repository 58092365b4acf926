"""Rows that come later than their feed said: loaded, or set aside. What DuckDB makes of the files is what must be there."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.conftest import Write

pytestmark = pytest.mark.spark

FEED = """
    [feeds.ev]
    path = "landing/*.csv"
    format = "csv"
    columns = "k string, ts timestamp"
    time = "ts"
    partition = "hour"
    lateness = "1h"
    settle = "0s"
    late = "{late}"
"""
SQL = """
    -- partition = "hour"
    -- time = "hour"
    SELECT date_trunc('hour', ts) AS hour, count(*) AS n FROM ev GROUP BY 1
"""
# Files in the order of their coming, by the updates that find them. After the first, the table is complete up to 09:00.
ROUNDS = [
    {"a": [("a1", "08:10"), ("a2", "09:59:59.999999")]},
    {"b": [("b1", "08:50"), ("b2", "09:00"), ("b3", "12:00")], "c": [("c1", "09:10"), ("c2", "08:59")]},
    {"d": [("d1", "10:59"), ("d2", "11:00:00.000001")]},
]
# "b" and "c" come together, so what one says does not make rows of the other late.
LATE = {"b1": "b", "c2": "c", "d1": "d"}


def _deliver(folder: Path, name: str, rows: list[tuple[str, str]]) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    lines = [f"{key},2024-03-01T{clock if clock[5:] else clock + ':00'}Z" for key, clock in rows]
    (folder / f"landing/{name}.csv").write_text("\n".join(["k,ts", *lines, ""]))


def _expected(folder: Path, late: set[str]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    con = duckdb.connect()
    con.execute(f"create table ev as select * from read_csv('{folder}/landing/*.csv', header=true)")
    con.execute("delete from ev where k in (select unnest(?))", [sorted(late)])
    keys = con.execute("select k from ev order by k").fetchall()
    # The view has what is complete.
    cut = "ts <= (select max(ts) from ev) - interval 1 hour"
    hours = con.execute(
        f"select hour(ts at time zone 'UTC'), count(*) from ev where {cut} group by 1 order by 1"
    ).fetchall()
    return keys, hours


def _found(warehouse: Warehouse) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    keys = warehouse.query("select k from ev order by k").rows
    hours = warehouse.query("select hour(hour), n from hourly order by 1").rows
    return [tuple(row) for row in keys], [tuple(row) for row in hours]


def _set_aside(warehouse: Warehouse) -> dict[str, str]:
    sql = "select substring_index(row, ',', 1), file from ev_quarantine where reason like 'late: ts is before 2024-%'"
    return {row[0]: row[1].removeprefix("landing/").removesuffix(".csv") for row in warehouse.query(sql).rows}


def test_late_rows_are_set_aside_and_taken_in(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    def declare(late: str) -> None:
        project({"penstock.toml": 'name = "late"\n' + FEED.format(late=late), "tables/hourly.sql": SQL})

    declare("set aside")
    with Warehouse(tmp_path, spark=spark) as warehouse:
        for files in ROUNDS:
            for name, rows in files.items():
                _deliver(tmp_path, name, rows)
            warehouse.run(until_idle=True)
        assert _found(warehouse) == _expected(tmp_path, set(LATE))
        assert _set_aside(warehouse) == LATE
        status = next(row for row in warehouse.status() if row.table == "ev")
        assert (status.quarantined_rows, status.late_rows) == (3, 3)
        # Another content of a file came when the file did: b5 is late, and b4 is not, as b came while 09:00 was what is complete.
        _deliver(tmp_path, "b", [("b4", "09:30"), ("b5", "08:30"), ("b3", "12:00")])
        warehouse.run(until_idle=True)
        assert _found(warehouse) == _expected(tmp_path, {"b5", "c2", "d1"})
        assert _set_aside(warehouse) == {"b5": "b", "c2": "c", "d1": "d"}
        # Partitions made again from their files, and a check against them.
        warehouse.backfill("ev", "2024-03-01")
        warehouse.run(until_idle=True)
        assert _found(warehouse) == _expected(tmp_path, {"b5", "c2", "d1"})
        assert all(each.equal for each in warehouse.verify(deep=True).compared if each.table == "ev")
        warehouse.withdraw(["landing/d.csv"])
        warehouse.run(until_idle=True)
        assert set(_set_aside(warehouse)) == {"b5", "c2"}
        assert next(row for row in warehouse.status() if row.table == "ev").late_rows == 2
    (tmp_path / "landing/d.csv").unlink()
    declare("load")
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert _found(warehouse) == _expected(tmp_path, set())
        assert not _set_aside(warehouse)
        assert next(row for row in warehouse.status() if row.table == "ev").late_rows == 0
    declare("set aside")
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert _found(warehouse) == _expected(tmp_path, {"b5", "c2"})
        assert set(_set_aside(warehouse)) == {"b5", "c2"}
