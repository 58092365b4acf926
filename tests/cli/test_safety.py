"""backup, restore, move and verify as users type them, with tables that Spark made."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.cli.test_commands import as_json, penstock
from tests.conftest import Write

FILES = {
    "penstock.toml": """
        name = "safe"
        [feeds.c]
        path = "landing/*.csv"
        format = "csv"
        columns = "k string, ts timestamp, v double"
        time = "ts"
        partition = "day"
        settle = "0s"
        lateness = "1h"
        [feeds.names]
        path = "names/*.csv"
        format = "csv"
        columns = "k string, name string"
        mode = "snapshot"
        settle = "0s"
        [replicas.branch]
        path = "branch"
    """,
    "tables/sums.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT date_trunc('day', ts) AS day, k, sum(v) AS v, avg(v) AS mean FROM c GROUP BY 1, 2
    """,
    "tables/named.sql": "SELECT n.name, sum(s.v) AS v FROM sums s JOIN names n ON n.k = s.k GROUP BY n.name\n",
    "tables/flows.py": """
        import penstock as ps

        @ps.flow(partition="day", time="ts")
        def large(c):
            c.filter("v > 1").into("large")
    """,
    "names/1.csv": "k,name\na,Anna\nb,Ben\n",
    "landing/1.csv": "k,ts,v\na,2024-01-01T10:00:00Z,1.1\nb,2024-01-02T10:00:00Z,2.7\na,2024-01-02T11:00:00Z,0.3\n",
}


def tables(report: Any) -> dict[str, bool | None]:
    return {one["table"]: one["equal"] for one in report["compared"]}


@pytest.mark.spark
def test_a_warehouse_is_verified_backed_up_moved_and_restored(
    project: Write, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = project(FILES)
    at = ("-p", str(folder))
    kept = tmp_path_factory.mktemp("kept") / "backup"
    assert penstock("run", "--until-idle", "-q", *at).exit_code == 0
    (folder / "landing" / "2.csv").write_text("k,ts,v\na,2024-01-03T10:00:00Z,4\nb,2024-01-02T23:30:00Z,8\n")
    assert penstock("run", "--until-idle", "-q", *at).exit_code == 0
    report = as_json("verify", "--deep", *at)
    assert isinstance(report, dict) and report["ok"], report
    assert tables(report) == {"c": True, "names": None, "sums": True, "named": True, "large": True}
    assert not list((folder / ".penstock").glob("verify-*"))
    backed_up = as_json("backup", str(kept), *at)
    assert isinstance(backed_up, dict) and backed_up["files"] > 4

    # Somebody changed a number in a table, and made the catalogue believe it.
    database = folder / ".penstock" / "penstock.db"
    with closing(sqlite3.connect(database)) as conn:
        (path,) = conn.execute(
            "SELECT f.path FROM ducklake_data_file f JOIN ducklake_table t USING (table_id) "
            "WHERE t.table_name = 'sums' AND f.end_snapshot IS NULL LIMIT 1"
        ).fetchone()
    file = folder / "warehouse" / "main" / "sums" / path
    changed = pq.read_table(file, partitioning=None)
    values = [value + 1 for value in changed.column("v").to_pylist()]
    changed = changed.set_column(changed.schema.get_field_index("v"), "v", pa.array(values))
    file.unlink()  # else the backup, which is linked, would change, too
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(changed, file)
    shown = penstock("verify", *at)
    assert shown.exit_code == 1 and "bytes instead of" in shown.stdout and "--repair" in shown.stdout
    with closing(sqlite3.connect(database)) as conn, conn:
        now = (file.stat().st_size, path)
        conn.execute("UPDATE ducklake_data_file SET file_size_bytes = ? WHERE path = ?", now)
        conn.execute("DELETE FROM ducklake_file_column_stats")
    shown = penstock("verify", "--deep", *at)
    (line,) = (line for line in shown.stdout.splitlines() if line.startswith("sums "))
    assert shown.exit_code == 1 and "rows too many" in line, line
    assert penstock("restore", str(kept), *at).exit_code == 1
    assert penstock("restore", str(kept), "--force", *at).exit_code == 0
    report = as_json("verify", *at)
    assert isinstance(report, dict) and report["ok"], report

    # The whole project moves, then its data.
    moved = tmp_path_factory.mktemp("moved") / "project"
    shutil.move(folder, moved)
    there = ("-p", str(moved))
    assert penstock("move", "data/tables", *there).exit_code == 0
    assert 'path = "data/tables"' in (moved / "penstock.toml").read_text() and not (moved / "warehouse").exists()
    (moved / "landing" / "3.csv").write_text("k,ts,v\nb,2024-01-03T12:30:00Z,16\n")
    assert penstock("run", "--until-idle", "-q", *there).exit_code == 0
    with Warehouse(moved, spark=spark) as warehouse:
        assert warehouse.query("select sum(v) from c").rows == [(32.1,)]
        assert warehouse.query_replica("branch", "select sum(v) from c").rows == [(32.1,)]
    report = as_json("verify", "--deep", *there)
    assert isinstance(report, dict) and report["ok"] and tables(report)["sums"], report

    # A copy of it may not write to the same replica.
    settings = (moved / "penstock.toml").read_text().replace('path = "branch"', f'path = "{moved}/branch"')
    copy = tmp_path_factory.mktemp("copied") / "project"
    shutil.copytree(moved, copy)
    (copy / "penstock.toml").write_text(settings)
    branch = sorted(path for path in (moved / "branch").rglob("*") if path.is_file())
    shown = penstock("replicas", "--sync", "-p", str(copy))
    assert shown.exit_code == 1 and "is of project `safe`" in shown.stdout.replace("\n", " ")
    assert sorted(path for path in (moved / "branch").rglob("*") if path.is_file()) == branch


def test_what_is_refused_is_told_in_two_lines(project: Write) -> None:
    folder = project(FILES)
    at = ("-p", str(folder))
    assert penstock("status", *at).exit_code == 0
    shutil.rmtree(folder / ".penstock")
    for words in (("status",), ("query", "select 1 from c"), ("run", "--until-idle"), ("verify",), ("backup", "x")):
        shown = penstock(*words, *at)
        assert shown.exit_code == 1 and "penstock restore" in shown.stderr and len(shown.stderr.splitlines()) == 2, (
            words
        )
    shown = penstock("verify", "--accept", *at)
    assert shown.exit_code == 1, "an empty catalogue is not accepted over a folder of another"


def test_troubles_of_the_disk_are_told(project: Write) -> None:
    folder = project(FILES)
    at = ("-p", str(folder))
    (folder / "warehouse").write_text("a file, not a folder")
    shown = penstock("status", *at)
    assert shown.exit_code == 1 and "cannot be written" in shown.stderr and len(shown.stderr.splitlines()) == 2
    (folder / "warehouse").unlink()
    assert penstock("status", *at).exit_code == 0
    (folder / "x").write_text("")
    shown = penstock("backup", str(folder / "x" / "y"), *at)
    assert shown.exit_code == 1 and "goes on" in shown.stderr
    kept = folder.parent / f"{folder.name}-kept"
    assert penstock("backup", str(kept), *at).exit_code == 0
    next(kept.glob("store-*.db")).write_text("no database")
    shown = penstock("restore", str(kept), "--force", *at)
    assert shown.exit_code == 1 and "database cannot be used" in shown.stderr.replace("\n", " ")
    assert penstock("status", *at).exit_code == 0
