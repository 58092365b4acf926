"""The graphs of the flow benchmarks as Spark Declarative Pipelines, run by its own client against the session of the process.

Shared rows are a temporary view, as its guide has it; what is written is a materialized view.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from penstock.papers.flows.tpch import FORKS, TOTAL_COST, passing

SPEC = """name: bench
storage: file://{place}/storage
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


def _fork(data: Path, selectivity: float) -> str:
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
        .where({passing("l_orderkey", selectivity)!r})
        .where(F.col("l_comment").rlike("^[A-Za-z ,.?!;:'-]+$"))
        .where("l_discount between 0 and 1"))
    suppliers = spark.read.parquet("{data}/supplier.parquet").selectExpr("s_suppkey as l_suppkey", "s_nationkey")
    return good.join(suppliers, "l_suppkey").withColumn("total_cost", F.expr({TOTAL_COST!r}))
{views}"""


def _butterfly(data: Path, selectivity: float) -> str:
    return f"""{HEAD}
@dp.materialized_view
def dw_partsupp():
    return (spark.read.parquet("{data}/partsupp.parquet")
        .where("ps_partkey is not null and ps_suppkey is not null").where({passing("ps_partkey", selectivity)!r})
        .withColumn("total_cost", F.expr("ps_availqty * ps_supplycost")))

@dp.materialized_view
def dw_supplier():
    return (spark.read.parquet("{data}/supplier.parquet")
        .where("s_suppkey is not null").where({passing("s_suppkey", selectivity)!r})
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


GRAPHS = {"fork": _fork, "butterfly": _butterfly}


def settings(out: Path) -> dict[str, str]:
    """What the session needs so that pipelines run in it: the Connect server, and a catalogue that remembers tables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "connect.grpc.binding.address": "127.0.0.1",
        "connect.grpc.binding.port": str(port),
        "sql.catalogImplementation": "hive",
        "sql.warehouse.dir": str(out),
        "hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:memory:bench{port};create=true",
    }


def run_pipeline(flow: str, data: Path, place: Path, port: str, selectivity: float) -> None:
    shutil.rmtree(place, ignore_errors=True)
    (place / "transformations").mkdir(parents=True)
    (place / "spark-pipeline.yml").write_text(SPEC.format(place=place))
    (place / "transformations" / "graph.py").write_text(GRAPHS[flow](data, selectivity))
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(place / "spark-pipeline.yml")]
    # The client must not find the gateway of this process.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    environment |= {"SPARK_REMOTE": f"sc://127.0.0.1:{port}", "SPARK_CONNECT_MODE_ENABLED": "1"}
    done = subprocess.run([*command, "--full-refresh-all"], capture_output=True, text=True, cwd=place, env=environment)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
