"""What happens to a warehouse over time: new and changed views, new columns, upkeep, retention, consistent reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control import readiness
from penstock.control.state import State
from penstock.engine.declarations import restored_state
from penstock.engine.spark import work as sparkwork
from penstock.engine.upkeep.retention import expire
from penstock.errors import PenstockError
from tests.conftest import Write
from tests.control.replay import replay
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

TOML = """
    name = "life"
    [feeds.c]
    path = "landing/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v int"
    time = "ts"
    partition = "day"
    settle = "0s"
"""
SUMS = """
    -- partition = "day"
    -- time = "day"
    SELECT date_trunc('day', ts) AS day, k, sum(v) AS v FROM c GROUP BY 1, 2
"""


def put(folder: Path, number: int, *lines: str, header: str = "k,ts,v") -> None:
    (folder / "landing").mkdir(exist_ok=True)
    staged = folder / "landing" / f".{number}"
    staged.write_text("\n".join((header, *lines)) + "\n")
    staged.rename(folder / "landing" / f"{number:03d}.csv")


def run(folder: Path, spark: SparkSession) -> State:
    with Warehouse(folder, spark=spark) as warehouse:
        return warehouse.run(until_idle=True)


def test_logic_views_and_columns_change(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": TOML, "tables/sums.sql": SUMS})
    put(folder, 1, "a,2024-01-01T10:00:00Z,1", "a,2024-01-02T10:00:00Z,2")
    run(folder, spark)
    # A new view takes up the history; a changed one is made again, with a new column and a wider type.
    (folder / "tables/total.sql").write_text("SELECT k, sum(v) AS v FROM sums GROUP BY k\n")
    (folder / "tables/sums.sql").write_text(
        '-- partition = "day"\n-- time = "day"\n'
        "SELECT date_trunc('day', ts) AS day, k, sum(v) * 10 AS v, count(*) AS n FROM c GROUP BY 1, 2\n"
    )
    state = run(folder, spark)
    con = attach(folder)
    assert rows(con, "SELECT k, v, n FROM lake.sums") == [("a", 10, 1), ("a", 20, 1)]
    assert rows(con, "SELECT * FROM lake.total") == [("a", 30)]
    assert state.tables["total"].counts.updates <= 2
    # The feed gets a column.
    (folder / "penstock.toml").write_text((folder / "penstock.toml").read_text().replace("v int", "v int, w string"))
    put(folder, 2, "b,2024-01-02T11:00:00Z,5,hello", header="k,ts,v,w")
    run(folder, spark)
    con = attach(folder)
    assert rows(con, "SELECT k, w FROM lake.c") == [("a", None), ("a", None), ("b", "hello")]
    # An earlier version is still there, with the columns that it had.
    first = con.execute("SELECT min(snapshot_id) FROM ducklake_snapshots('lake') WHERE snapshot_id > 1").fetchone()
    assert first is not None
    assert rows(con, f"SELECT * EXCLUDE (day) FROM lake.sums AT (VERSION => {first[0]})") == [("a", 1), ("a", 2)]
    # A column that goes: the table starts anew without it; earlier versions still have it.
    (folder / "tables/sums.sql").write_text(
        '-- partition = "day"\n-- time = "day"\nSELECT date_trunc(\'day\', ts) AS day, k, count(*) AS n FROM c GROUP BY 1, 2\n'
    )
    (folder / "tables/total.sql").unlink()
    state = run(folder, spark)
    assert not state.tables["sums"].failed
    con = attach(folder)
    assert rows(con, "SELECT * EXCLUDE (day) FROM lake.sums") == [("a", 1), ("a", 1), ("b", 1)]
    assert rows(con, f"SELECT * EXCLUDE (day) FROM lake.sums AT (VERSION => {first[0]})") == [("a", 1), ("a", 2)]


def test_small_files_are_merged_and_old_versions_go(
    project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "SMALL_FILES", 5)
    monkeypatch.setattr(sparkwork, "WORTH_MERGING", 3)
    folder = project({"penstock.toml": TOML, "tables/sums.sql": SUMS})
    with Warehouse(folder, spark=spark) as warehouse:
        for number in range(6):
            put(folder, number, f"k{number},2024-01-01T10:0{number}:00Z,{number}")
            with warehouse.running() as runtime:
                runtime.run(until_idle=True)
                while runtime.decide():
                    runtime.run(until_idle=True)
        con = attach(folder)
        live = "SELECT count(*) FROM ducklake_list_files('lake', 'c')"
        assert rows(con, live)[0][0] <= 2
        expected = sorted((f"k{n}", n) for n in range(6))
        assert rows(con, "SELECT k, v FROM lake.c") == expected
        assert rows(con, "SELECT k, v FROM lake.sums") == expected
        # A pinned reader keeps its version; everything else before the newest goes.
        with warehouse.store.write() as conn:
            newest = warehouse.catalogue.snapshot(conn)
            old = 3
            warehouse.catalogue.pin(conn, old, "reader", warehouse.clock.now_us() + 60_000_000)
        config = warehouse.declared.definitions["c"].declaration.config
        keep_one = config.model_copy(update={"keep_versions": 1, "keep_days": None})
        for name in ("c", "sums"):
            object.__setattr__(warehouse.declared.definitions[name].declaration, "config", keep_one)
        gone = expire(warehouse.declared, warehouse.store, warehouse.catalogue, warehouse.clock.now_us(), [])
        assert gone
        for path in gone:
            Path(path).unlink()
        con = attach(folder)
        assert rows(con, "SELECT k, v FROM lake.c") == expected
        seen = rows(con, f"SELECT k FROM lake.c AT (VERSION => {old})")
        assert 0 < len(seen) < 6
        assert newest > old
        # Going on after that: a fold onto merged files doubles nothing.
        put(folder, 7, "k7,2024-01-01T11:00:00Z,7")
        warehouse.run(until_idle=True)
        assert rows(attach(folder), "SELECT k, v FROM lake.sums") == [*expected, ("k7", 7)]


def test_an_update_without_rows_leaves_nothing_on_disk(project: Write, spark: SparkSession) -> None:
    rare = '-- partition = "day"\n-- time = "ts"\nSELECT k, ts, v FROM c WHERE v > 100\n'
    folder = project({"penstock.toml": TOML, "tables/rare.sql": rare})
    put(folder, 1, "a,2024-01-01T10:00:00Z,1")
    state = run(folder, spark)
    assert state.tables["rare"].counts.updates == 1
    assert [left for left in (folder / "warehouse").rglob("*/job-*") if not any(left.iterdir())] == []
    assert rows(attach(folder), "SELECT * FROM lake.rare") == []


def test_consistent_reads(project: Write, spark: SparkSession) -> None:
    """While a view lags behind its source, a query over both sees both as of the same state."""
    folder = project({"penstock.toml": TOML, "tables/sums.sql": SUMS})
    sql = "SELECT (SELECT sum(v) FROM c) AS raw, (SELECT sum(v) FROM sums) AS rolled"
    put(folder, 1, "a,2024-01-01T10:00:00Z,1")
    run(folder, spark)
    with Warehouse(folder, spark=spark) as warehouse:
        put(folder, 2, "a,2024-01-01T11:00:00Z,2")
        with warehouse.running() as runtime:
            # Only the load is carried out.
            runtime.arrivals.scan()
            runtime.tail()
            runtime.decide()
            while runtime.controller.state.busy:
                runtime._news.wait(1)
                runtime.tail()
            result = warehouse.query(sql)
            assert result.rows == [(1, 1)] and result.consistent
            assert {version.table for version in result.versions} == {"c", "sums"}
            assert warehouse.query("SELECT sum(v) AS raw FROM c").rows == [(3,)]
            runtime.run(until_idle=True)
        assert warehouse.query(sql).rows == [(3, 3)]
        assert warehouse.query("SELECT * FROM c_quarantine").rows == []
        with pytest.raises(PenstockError, match="not a table of this project"):
            warehouse.query("SELECT * FROM nothing")
        with pytest.raises(PenstockError):
            warehouse.query("DROP TABLE c")


def test_the_recorded_log_gives_the_same_decisions(project: Write, spark: SparkSession) -> None:
    folder = project(
        {"penstock.toml": TOML, "tables/sums.sql": SUMS, "tables/total.sql": "SELECT sum(v) AS v FROM sums"}
    )
    with Warehouse(folder, spark=spark) as warehouse:
        for number in range(3):
            put(folder, number, f"a,2024-01-0{number + 1}T10:00:00Z,{number}")
            warehouse.run(until_idle=True)
        with warehouse.store.read() as conn:
            log = list(warehouse.store.events(conn))
        assert sum(event.kind == "update-started" for _, event in log) >= 7
        assert replay(log) == []
        assert restored_state(warehouse.store).snapshot == State().fold(log).snapshot
