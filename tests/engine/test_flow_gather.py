"""Aggregates that share a pass over the rows, against DuckDB: keys that are null, keys that others measure, equal keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.declare.flow import Rows, flow
from penstock.declare.flow_check import SparkSql
from penstock.flows.description import typed
from penstock.model.schema import ddl, parse_ddl
from penstock.papers.flows.etl_spark import run_flow

pytestmark = pytest.mark.spark

T = parse_ddl("a string, b int, c date, v bigint")
MEASURES = {"n": "count(*)", "total": "sum(v)", "most": "max(b)"}
KEYS = {"by_a": ["a"], "by_b": ["b"], "by_bc": ["b", "c"], "by_cb": ["c", "b"], "by_v": ["v", "a"]}


@flow
def groups(t: Rows) -> None:
    good = t.filter("v is null or v <> 3", name="good")
    for name, keys in KEYS.items():
        good.aggregate(keys, name=f"of {name}", **MEASURES).into(name)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))])
def test_they_give_what_each_gives_alone(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    import datetime

    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    rows = [
        (
            maybe(chance.choice("xyz")),
            maybe(chance.randrange(4)),
            maybe(chance.choice(days)),
            maybe(chance.randrange(6)),
        )
        for _ in range(500)
    ]
    made: Any = groups
    shaped, wrong = typed(made.flow, {"t": T}, SparkSql())
    assert not wrong
    report = run_flow(spark, shaped, {"t": spark.createDataFrame(rows, ddl(T))}, tmp_path)

    con = duckdb.connect()
    con.execute("CREATE TABLE t (a VARCHAR, b INT, c DATE, v BIGINT)")
    con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    measures = ", ".join(f"{expression} AS {name}" for name, expression in MEASURES.items())
    runs = {run.name: run for run in report.activities}
    for name, keys in KEYS.items():
        by = ", ".join(keys)
        want = con.execute(f"SELECT {by}, {measures} FROM t WHERE v IS NULL OR v <> 3 GROUP BY {by}").fetchall()
        got = con.execute(f"SELECT {by}, n, total, most FROM '{tmp_path}/{name}/**/*.parquet'").fetchall()
        assert sorted(map(repr, got)) == sorted(map(repr, want)), name
        assert runs[f"of {name}"].rows_out == len(want)
    gather = runs["good: groups"]
    assert (gather.kind, gather.rows_in) == ("gather", runs["good"].rows_out)
    # Those with the same keys are made once.
    assert gather.rows_out == sum(runs[f"of {name}"].rows_out for name in KEYS if name != "by_cb")
