"""The Spark session, with the settings that small, frequent updates need."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.engine.java import prepare_java
from penstock.errors import PenstockError


class SparkProblem(PenstockError):
    pass


def spark_settings(cores: int) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # Small jobs: planning again at run time costs more than it gives.
        "spark.sql.adaptive.enabled": "false",
        # Else every read of more than 32 files starts a Spark job just to list them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.enableVectorizedReader": "true",
        # Several partitions in one write, without sorting the rows first.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.sql.sources.default": "parquet",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.hadoop.parquet.enable.summary-metadata": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",
    }


# They print, with the stack of the JVM, what is raised as well.
_DOUBLED = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start_spark(name: str, scratch: Path, given: Mapping[str, str | int | bool]) -> SparkSession:
    """The session of this process, made if there is none. Settings of the project win over ours."""
    prepare_java(scratch)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    settings = {"spark.master": f"local[{cores}]", **spark_settings(cores), "spark.local.dir": str(scratch / "spark")}
    settings["spark.sql.warehouse.dir"] = str(scratch / "spark-warehouse")
    settings.update({key if key.startswith("spark.") else f"spark.{key}": _text(value) for key, value in given.items()})
    builder = SparkSession.builder.appName(f"penstock {name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    log = scratch / "spark.log"
    try:
        with _chatter_to(log):
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        last = log.read_text(errors="replace").splitlines()[-3:]
        raise SparkProblem(
            f"Spark did not start ({error.getMessage()}); {log} ends with:\n" + "\n".join(last)
        ) from error
    session.sparkContext.setLogLevel(settings["spark.log.level"])
    for logger in _DOUBLED:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return session


@contextmanager
def _chatter_to(path: Path) -> Iterator[None]:
    """What the JVM prints goes to a file: it inherits standard error as it is when it starts, and keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
