"""Bulk load: 1 GB of TPC-H lineitem delivered as 100 files, against Structured Streaming's file source (availableNow)
writing Parquet. Same session settings, interleaved, rows compared."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.flow_variants import cpu_s
from penstock.app import Warehouse
from penstock.engine.spark.session import start_spark

REPEATS = 3
COLUMNS = (
    "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
    "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
    "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
    "l_shipmode string, l_comment string"
)
TOML = f"""
name = "bulk"
[feeds.lineitem]
path = "landing/*.csv"
format = "csv"
columns = "{COLUMNS}"
settle = "0s"
"""


def run() -> list[dict[str, object]]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bulk-"))
    try:
        return [_run(folder)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path) -> dict[str, object]:
    size = _generate(folder)
    ours, theirs, counts = [], [], set()
    cpu: list[tuple[float, float]] = []
    warm = start_spark("bulk", folder / "scratch", {"spark.driver.memory": "4g"})
    for number in range(REPEATS + 1):
        place = folder / f"run{number}"
        place.mkdir()
        (place / "penstock.toml").write_text(TOML)
        (place / "landing").symlink_to(folder / "landing")
        with Warehouse(place, spark=warm) as warehouse:
            spent, start = cpu_s(warm), perf_counter()
            state = warehouse.run(until_idle=True)
            took, between = perf_counter() - start, cpu_s(warm)
            rows = state.tables["lineitem"].counts.rows
            other, their_rows = _stream(warm.newSession(), folder / "landing", place / "stream")
        if number:  # the first warms up
            ours.append(took)
            theirs.append(other)
            cpu.append((between - spent, cpu_s(warm) - between))
        counts.add((rows, their_rows))
        shutil.rmtree(place)
    return {
        "benchmark": f"bulk load of {size / 1e9:.2f} GB in 100 files",
        "against": "Structured Streaming, availableNow",
        "penstock_s": median(ours),
        "other_s": median(theirs),
        "ratio": median(a / b for a, b in zip(ours, theirs, strict=True)),
        "penstock_cpu_s": sum(own for own, _ in cpu) / len(cpu),
        "cpu_ratio": sum(own for own, _ in cpu) / sum(its for _, its in cpu),
        "limit": 1.0,
        "same_rows": len(counts) == 1 and all(a == b for a, b in counts),
    }


def _generate(folder: Path) -> int:
    """lineitem of TPC-H at scale 1.35 (about 1 GB of text), in 100 parts."""
    tool = Path(sys.executable).parent / "tpcgen-cli"
    raw = folder / "raw"
    subprocess.run(
        [str(tool), "tpch", "csv", "-s", "1.35", "--tables", "lineitem", "--parts", "100", "--output-dir", str(raw)],
        check=True,
        capture_output=True,
    )
    landing = folder / "landing"
    landing.mkdir()
    for number, path in enumerate(sorted(p for p in raw.rglob("*") if p.is_file())):
        path.rename(landing / f"{number:03d}.csv")
    return sum(path.stat().st_size for path in landing.iterdir())


def _stream(session: SparkSession, source: Path, target: Path) -> tuple[float, int]:
    start = perf_counter()
    rows = session.readStream.schema(COLUMNS).options(header=True).csv(str(source))
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(target / "data"))
    )
    query.awaitTermination()
    took = perf_counter() - start
    count = session.read.parquet(str(target / "data")).select(F.count("*")).first()
    assert count is not None
    return took, int(count[0])
