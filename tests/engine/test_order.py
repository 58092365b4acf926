"""Files that state the same: which of them counts is what the feed says, whenever they come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
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
