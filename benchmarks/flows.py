"""Flows against scripts that do the same: a fork with six targets and the butterfly with four views, over TPC-H.

Variants: a plain script (one action a target); a script with the shared rows cached, as a good engineer would write it;
the same with the columns that are needed picked by hand; Spark Declarative Pipelines (shared rows as a temporary view);
and the flow. Each runs in a fresh JVM, in turns, after a warm-up, and all must give the same rows. Seconds of CPU count the
JVM and Python. The pipelines are started by their own command, so that theirs are of the whole process.

    PENSTOCK_BENCH_SCALE=1 PENSTOCK_BENCH_ROUNDS=3 python -m benchmarks flows
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import duckdb

from benchmarks.flow_variants import SELECTIVITY
from penstock.engine.flows.tpch import FORKS, TOTAL_COST, generate, passing

VARIANTS = ("plain", "hand-cached", "hand-cached, pruned", "pipelines", "flow")
FLOWS = ("fork", "butterfly")
TARGETS = {
    "fork": [f"cost_of_{name}" for name in FORKS],
    "butterfly": ["dw_partsupp", "dw_supplier", "view_1", "view_2", "view_3", "view_4"],
}
Row = dict[str, object]


def run() -> list[Row]:
    scale = float(os.environ.get("PENSTOCK_BENCH_SCALE", "1"))
    rounds = int(os.environ.get("PENSTOCK_BENCH_ROUNDS", "3"))
    chosen = os.environ.get("PENSTOCK_BENCH_VARIANTS", ";".join(VARIANTS)).split(";")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-flows-") as scratch:
        data = generate(Path(os.environ.get("PENSTOCK_BENCH_DATA", scratch)), scale)
        found: list[Row] = []
        for flow in FLOWS:
            figures: dict[str, list[dict[str, float]]] = {variant: [] for variant in chosen}
            for _ in range(rounds):
                for variant in chosen:
                    measure = _pipelines if variant == "pipelines" else _variant
                    figures[variant] += measure(variant, flow, data, Path(scratch))
            same = {variant: _same(Path(scratch) / flow, flow, variant) for variant in chosen}
            found += [_row(flow, scale, variant, figures, same[variant]) for variant in chosen]
        return found


def _variant(variant: str, flow: str, data: Path, scratch: Path) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.flow_variants", variant, flow, str(data), str(scratch), "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _row(flow: str, scale: float, variant: str, figures: dict[str, list[dict[str, float]]], same: bool) -> Row:
    middle = {
        name: {key: median(each[key] for each in some) for key in some[0]} for name, some in figures.items() if some
    }
    mine, ours = middle[variant], middle.get("flow", middle[variant])
    row: Row = {
        "benchmark": f"{flow}, TPC-H {scale:g}",
        "against": variant,
        **{k: round(v, 2) for k, v in mine.items()},
    }
    if variant != "flow" and "flow" in middle:
        row["flow / this: CPU"] = round(ours["cpu_s"] / mine["cpu_s"], 2)
        row["flow / this: wall"] = round(ours["wall_s"] / mine["wall_s"], 2)
        if variant.startswith("hand-cached"):
            row["flow / this: peak"] = round(ours["peak_storage_mb"] / mine["peak_storage_mb"], 2)
    row["same rows"] = str(same)
    return row


def _same(place: Path, flow: str, variant: str) -> bool:
    """Whether a variant gave the rows of the plain script."""
    connection = duckdb.connect()
    for target in TARGETS[flow]:
        left, right = (f"read_parquet('{place}/{name}/{target}/**/*.parquet')" for name in ("plain", variant))
        columns = connection.execute(f"SELECT * FROM {left} LIMIT 0").description
        names = ", ".join(f'"{column[0]}"' for column in columns or ())
        for one, other in ((left, right), (right, left)):
            odd = connection.execute(
                f"SELECT count(*) FROM (SELECT {names} FROM {one} EXCEPT ALL SELECT {names} FROM {other})"
            ).fetchone()
            if odd is None or odd[0]:
                return False
    return True


# Spark Declarative Pipelines

SPEC = """name: bench
storage: file://{place}/storage
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""
HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

