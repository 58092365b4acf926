"""Bad input gets a clear reason, stops nothing else, and is taken up again after a fix."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

FILES = {
    "penstock.toml": """
        name = "bad"
        [feeds.c]
        path = "landing/c/*.csv"
        format = "csv"
        columns = "k string, ts timestamp, v int"
        time = "ts"
        partition = "day"
        rules = ["v >= 0"]
        settle = "0s"
        [feeds.j]
        path = "landing/j/*.json"
        format = "json"
        columns = "k string, ts timestamp, v int"
        time = "ts"
        settle = "0s"
        [feeds.p]
        path = "landing/p/*.parquet"
        format = "parquet"
        columns = "k string, v bigint"
        settle = "0s"
    """,
    "tables/sums.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT date_trunc('day', ts) AS day, sum(v) AS v FROM c GROUP BY 1
    """,
    "tables/broken.sql": """
        -- attempts = 2
        SELECT k, 1 / (v - v) AS boom FROM p
    """,
    "landing/c/good.csv": "k,ts,v\na,2024-01-01T10:00:00Z,1\nb,2024-01-01T11:00:00Z,2\n",
    "landing/c/order.csv": "v,k,ts\n5,e,2024-01-01T12:00:00Z\n",
    "landing/c/columns.csv": "k,when,v\na,2024-01-01T10:00:00Z,1\n",
    "landing/c/rows.csv": """
        k,ts,v
        c,2024-01-01T12:00:00Z,3
        d,,4
        e,2024-01-01T12:00:00Z,many
        f,2024-01-01T12:00:00Z,-1
        g,2999-01-01T12:00:00Z,1
        h,2024-01-01T13:00:00Z
        i,2024-01-02T13:00:00Z,7
    """,
    "landing/j/good.json": '{"k": "a", "ts": "2024-01-01T10:00:00Z", "v": 1}\n{"k": "b", "ts": null, "v": 1}\n{"k": "c", "v": \n',
    "landing/j/list.json": "[1, 2]\n",
    "landing/j/other.json": '{"x": 1}\n',
}


def test_bad_files_and_rows(project: Write, spark: SparkSession) -> None:
    folder = project(FILES)
    (folder / "landing/c/empty.csv").write_text("")
    (folder / "landing/c/bytes.csv").write_bytes(b"k,ts,v\na,2024-01-01T10:00:00Z,1\n\xff\xfe,2024-01-01T10:00:00Z,1\n")
    (folder / "landing/c/half.csv.tmp").write_text("k,ts,v\nzzz,20")
    _parquet(folder)
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        reasons = {Path(uri).name: found.reason for uri, found in state.quarantine.items()}
        assert reasons == {
            "columns.csv": "wrong columns: missing ts; unexpected when (found k, when, v)",
            "empty.csv": "the file is empty",
            "bytes.csv": "not utf-8 text near line 1: invalid start byte at byte 0xff",
            "list.json": "the first line is a JSON list, expected an object per line",
            "other.json": "wrong columns: found x; expected k, ts, v",
            "cut.parquet": reasons["cut.parquet"],
            "text.parquet": "column v has type string, expected bigint",
        }
        assert reasons["cut.parquet"].startswith("not a whole Parquet file")
        con = attach(folder)
        assert rows(con, "SELECT k, v FROM lake.c") == [("a", 1), ("b", 2), ("c", 3), ("e", 5), ("i", 7)]
        assert rows(con, "SELECT k, v FROM lake.p") == [("n", 3), ("x", 1), ("y", 2)]
        assert rows(con, "SELECT k FROM lake.j") == [("a",)]
        assert rows(con, "SELECT CAST(day AS DATE)::VARCHAR, v FROM lake.sums") == [
            ("2024-01-01", 11),
            ("2024-01-02", 7),
        ]
        refused = rows(con, "SELECT file, line, reason FROM lake.c_quarantine")
        assert [(file, line) for file, line, _ in refused] == [("landing/c/rows.csv", n) for n in (3, 4, 5, 6, 7)]
        assert [reason.split(" (")[0] for _, _, reason in refused] == [
            "the event time ts is null",
            "the value of v does not fit its type int",
            "breaks the rule: v >= 0",
            "the event time ts is more than 1d ahead of the file's arrival",
            "the row has too many or too few columns, or cannot be parsed",
        ]
        assert rows(con, "SELECT line FROM lake.j_quarantine") == [(2,), (3,)]
        assert state.tables["c"].counts.quarantined_rows == 5
        # The view that fails is tried as often as it says, then left; everything else went on.
        broken = state.tables["broken"]
        assert broken.failed and broken.counts.failures == 2 and "DIVIDE_BY_ZERO" in (broken.error or "")

        # A file that comes again unchanged is nothing new; a mended one is taken up; a loaded one that changed is made again.
        (folder / "landing/c/good.csv").write_text(FILES["landing/c/good.csv"])
        (folder / "landing/c/columns.csv").write_text("k,ts,v\nz,2024-01-03T10:00:00Z,9\n")
        (folder / "tables/broken.sql").write_text("SELECT k, v + 1 AS boom FROM p\n")
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert "landing/c/columns.csv" not in state.quarantine
        assert not state.tables["broken"].failed
        con = attach(folder)
        assert rows(con, "SELECT k, v FROM lake.c") == [("a", 1), ("b", 2), ("c", 3), ("e", 5), ("i", 7), ("z", 9)]
        (folder / "landing/c/good.csv").write_text("k,ts,v\na,2024-01-01T10:00:00Z,100\nq,2024-01-05T10:00:00Z,1\n")
        state = warehouse.run(until_idle=True)
        assert state.rewritten == {"c": 1}
        con = attach(folder)
        assert rows(con, "SELECT k, v FROM lake.c") == [("a", 100), ("c", 3), ("e", 5), ("i", 7), ("q", 1), ("z", 9)]
        assert rows(con, "SELECT CAST(day AS DATE)::VARCHAR, v FROM lake.sums") == [
            ("2024-01-01", 108),
            ("2024-01-02", 7),
            ("2024-01-03", 9),
            ("2024-01-05", 1),
        ]


def _parquet(folder: Path) -> None:
    place = folder / "landing/p"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": ["x", "y"], "v": pa.array([1, 2], pa.int64())}), place / "good.parquet")
    pq.write_table(pa.table({"k": ["n"], "v": pa.array([3], pa.int32())}), place / "narrow.parquet")
    pq.write_table(pa.table({"k": ["x"], "v": ["1"]}), place / "text.parquet")
    whole = (place / "good.parquet").read_bytes()
    (place / "cut.parquet").write_bytes(whole[: len(whole) // 2])


def test_a_corrupt_page_is_found_while_loading(project: Write, spark: SparkSession) -> None:
    """A file whose footer is fine but whose data is not: only that file is set aside."""
    folder = project({name: text for name, text in FILES.items() if not name.startswith("landing")})
    place = folder / "landing/p"
    place.mkdir(parents=True)
    table = pa.table({"k": [str(n) * 50 for n in range(1000)], "v": pa.array(range(1000), pa.int64())})
    pq.write_table(table, place / "torn.parquet", compression="snappy", use_dictionary=False)
    pq.write_table(pa.table({"k": ["x"], "v": pa.array([1], pa.int64())}), place / "good.parquet")
    data = bytearray((place / "torn.parquet").read_bytes())
    data[200:4000] = b"\xff" * 3800
    (place / "torn.parquet").write_bytes(bytes(data))
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert list(state.quarantine) == ["landing/p/torn.parquet"]
        assert rows(attach(folder), "SELECT * FROM lake.p") == [("x", 1)]
