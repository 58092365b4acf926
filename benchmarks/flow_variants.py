"""One variant of one flow in a process of its own: `python -m benchmarks.flow_variants VARIANT FLOW DATA WARM OUT REPEATS`.

The work is done over the smaller data of WARM for a while, as long for every variant, so that all code is compiled (a script
that does the same six times is faster there than a flow that does it once), then measured so many times over DATA; each
figure is printed as a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.flow_pipelines import run_pipeline, settings
from penstock.engine.flows.progress import StorageSampler
from penstock.engine.spark.session import start_spark
from penstock.papers.flows.etl_spark import run_flow
from penstock.papers.flows.tpch import ARCHETYPES, FORKS, TOTAL_COST, checked, passing, read

SELECTIVITY = 0.9
WARM_S = 40.0
Keep = Callable[[DataFrame], DataFrame]


def main() -> None:
    variant, flow, data, warm, out, repeats = sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:6]), int(sys.argv[6])
    target = out / flow / variant
    spark = start_spark("bench", out / "spark", {"driver.memory": "4g"} | extra(variant, target))
    began = perf_counter()
    while perf_counter() - began < WARM_S:
        _measured(spark, variant, flow, warm, target)
    for _ in range(repeats):
        print(json.dumps(_measured(spark, variant, flow, data, target)), flush=True)
    spark.stop()


def extra(variant: str, target: Path) -> dict[str, str]:
    return settings(target) if variant == "pipelines" else {}


def _measured(spark: SparkSession, variant: str, flow: str, data: Path, target: Path) -> dict[str, float]:
    shutil.rmtree(target, ignore_errors=True)
    work = {"flow": _flow, "pipelines": _pipelines}.get(variant) or {"fork": _fork, "butterfly": _butterfly}[flow]
    before, began = cpu_s(spark), perf_counter()
    with StorageSampler(spark, 0.05) as storage:
        work(spark, data, target, variant, flow)
    seconds, cpu = perf_counter() - began, cpu_s(spark) - before
    return {
        "wall_s": seconds,
        "cpu_s": cpu,
        "peak_storage_mb": (storage.peak_bytes - storage.before_bytes) / 1e6,
    }


def cpu_s(spark: SparkSession) -> float:
    """Of the JVM, of this process, and of those that it started and that have ended."""
    jvm: Any = spark.sparkContext._jvm
    fields = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks + sum(os.times()[:4])


def _pipelines(spark: SparkSession, data: Path, out: Path, _variant: str, flow: str) -> None:
    port = spark.conf.get("spark.connect.grpc.binding.port")
    assert port is not None
    run_pipeline(flow, data, out.parent / "project", port, SELECTIVITY)


def _flow(spark: SparkSession, data: Path, out: Path, variant: str, flow: str) -> None:
    made = ARCHETYPES[flow](SELECTIVITY)
    frames = {table: read(spark, data, table) for table in made.sources}
    run_flow(spark, checked(made), frames, out, rows=_rows(data, list(made.sources)))


def _rows(data: Path, tables: list[str]) -> dict[str, float]:
    import pyarrow.parquet as pq

    return {table: float(pq.read_metadata(data / f"{table}.parquet").num_rows) for table in tables}


def _keeper(variant: str) -> tuple[Keep, list[DataFrame]]:
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        if variant.startswith("hand-cached"):
            frame = frame.cache()
            kept.append(frame)
        return frame

    return keep, kept


def _fork(spark: SparkSession, data: Path, out: Path, variant: str, _flow_name: str) -> None:
    """As a script: the cleansed rows, cached or not, then one write for each target."""
    keep, kept = _keeper(variant)
    good = (
        read(spark, data, "lineitem")
        .where("l_orderkey is not null and l_partkey is not null and l_suppkey is not null")
        .where(passing("l_orderkey", SELECTIVITY))
        .where(F.col("l_comment").rlike("^[A-Za-z ,.?!;:'-]+$"))
        .where("l_discount between 0 and 1")
    )
    suppliers = read(spark, data, "supplier").selectExpr("s_suppkey as l_suppkey", "s_nationkey")
    found = good.join(suppliers, "l_suppkey").withColumn("total_cost", F.expr(TOTAL_COST))
    if variant == "hand-cached, pruned":
        used = sorted({column for by in FORKS.values() for column in by} | {"total_cost", "l_quantity"})
        found = found.select(*used)
    found = keep(found)
    for name, by in FORKS.items():
        sums = found.groupBy(*by).agg(
            F.sum("total_cost").alias("cost"), F.sum("l_quantity").alias("quantity"), F.count(F.lit(1)).alias("n")
        )
        sums.write.parquet(str(out / f"cost_of_{name}"))
    for frame in kept:
        frame.unpersist()


def _butterfly(spark: SparkSession, data: Path, out: Path, variant: str, _flow_name: str) -> None:
    keep, kept = _keeper(variant)
    parts = (
        read(spark, data, "partsupp")
        .where("ps_partkey is not null and ps_suppkey is not null")
        .where(passing("ps_partkey", SELECTIVITY))
        .withColumn("total_cost", F.expr("ps_availqty * ps_supplycost"))
    )
    suppliers = (
        read(spark, data, "supplier")
        .where("s_suppkey is not null")
        .where(passing("s_suppkey", SELECTIVITY))
        .withColumn("s_phone", F.regexp_replace("s_phone", r"^(\d+)-(\d+)-(\d+)-(\d+)$", "+$1 $2 $3$4"))
    )
    parts, suppliers = keep(parts), keep(suppliers)
    parts.write.parquet(str(out / "dw_partsupp"))
    suppliers.write.parquet(str(out / "dw_supplier"))
    joined = parts.join(suppliers, F.expr("ps_suppkey = s_suppkey"))
    if variant == "hand-cached, pruned":
        joined = joined.select("s_nationkey", "ps_partkey", "ps_suppkey", "total_cost")
    joined = keep(joined)
    for large, small, by, one in (
        ("view_1", "view_2", ["s_nationkey", "ps_partkey"], "ps_partkey"),
        ("view_3", "view_4", ["s_nationkey", "ps_suppkey"], "ps_suppkey"),
    ):
        view = keep(joined.groupBy(*by).agg(F.sum("total_cost").alias("cost")))
        view.write.parquet(str(out / large))
        view.groupBy(one).agg(F.sum("cost").alias("cost")).write.parquet(str(out / small))
    for frame in kept:
        frame.unpersist()


if __name__ == "__main__":
    main()
