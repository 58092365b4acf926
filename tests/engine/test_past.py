"""What versions contain, queries as of one of them, and how two differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.upkeep.retention import expire
from penstock.errors import PenstockError
from tests.conftest import Write

pytestmark = pytest.mark.spark

TOML = """
    name = "past"
    zone = "Europe/Berlin"
    [feeds.sales]
    path = "landing/sales/*.csv"
    format = "csv"
    columns = "shop string, ts timestamp, n bigint"
    time = "ts"
    partition = "day"
    settle = "0s"
    {keep}
"""
DAILY = """
    -- partition = "day"
    -- time = "day"
    {keep}
    SELECT shop, date_trunc('day', ts) AS day, sum(n) AS n FROM sales GROUP BY shop, date_trunc('day', ts)
"""


class Shop:
    def __init__(self, folder: Path, spark: SparkSession, write: Write, keep: str = "") -> None:
        self.folder, self.spark = folder, spark
        write(
            {
                "penstock.toml": TOML.format(keep=keep),
                "tables/daily.sql": DAILY.format(keep=f"-- {keep}" if keep else ""),
            }
        )

    def run(self, name: str, *rows: str) -> None:
        path = self.folder / "landing/sales" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("shop,ts,n\n" + "".join(f"{row}\n" for row in rows))
        with self.open() as warehouse:
            warehouse.run(until_idle=True)

    def open(self) -> Warehouse:
        return Warehouse(self.folder, spark=self.spark)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, project: Write) -> Shop:
    made = Shop(project({}), spark, project)
    made.run("a.csv", "x,2026-03-01 10:00:00,1", "y,2026-03-01 11:00:00,2", "x,2026-03-03 10:00:00,5")
    made.run("b.csv", "x,2026-03-04 10:00:00,7", "x,2026-03-01 12:00:00,10")
    return made


def test_versions_say_what_they_are_made_from(shop: Shop) -> None:
    with shop.open() as warehouse:
        sales, daily = warehouse.versions("sales"), warehouse.versions("daily")
        assert [[Path(uri).name for uri in one.files] for one in sales] == [["b.csv"], ["a.csv"]]
        assert [one.inputs for one in daily] == [{"sales": sales[0].version}, {"sales": sales[1].version}]
        assert all(one.kept and one.why and one.reflects for one in daily)
        # Only the first changed the third; both the first.
        assert warehouse.versions("daily", "2026-03-03", limit=5)[-1].version == daily[1].version
        assert len(warehouse.versions("daily", "2026-03-01")) == 2
        assert warehouse.versions("daily", "2025") == []
        assert len(warehouse.versions("daily", limit=1)) == 1


def test_queries_as_of_a_version_or_a_time(shop: Shop) -> None:
    sql = "SELECT shop, sum(n) AS n FROM daily GROUP BY shop ORDER BY shop"
    with shop.open() as warehouse:
        new, old = warehouse.versions("daily")
        assert warehouse.query_at(sql, old.version).rows == [("x", 6), ("y", 2)]
        assert warehouse.query_at(sql, str(new.version)).rows == [("x", 23), ("y", 2)]
        then = old.at_us // 1_000_000 + 1
        if then * 1_000_000 < new.at_us:
            from datetime import UTC, datetime

            assert warehouse.query_at(sql, datetime.fromtimestamp(then, UTC).isoformat()).rows == [("x", 6), ("y", 2)]
        both = "SELECT (SELECT sum(n) FROM sales WHERE ts < '2026-03-03') - (SELECT sum(n) FROM daily WHERE day < '2026-03-03')"
        # The load of the second file came before the view had it: as of then, the two agree all the same.
        between = warehouse.versions("sales")[0].version
        assert between < new.version
        found = warehouse.query_at(both, between)
        assert found.consistent and found.rows == [(0,)]
        assert warehouse.query_at(both, between, consistent=False).rows == [(10,)]


def test_the_past_has_an_end_and_a_beginning(shop: Shop) -> None:
    with shop.open() as warehouse:
        for at, said in (
            (10_000, "there is no version 10000 yet; the newest is"),
            (
                "2020-01-01",
                "there is no version of `daily` as old as 2020-01-01 00:00 Europe/Berlin; the oldest known is",
            ),
            (1, "`daily` has no version as old as 1"),
            ("soon", "'soon' is neither a version nor a time"),
        ):
            with pytest.raises(PenstockError) as caught:
                warehouse.query_at("SELECT * FROM daily", at)
            assert said in str(caught.value)


def test_versions_that_retention_removed(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    shop = Shop(project({}), spark, project, keep="keep_versions = 1")
    for day in range(1, 5):
        shop.run(f"{day}.csv", f"x,2026-03-0{day} 10:00:00,{day}", "x,2026-03-01 09:00:00,1")
    with shop.open() as warehouse:
        made = warehouse.versions("daily")
        expire(warehouse.declared, warehouse.store, warehouse.catalogue, warehouse.clock.now_us(), [])
        (kept,) = warehouse.versions("daily")
        assert kept.version == made[0].version
        for at in (made[1].version, made[-1].version):
            with pytest.raises(
                PenstockError, match=f"`daily` has no version as old as {at}; see `penstock versions daily`"
            ):
                warehouse.query_at("SELECT * FROM daily", at)
        assert warehouse.query_at("SELECT sum(n) FROM daily", kept.version).rows == [(14,)]


def test_diff(shop: Shop) -> None:
    with shop.open() as warehouse:
        new, old = (one.version for one in warehouse.versions("daily"))
        found = warehouse.diff("daily", old, new, key=["shop", "day"])
        assert (found.added, found.removed, found.changed) == (2, 1, 1)
        assert [(one.added, one.removed) for one in found.partitions] == [(1, 1), (1, 0)]
        assert [(n, row[0], row[2]) for n, row in found.rows] == [(-1, "x", 1), (1, "x", 11), (1, "x", 7)]
        assert warehouse.diff("daily", new, new).same
        back = warehouse.diff("daily", new, old)
        assert (back.added, back.removed, back.changed) == (1, 2, None)
        with pytest.raises(PenstockError, match="no column `shup` in both versions; they share shop, day, n"):
            warehouse.diff("daily", old, new, key=["shup"])


def test_a_diff_tells_new_columns(shop: Shop) -> None:
    path = next(shop.folder.rglob("daily.sql"))
    path.write_text(path.read_text().replace("sum(n) AS n", "sum(n) AS n, count(*) AS sales"))
    shop.run("c.csv", "z,2026-03-02 10:00:00,1")
    with shop.open() as warehouse:
        versions = warehouse.versions("daily")
        found = warehouse.diff("daily", versions[-2].version, versions[0].version)
        assert found.columns_added == ("sales",) and found.columns == ("shop", "day", "n")
        assert (found.added, found.removed) == (1, 0)
