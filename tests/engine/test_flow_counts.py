"""Every row of a flow is accounted for: what is counted while it runs, against what each activity gives by itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.declare.flow import Rows, flow
from penstock.declare.flow_check import SparkSql
from penstock.engine.flows.realise import Inputs, realise
from penstock.engine.updates.rows import read_files
from penstock.flows.activities import Activity, Route
from penstock.flows.description import FlowSource, Target, typed
from penstock.flows.report import FlowReport
from penstock.model.schema import Schema, ddl, parse_ddl
from penstock.papers.flows.etl_spark import run_flow

pytestmark = pytest.mark.spark

T = parse_ddl("id bigint, k string, v int, note string")
R = parse_ddl("k string, name string")


@flow
def everything(t: Rows, r: Rows) -> None:
    good = t.not_null("k", bad="quarantine").filter("v > -3").matches("note", r"^[0-9x-]*$", bad="quarantine")
    good = good.in_domain("v", low=0, high=6).look_up(r, on="k", bad="quarantine")
    once = good.deduplicate(["k", "v"], order="id", bad="quarantine").derive("Total Cost", cost="v * 3")
    phones = once.reformat("note", r"^(\d+)-(\d+)$", "+$1 $2", name="Phone Format")
    low, middle, high = phones.route("v <= 1", "v <= 3")
    low.union(high).into("ends")
    middle.has_type("note", "int", bad="default", default="-1").into("numbers")
    left, right = phones.split(["id", "k"], ["k", "cost"])
    left.join(right, on="k").aggregate("k", n="count(*)").into("pairs")
    high.unpivot("v", "cost", name="what", value="much").sort("id").into("long")
    phones.pivot("k", "v", [0, 1, 2], "count(id)").into("wide")


def _shouted(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("k", "concat(name, '!') as name").where("k <> 'd'")


@flow
def history(t: Rows, r: Rows) -> None:
    """What looks at loaded tables, what is sorted, and what nobody can look into."""
    known = t.not_null("k", "note", bad="quarantine").deduplicate("id", bad="quarantine")
    keyed = known.surrogate_key("code", of="note", keys="codes")
    keyed.aggregate("k", v="max(v)", at="max(id)").scd2("versions", key="k", at="at")
    keyed.select("id", "v").scd1("newest", key="id")
    keyed.select("id", "v").difference("newest", key="id").into("changes")
    names = r.apply(_shouted, gives="k string, name string")
    names.sorted_union(keyed.select("k", name="note"), by=["k", "name"]).into("names")


def rows_of(seed: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    notes = ["12", "x7", "030-77", "4.5", "", "77-1"]
    rows = [
        (n, maybe(chance.choice("abcde")), maybe(chance.randrange(-4, 9)), maybe(chance.choice(notes)))
        for n in range(400)
    ]
    return rows, [(key, key.upper()) for key in "abccd"]


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_in_are_rows_out_and_rejected(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    report, refused = accounted(spark, tmp_path, everything, rows_of(seed))
    assert report.shuffle_bytes > 0
    assert spark.conf.get("spark.sql.shuffle.partitions") == before, "a run leaves the session as it was"
    assert len(refused) == 4 and all(refused.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_also_against_what_is_loaded(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    loaded = {
        "codes": ("note string, code bigint", [("12", 1), ("x7", 2), ("none", 3)]),
        "newest": ("id bigint, v int", [(n, 4) for n in range(-20, 60)]),
    }
    for table, (columns, rows) in loaded.items():
        spark.createDataFrame(rows, columns).write.parquet(str(tmp_path / table / "before"))
    report, refused = accounted(spark, tmp_path, history, rows_of(seed))
    assert refused
    kinds = {run.kind for run in report.activities}
    assert {"new_keys", "attach_key", "difference", "sorted_union", "scd1", "scd2", "function"} <= kinds, kinds


@flow
def found_or_not(t: Rows, r: Rows) -> None:
    found = t.in_domain("v", low=0, bad="quarantine").look_up(r, on="k", bad="quarantine").into("found")
    found.aggregate("name", n="count(*)").into("by_name")


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_no_row_is_lost_where_spark_leaves_out_what_gives_none(
    spark: SparkSession, tmp_path: Path, adaptive: str
) -> None:
    """A session of the user's own may plan again while it runs: it then never does what it finds to be joined with nothing."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", adaptive)
    own.conf.set("spark.sql.shuffle.partitions", "4")
    _, refused = accounted(own, tmp_path, found_or_not, ([(1, "a", 1, ""), (2, "b", -1, ""), (3, "c", 2, "")], []))
    assert sorted(refused.values()) == [1, 2]
    assert own.conf.get("spark.sql.adaptive.enabled") == adaptive


Given = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]


def accounted(spark: SparkSession, folder: Path, declared: Any, given_rows: Given) -> tuple[FlowReport, dict[str, int]]:
    """Run a flow, count what each of its activities gives by itself, and compare; what was refused, by activity."""
    shaped, wrong = typed(declared.flow, {"t": T, "r": R}, SparkSql())
    assert not wrong
    frames = {
        name: spark.createDataFrame(rows, ddl(columns))
        for name, rows, columns in zip("tr", given_rows, (T, R), strict=True)
    }

    def loaded(table: str, columns: Schema) -> DataFrame:
        return read_files(spark, [str(path) for path in (folder / table).rglob("*.parquet")], columns, 0)

    alone: dict[str, DataFrame] = {}
    for step in shaped.flow.steps:
        if isinstance(step.does, FlowSource):
            alone[step.name] = frames[step.does.table]
        elif isinstance(step.does, Target):
            alone[step.name] = alone[step.inputs[0]]
        else:
            given = Inputs(tuple(alone[name] for name in step.inputs), loaded)
            alone[step.name] = realise(step.does, given).cache()
    counts = {name: frame.count() for name, frame in alone.items()}
    for frame in alone.values():
        frame.unpersist()

    report = run_flow(spark, shaped, frames, folder)
    runs = {run.name: run for run in report.activities}
    by_activity: dict[tuple[str, ...], int] = {}
    for step in shaped.flow.steps:
        if not isinstance(step.does, Activity):
            continue
        run = runs[step.name]
        assert run.rows_out == counts[step.name], step.name
        inputs = step.inputs[:1] if step.does.looks_up else step.inputs
        assert run.rows_in == sum(counts[name] for name in inputs), step.name
        if isinstance(step.does, Route):
            by_activity[step.inputs] = by_activity.get(step.inputs, 0) + run.rows_out
        elif step.does.row_wise:
            assert run.rows_in == run.rows_out + run.rejected, step.name
    for (provider,), out in by_activity.items():
        assert out == counts[provider]  # each row takes one way
    kept = spark.read.parquet(*(str(path) for path in (folder / f"{shaped.flow.name}_quarantine").iterdir()))
    refused = {run.name: run.rejected for run in report.activities if run.bad == "quarantine" and run.rejected}
    assert {row["activity"]: row["count"] for row in kept.groupBy("activity").count().collect()} == refused
    return report, refused