"""


def _fork_pipeline(data: Path) -> str:
    views = "".join(
        f"""
@dp.materialized_view(name="cost_of_{name}")
def cost_of_{name}():
    return spark.table("cleansed").groupBy(*{by!r}).agg(
        F.sum("total_cost").alias("cost"), F.sum("l_quantity").alias("quantity"), F.count(F.lit(1)).alias("n"))
"""
        for name, by in FORKS.items()
    )
    return f"""{HEAD}
@dp.temporary_view
def cleansed():
    good = (spark.read.parquet("{data}/lineitem.parquet")
        .where("l_orderkey is not null and l_partkey is not null and l_suppkey is not null")
        .where({passing("l_orderkey", SELECTIVITY)!r})
        .where(F.col("l_comment").rlike("^[A-Za-z ,.?!;:'-]+$"))
        .where("l_discount between 0 and 1"))
    suppliers = spark.read.parquet("{data}/supplier.parquet").selectExpr("s_suppkey as l_suppkey", "s_nationkey")
    return good.join(suppliers, "l_suppkey").withColumn("total_cost", F.expr({TOTAL_COST!r}))
{views}"""


def _butterfly_pipeline(data: Path) -> str:
    return f"""{HEAD}
@dp.materialized_view
def dw_partsupp():
    return (spark.read.parquet("{data}/partsupp.parquet")
        .where("ps_partkey is not null and ps_suppkey is not null").where({passing("ps_partkey", SELECTIVITY)!r})
        .withColumn("total_cost", F.expr("ps_availqty * ps_supplycost")))

@dp.materialized_view
def dw_supplier():
    return (spark.read.parquet("{data}/supplier.parquet")
        .where("s_suppkey is not null").where({passing("s_suppkey", SELECTIVITY)!r})
        .withColumn("s_phone", F.regexp_replace("s_phone", r"^(\\d+)-(\\d+)-(\\d+)-(\\d+)$", "+$1 $2 $3$4")))

@dp.temporary_view
def joined():
    return spark.table("dw_partsupp").join(spark.table("dw_supplier"), F.expr("ps_suppkey = s_suppkey"))

@dp.materialized_view
def view_1():
    return spark.table("joined").groupBy("s_nationkey", "ps_partkey").agg(F.sum("total_cost").alias("cost"))

@dp.materialized_view
def view_2():
    return spark.table("view_1").groupBy("ps_partkey").agg(F.sum("cost").alias("cost"))

@dp.materialized_view
def view_3():
    return spark.table("joined").groupBy("s_nationkey", "ps_suppkey").agg(F.sum("total_cost").alias("cost"))

@dp.materialized_view
def view_4():
    return spark.table("view_3").groupBy("ps_suppkey").agg(F.sum("cost").alias("cost"))
"""


def _pipelines(variant: str, flow: str, data: Path, scratch: Path) -> list[dict[str, float]]:
    place = scratch / flow / "project"
    shutil.rmtree(place, ignore_errors=True)
    (place / "transformations").mkdir(parents=True)
    (place / "spark-pipeline.yml").write_text(SPEC.format(place=place))
    text = (_fork_pipeline if flow == "fork" else _butterfly_pipeline)(data)
    (place / "transformations" / "graph.py").write_text(text)
    out = scratch / flow / variant
    shutil.rmtree(out, ignore_errors=True)
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(out),
        "spark.driver.memory": "4g",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={place}/metastore;create=true",
    }
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(place / "spark-pipeline.yml")]
    for key, value in settings.items():
        command[1:1] = ["--conf", f"{key}={value}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = perf_counter()
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [{"wall_s": perf_counter() - began, "cpu_s": cpu}]
