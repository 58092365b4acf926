"""Replicas on Spark: copied in the background, read on their own, lost and made again."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.engine.desk.versions import QueryError
from penstock.errors import PenstockError
from penstock.tables.replica import Replica, ReplicaFile
from tests.conftest import Write

pytestmark = pytest.mark.spark

FILES = {
    "penstock.toml": """
        name = "shop"
        [feeds.sales]
        path = "in/*.csv"
        format = "csv"
        columns = "at timestamp, shop string, amount int"
        time = "at"
        partition = "day"
        [replicas.branch]
        path = "branch"
        keep_versions = 2
        """,
    "tables/per_shop.sql": """
        -- partition = "day"
        -- time = "day"
        select date_trunc('day', at) as day, shop, sum(amount) as amount from sales group by 1, 2
        """,
    "in/1.csv": """
        at,shop,amount
        2026-01-01T10:00:00Z,a,1
        2026-01-02T10:00:00Z,b,2
        """,
}
TOTAL = "select sum(amount) from per_shop"
BOTH = "select (select sum(amount) from per_shop) - (select sum(amount) from sales)"


def deliver(folder: Path, name: str, *rows: str) -> None:
    (folder / "in" / name).write_text("at,shop,amount\n" + "\n".join(rows) + "\n")


def test_a_replica(spark: SparkSession, project: Write) -> None:
    folder = project(FILES)
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert warehouse.query_replica("branch", TOTAL).rows == [(3,)]
        deliver(folder, "2.csv", "2026-01-02T11:00:00Z,b,4")
        deliver(folder, "3.csv", "2026-01-03T11:00:00Z,b,8")
        # Nothing is copied until someone does it; until then the older state is read, and it is consistent.
        warehouse.run(until_idle=True)
        deliver(folder, "4.csv", "2026-01-03T12:00:00Z,b,16")
        warehouse.run(until_idle=True)
        rows = warehouse.replicas()
        assert [(row.table, row.waiting, row.versions) for row in rows] == [("sales", 0, 2), ("per_shop", 0, 2)]
        assert warehouse.query_replica("branch", TOTAL).rows == warehouse.query(TOTAL).rows == [(31,)]
        both = warehouse.query_replica("branch", BOTH)
        assert both.rows == [(0,)] and both.consistent and both.complete_us is not None

        # The replica needs nothing of the warehouse: its manifests name its files.
        branch = Replica("branch", str(folder / "branch"))
        newest = max(branch.versions()["per_shop"])
        manifest = json.loads((folder / f"branch/versions/per_shop/{newest}.json").read_text())
        files = [str(folder / "branch/data/per_shop" / file["path"]) for file in manifest["files"]]
        assert duckdb.sql(f"select sum(amount) from read_parquet({files})").fetchall() == [(31,)]

        # A file is lost: the older version that has all of its files is read; then it is copied again.
        old = {f.path for f in branch.manifest("per_shop", min(branch.versions()["per_shop"])).files}
        lost = next(file for file in branch.manifest("per_shop", newest).files if file.path not in old)
        (folder / "branch/data/per_shop" / lost.path).unlink()
        assert warehouse.query_replica("branch", TOTAL).rows == [(15,)]
        assert [row.waiting for row in warehouse.replicas(sync=True)] == [0, 0]
        assert warehouse.query_replica("branch", TOTAL).rows == [(31,)]

        # All of it is lost.
        shutil.rmtree(folder / "branch")
        with pytest.raises(QueryError, match="does not have `per_shop`"):
            warehouse.query_replica("branch", TOTAL)
        assert warehouse.query(TOTAL).rows == [(31,)]
        warehouse.replicas(sync=True)
        assert warehouse.query_replica("branch", BOTH).rows == [(0,)]
        with pytest.raises(PenstockError, match="there is no replica `brunch`"):
            warehouse.query_replica("brunch", TOTAL)


def test_a_copy_that_dies_half_way(spark: SparkSession, project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever file it dies, a reader sees no half version, and the next copy goes on."""
    folder = project(FILES)
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        deliver(folder, "2.csv", "2026-01-02T11:00:00Z,b,4", "2026-01-04T11:00:00Z,c,8")
        left = 0
        copy, add = Replica.copy, Replica.add

        def dying_copy(self: Replica, table: str, file: ReplicaFile, source: str) -> None:
            nonlocal left
            if left == 0:
                raise OSError("the disk is away")
            left -= 1
            copy(self, table, file, source)

        def dying_add(self: Replica, manifest: object) -> None:
            nonlocal left
            if left == 0:
                raise OSError("the disk is away")
            left -= 1
            add(self, manifest)  # type: ignore[arg-type]

        monkeypatch.setattr(Replica, "copy", dying_copy)
        monkeypatch.setattr(Replica, "add", dying_add)
        warehouse.run(until_idle=True)  # the warehouse itself does not care
        seen = set()
        for _ in range(12):
            left = 1
            with suppress(OSError):
                warehouse.replicas(sync=True)
            total = warehouse.query_replica("branch", TOTAL).rows[0][0]
            assert warehouse.query_replica("branch", BOTH).rows == [(0,)]
            seen.add(total)
            if left:
                break
        assert seen == {3, 15} and left


def test_wrong_replicas(project: Write) -> None:
    text = FILES["penstock.toml"].replace('path = "branch"', 'path = "warehouse/x"\n        tables = ["sale"]')
    found = [problem.message for problem in check(project({**FILES, "penstock.toml": text}))]
    assert found == [
        "replica `branch` is at warehouse/x, which is the place of the warehouse itself; give it its own",
        "replica `branch` is of table `sale`, which is not there; did you mean `sales`?",
    ]
