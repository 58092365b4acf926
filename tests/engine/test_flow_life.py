"""Flows in a warehouse: checked before they run, all targets published together, counted, quarantined, partitioned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.flows.report import FlowReport, load
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

# Karagiannis et al. 2013, Fig. 1.
TOML = """
    name = "butterfly"
    [feeds.partsupp_in]
    path = "landing/partsupp-*.csv"
    format = "csv"
    columns = "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(12,2)"
    mode = "snapshot"
    settle = "0s"
    [feeds.supplier_in]
    path = "landing/supplier-*.csv"
    format = "csv"
    columns = "s_suppkey bigint, s_nationkey int, s_phone string"
    mode = "snapshot"
    settle = "0s"
"""
BUTTERFLY = """
    import penstock as ps


    @ps.flow
    def butterfly(partsupp_in, supplier_in):
        parts = (
            partsupp_in.not_null("ps_partkey", "ps_suppkey", bad="quarantine")
            .derive("Total Cost", total_cost="ps_availqty * ps_supplycost")
            .into("partsupp")
        )
        suppliers = (
            supplier_in.not_null("s_suppkey", bad="quarantine")
            .reformat("s_phone", r"^(\\d+)-(\\d+)-(\\d+)$", "+$1 $2$3", name="Phone Format")
            .into("supplier")
        )
        joined = parts.join(suppliers, condition="ps_suppkey = s_suppkey").into("parts_of_suppliers")
        first = joined.aggregate(["s_nationkey", "ps_partkey"], cost="sum(total_cost)").into("view_1")
        first.aggregate("ps_partkey", cost="sum(cost)").into("view_2")
        third = joined.aggregate(["s_nationkey", "ps_suppkey"], cost="sum(total_cost)").into("view_3")
        third.aggregate("ps_suppkey", cost="sum(cost)").into("view_4")
"""
PARTS = (
    "ps_partkey,ps_suppkey,ps_availqty,ps_supplycost\n1,10,2,1.50\n1,20,1,2.00\n2,10,4,0.25\n,10,1,1.00\n3,,1,1.00\n"
)
SUPPLIERS = "s_suppkey,s_nationkey,s_phone\n10,7,49-30-1234\n20,8,odd\n,9,1-2-3\n"


def put(folder: Path, name: str, text: str) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "landing" / f".{name}").write_text(text)
    (folder / "landing" / f".{name}").rename(folder / "landing" / name)


def report(warehouse: Warehouse, flow: str) -> FlowReport:
    with warehouse.store.read() as conn:
        return load(json.loads(warehouse.store.fact(conn, f"flow {flow}") or ""))


def test_the_butterfly_is_one_job(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": TOML, "tables/butterfly.py": BUTTERFLY})
    put(folder, "partsupp-1.csv", PARTS)
    put(folder, "supplier-1.csv", SUPPLIERS)
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        found = report(warehouse, "butterfly")
    con = attach(folder)
    assert rows(con, "SELECT s_suppkey, s_phone FROM lake.supplier") == [(10, "+49 301234"), (20, "odd")]
    assert rows(con, "SELECT * FROM lake.view_1") == [(7, 1, 3), (7, 2, 1), (8, 1, 2)]
    assert rows(con, "SELECT * FROM lake.view_2") == [(1, 5), (2, 1)]
    assert rows(con, "SELECT * FROM lake.view_4") == [(10, 4), (20, 2)]
    kept = rows(con, "SELECT activity, reason, json_extract_string(row, 'ps_partkey') FROM lake.butterfly_quarantine")
    assert kept == [
        ("not_null", "null in ps_partkey or ps_suppkey", "3"),
        ("not_null", "null in ps_partkey or ps_suppkey", None),
        ("not_null 2", "null in s_suppkey", None),
    ]
    # One job, one snapshot for all of them.
    targets = ("partsupp", "supplier", "parts_of_suppliers", "view_1", "view_2", "view_3", "view_4")
    assert len({state.tables[name].snapshot for name in targets}) == 1
    assert [state.tables[name].counts.updates for name in targets] == [1] * 7
    # Every row is accounted for.
    counted = {run.name: (run.rows_in, run.rows_out, run.rejected) for run in found.activities}
    assert counted == {
        "not_null": (5, 3, 2),
        "Total Cost": (3, 3, 0),
        "not_null 2": (3, 2, 1),
        "Phone Format": (2, 2, 0),
        "join": (5, 3, 0),
        "aggregate": (3, 3, 0),
        "aggregate 2": (3, 2, 0),
        "aggregate 3": (3, 2, 0),
        "aggregate 4": (2, 2, 0),
    }
    assert state.tables["partsupp"].counts.quarantined_rows == 3
