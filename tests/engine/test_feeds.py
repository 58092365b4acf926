"""Columns that are not declared are inferred once, carefully, and stay; later files that do not fit are refused, not the feed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.arrivals.schemas import fact_name
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

FEED = """
[feeds.{0}]
path = "landing/{0}/*"
format = "{1}"
settle = "0s"
"""


def _columns(warehouse: Warehouse, feed: str) -> str | None:
    with warehouse.store.read() as conn:
        return warehouse.store.fact(conn, fact_name(feed))


def test_columns_are_inferred_once(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": 'name = "inferred"\n' + FEED.format("c", "csv") + FEED.format("j", "json")})
    for name in ("c", "j"):
        (folder / "landing" / name).mkdir(parents=True)
    first = "n,zip,day,price,ok,text,none\n1,007,2024-01-01,1.5,true,a,\n2,10115,2024-01-02,2,false,7,\n"
    (folder / "landing/c/a.csv").write_text(first)
    (folder / "landing/c/z-other.csv").write_text("n,more\n1,2\n")
    (folder / "landing/j/a.json").write_text('{"n": 1, "x": {"y": [1.5]}}\n')
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        columns = (
            "`n` bigint, `zip` string, `day` timestamp, `price` double, `ok` boolean, `text` string, `none` string"
        )
        assert _columns(warehouse, "c") == columns
        assert _columns(warehouse, "j") == "`n` bigint, `x` struct<y:array<double>>"
        assert [Path(uri).name for uri in state.quarantine] == ["z-other.csv"]
        # The same object runs again: a file that would be inferred otherwise changes nothing, and blocks nothing.
        (folder / "landing/c/b.csv").write_text("n,zip,day,price,ok,text,none\nx,1,2024-01-01,1,true,b,\n")
        (folder / "landing/j/b.json").write_text('{"n": "many", "x": null}\n{"n": 2, "x": {"y": []}}\n')
        warehouse.run(until_idle=True)
        (folder / "landing/c/c.csv").write_text(
            first.replace("\n1,", "\n3,").replace("2024-01-01", "2024-01-01 10:30:00")
        )
        state = warehouse.run(until_idle=True)
        assert _columns(warehouse, "c") == columns and [Path(uri).name for uri in state.quarantine] == ["z-other.csv"]
        con = attach(folder)
        assert rows(con, "SELECT n, zip, hour(day), price FROM lake.c") == [
            (1, "007", 0, 1.5), (2, "10115", 0, 2.0), (2, "10115", 0, 2.0), (3, "007", 10, 1.5),
        ]  # fmt: skip
        assert rows(con, "SELECT file, line FROM lake.c_quarantine") == [("landing/c/b.csv", 2)]
        assert rows(con, "SELECT n FROM lake.j") == [(1,), (2,)]


def test_parquet_is_read_exactly_or_refused(project: Write, spark: SparkSession) -> None:
    toml = 'name = "exact"\n' + FEED.format("p", "parquet") + FEED.format("i", "parquet")
    columns = 'columns = "k string, n bigint, d decimal(10,4), ts timestamp, l timestamp_ntz"\n'
    folder = project({"penstock.toml": toml.replace("[feeds.i]", columns + "[feeds.i]")})
    day_ns = 1704103200 * 10**9
    good = {
        "k": pa.array(["plain"]),
        "n": pa.array([1], pa.int64()),
        "d": pa.array([1], pa.decimal128(10, 4)),
        "ts": pa.array([day_ns // 1000], pa.timestamp("us", "UTC")),
        "l": pa.array([day_ns // 1000], pa.timestamp("us")),
    }
    files = {
        "plain": good,
        "nanos": good | {"ts": pa.array([day_ns + 5000], pa.timestamp("ns", "UTC")), "l": pa.array([day_ns], pa.timestamp("ns"))},
        "millis": good | {"ts": pa.array([day_ns // 10**6], pa.timestamp("ms", "UTC")), "l": pa.array([day_ns // 10**6], pa.timestamp("ms"))},
        "unsigned": good | {"n": pa.array([4294967295], pa.uint32())},
        "short": good | {"n": pa.array([7], pa.int8()), "d": pa.array([5], pa.decimal128(4, 1))},
        "words": good | {"k": pa.array(["words"]).dictionary_encode()},
        "nothing": good | {"n": pa.nulls(1), "d": pa.nulls(1)},
        "fine": good | {"ts": pa.array([day_ns + 1], pa.timestamp("ns", "UTC"))},
        "huge": good | {"n": pa.array([2**63], pa.uint64())},
        "scale": good | {"d": pa.array([1], pa.decimal128(12, 6))},
        "clock": good | {"ts": pa.array([1], pa.time64("us"))},
        "double": good | {"n": pa.array([1.0], pa.float64())},
    }  # fmt: skip
    for name, data in files.items():
        path = folder / f"landing/p/{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        if name not in ("words",):
            data = data | {"k": pa.array([name])}
        pq.write_table(pa.table(data), path, version="2.6")
    (folder / "landing/i").mkdir()
    pq.write_table(
        pa.table(files["nanos"] | {"u": pa.array([[1]], pa.list_(pa.int32()))}),
        folder / "landing/i/a.parquet",
        version="2.6",
    )
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert {Path(uri).stem: found.reason for uri, found in state.quarantine.items()} == {
            "fine": "column ts has values finer than microseconds; nothing is cut, so write it anew",
            "huge": "column n has type decimal(20,0), expected bigint",
            "scale": "column d has type decimal(12,6), expected decimal(10,4)",
            "clock": "column ts has type time64[us], which cannot be read; expected timestamp",
            "double": "column n has type double, expected bigint",
        }
        con = attach(folder)
        found = rows(con, "SELECT k, n, d::VARCHAR, epoch_us(ts), epoch_us(l) FROM lake.p")
        us = day_ns // 1000
        assert found == [
            ("millis", 1, "1.0000", us, us),
            ("nanos", 1, "1.0000", us + 5, us),
            ("nothing", None, None, us, us),
            ("plain", 1, "1.0000", us, us),
            ("short", 7, "5.0000", us, us),
            ("unsigned", 4294967295, "1.0000", us, us),
            ("words", 1, "1.0000", us, us),
        ]
        assert rows(con, "SELECT epoch_us(ts), u FROM lake.i") == [(us + 5, [1])]
        assert json.dumps(_columns(warehouse, "i")).count("timestamp") == 2
