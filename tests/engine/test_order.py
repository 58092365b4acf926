"""Files that state the same: which of them counts is what the feed says, whenever they come."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Connection

from penstock.app import Warehouse
from penstock.engine.updates.provenance import order_of
from penstock.requests.job import FeedFile
from penstock.store.store import Store
from tests.conftest import Write

pytestmark = pytest.mark.spark

FEED = """
    [feeds.{name}]
    path = "landing/{name}/*.csv"
    format = "csv"
    columns = "k string, at timestamp, v bigint, version int"
    mode = "snapshot"
    settle = "0s"
    order = "{order}"
    {more}
"""
ORDERS = {"named": "name _v([0-9]+)", "modified": "modified", "versioned": "column version"}


def test_an_older_statement_that_comes_late_does_not_count(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    feeds = [
        FEED.format(name=name, order=order, more='time = "at"\n    partition = "day"') for name, order in ORDERS.items()
    ]
    feeds += [FEED.format(name=f"{name}_whole", order=order, more="") for name, order in ORDERS.items()]
    project({"penstock.toml": 'name = "ordered"\n' + "\n".join(feeds)})

    def deliver(version: int, *rows: tuple[str, str, int]) -> None:
        for name in (*ORDERS, *(f"{name}_whole" for name in ORDERS)):
            path = tmp_path / f"landing/{name}/s_v{version}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"{k},2024-03-{day}T01:00:00Z,{v},{version}" for k, day, v in rows]
            path.write_text("\n".join(["k,at,v,version", *lines, ""]))
            os.utime(path, (1_700_000_000 + version, 1_700_000_000 + version))

    def rows(warehouse: Warehouse, name: str) -> list[tuple[str, int]]:
        return sorted((row[0], row[1]) for row in warehouse.query(f"select k, v from {name}").rows)

    with Warehouse(tmp_path, spark=spark) as warehouse:
        deliver(10, ("a", "01", 10), ("b", "02", 10))
        warehouse.run(until_idle=True)
        deliver(9, ("a", "01", 9), ("c", "03", 9))
        warehouse.run(until_idle=True)
        for name in ORDERS:
            assert rows(warehouse, name) == [("a", 10), ("b", 10), ("c", 9)], name
            assert rows(warehouse, f"{name}_whole") == [("a", 10), ("b", 10)], name
        deliver(11, ("d", "01", 11))
        warehouse.run(until_idle=True)
        for name in ORDERS:
            assert rows(warehouse, name) == [("b", 10), ("c", 9), ("d", 11)], name
            assert rows(warehouse, f"{name}_whole") == [("d", 11)], name
        # What is withdrawn leaves what was said before.
        warehouse.withdraw([f"landing/{name}/s_v11.csv" for name in ORDERS])
        warehouse.run(until_idle=True)
        for name in ORDERS:
            assert rows(warehouse, name) == [("a", 10), ("b", 10), ("c", 9)], name


def test_every_table_of_a_feed_knows_what_orders_its_files(
    tmp_path: Path, spark: SparkSession, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow with a dimension reads the rows of all snapshots, also for what is of the newest only. Which that is must not depend on whether
    the table of the newest was loaded before."""
    flow = """
        import penstock as ps

        @ps.flow
        def dimensions(people):
            people.scd1("known", key="k", at="at")
            people.select("k", "v").into("now")
    """
    project(
        {
            "penstock.toml": 'name = "ordered"\n' + FEED.format(name="people", order="column version", more=""),
            "tables/dimensions.py": flow,
        }
    )
    told: set[tuple[str, str, str]] = set()
    mark = Store.mark_loaded

    def marked(store: Store, conn: Connection, table: str, feed: str, files: tuple[FeedFile, ...], *more: Any) -> None:
        told.update((table, Path(file.uri).name, file.order.lstrip("0")[:3]) for file in files)
        mark(store, conn, table, feed, files, *more)

    monkeypatch.setattr(Store, "mark_loaded", marked)
    (tmp_path / "landing/people").mkdir(parents=True)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        for version, newest in ((5, 5), (3, 5), (7, 7)):
            path = tmp_path / f"landing/people/{version}.csv"
            path.write_text(f"k,at,v,version\na,2024-03-0{version}T01:00:00Z,{version},{version}\n")
            warehouse.run(until_idle=True)
            for table in ("people", "now"):
                assert [row[0] for row in warehouse.query(f"select v from {table}").rows] == [newest], (table, version)
    every = {(table, f"{n}.csv", "1" + "0" * 2) for table in ("people", "people_snapshots") for n in (5, 3, 7)}
    assert told == every


def test_the_name_of_a_file_is_not_that_of_its_folder() -> None:
    assert order_of("name v([0-9]+)", "landing/v2/s_v10.csv", 0) > order_of("name v([0-9]+)", "landing/v2/s_v9.csv", 0)
    assert order_of("name /v([0-9]+)/", "landing/v10/s.csv", 0) > order_of("name /v([0-9]+)/", "landing/v9/s.csv", 0)


def test_a_time_that_clocks_show_twice_orders_as_the_instants_do(
    tmp_path: Path, spark: SparkSession, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    project({"penstock.toml": 'name = "clocks"\n' + FEED.format(name="said", order="column at", more="")})
    (tmp_path / "landing/said").mkdir(parents=True)
    try:
        with Warehouse(tmp_path, spark=spark) as warehouse:
            # 02:10 in winter, then 02:30 in summer: the first is the later one.
            for number, at in enumerate(("01:10", "00:30")):
                (tmp_path / f"landing/said/{number}.csv").write_text(f"k,at,v,version\n{at},2024-10-27T{at}:00Z,1,1\n")
                warehouse.run(until_idle=True)
            assert [row[0] for row in warehouse.query("select k from said").rows] == ["01:10"]
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
