"""Flows of TPC-H: the staging plan and every operator policy give the rows of a plain script, here DuckDB's."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.papers.flows.etl_spark import POLICIES, measured, run_flow
from penstock.papers.flows.packs import PacksRun
from penstock.papers.flows.policies import find_operator_policy
from penstock.papers.flows.tpch import ARCHETYPES, checked, generate, in_packs, read

pytestmark = pytest.mark.spark

SCRIPT = {
    "line/plan/cost_of_part": """SELECT ps_partkey, sum(ps_availqty * ps_supplycost) FROM partsupp WHERE ps_partkey IN (SELECT ps_partkey FROM
        kept) GROUP BY 1""",
    "butterfly/plan/view_2": """SELECT ps_partkey, sum(ps_availqty * ps_supplycost) FROM partsupp JOIN supplier ON ps_suppkey = s_suppkey WHERE
        ps_partkey IN (SELECT ps_partkey FROM kept) AND s_suppkey IN (SELECT s_suppkey FROM kept_suppliers) GROUP BY 1""",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("tpch"), 0.001)


def rows(sql: str) -> list[tuple[object, ...]]:
    return sorted(duckdb.sql(sql).fetchall())


def test_archetypes_and_policies_give_the_same_rows(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    typed = {name: checked(make(0.7)) for name, make in ARCHETYPES.items()}
    for name in ("line", "butterfly", "fork", "primary_flow"):
        flow = typed[name]
        frames = {table: read(spark, data, table) for table in flow.flow.sources}
        report = run_flow(spark, flow, frames, tmp_path / name / "plan", input_bytes=0)
        for run in report.activities:
            if run.kind in ("not_null", "filter", "matches", "in_domain", "look_up"):
                assert run.rows_in == run.rows_out + run.rejected
        if name == "fork":
            continue
        packs = {table: in_packs(spark, data, table, 2) for table in flow.flow.sources}
        policy = {"line": "round-robin", "butterfly": "mixed", "primary_flow": "minimum-memory"}[name]
        found = PacksRun(spark, flow, packs, tmp_path / name / policy, find_operator_policy(policy), 1).run()
        assert found.fullest_queue <= 1
        for run in report.activities:
            assert (found.rows_in[run.name], found.rows_out[run.name]) == (run.rows_in, run.rows_out), run.name
        for target in flow.flow.targets:
            both = [rows(f"SELECT * FROM '{tmp_path}/{name}/{way}/{target}/**/*.parquet'") for way in ("plan", policy)]
            assert both[0] == both[1] and both[0]
    # Against a script; which keys pass the selectivity is Spark's hash, so they are taken from the loaded tables.
    for table, key, place in (
        ("kept", "ps_partkey", "butterfly/plan/dw_partsupp"),
        ("kept_suppliers", "s_suppkey", "butterfly/plan/dw_supplier"),
    ):
        duckdb.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT DISTINCT {key} FROM '{tmp_path}/{place}/*.parquet'")
    for table in ("partsupp", "supplier"):
        duckdb.sql(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM '{data}/{table}.parquet'")
    for target, sql in SCRIPT.items():
        assert rows(f"SELECT * FROM '{tmp_path}/{target}/*.parquet'") == rows(sql)


def test_the_experiment_has_a_row_for_every_policy(spark: SparkSession, data: Path) -> None:
    parameters = {
        "flows": ("line",),
        "policies": POLICIES,
        "scale": 0.001,
        "selectivity": 0.9,
        "packs": 2,
        "queue_packs": 1,
    }
    found = measured(spark, parameters, data.parent)
    assert [row["policy"] for row in found] == list(POLICIES)
    assert all(row["maximum_packs"] <= 6 for row in found)
