"""The Spark session, with the settings that small, frequent updates need."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import IllegalArgumentException, PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.engine.java import prepare_java
from penstock.errors import PenstockError


class SparkProblem(PenstockError):
    pass


# The zone in which Spark reads and cuts times: that of the project. What is stored are instants, whatever the zone.
ZONE = "spark.sql.session.timeZone"


def spark_settings(cores: int) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # Small jobs: planning again at run time costs more than it gives.
        "spark.sql.adaptive.enabled": "false",
        # Else every read of more than 32 files starts a Spark job just to list them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
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
        # Spark makes code all the time. A JVM that has no room for it ends; what is reserved but not used costs nothing. Options of the
        # project (`driver.extraJavaOptions`) come after these and win.
        "spark.driver.defaultJavaOptions": "-XX:ReservedCodeCacheSize=512m",
        # All is in one process: when it does not hear of itself, the machine was busy or slept.
        "spark.network.timeout": "3600s",
    }


# They print, with the stack of the JVM, what is raised as well.
_DOUBLED = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start_spark(name: str, scratch: Path, given: Mapping[str, str | int | bool], zone: str = "UTC") -> SparkSession:
    """The session of this process, made if there is none. Settings of the project win over ours."""
    prepare_java(scratch)
    _forget_a_dead_jvm()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    settings = {"spark.master": f"local[{cores}]", **spark_settings(cores), "spark.local.dir": str(scratch / "spark")}
    settings["spark.sql.warehouse.dir"] = str(scratch / "spark-warehouse")
    settings.update({key if key.startswith("spark.") else f"spark.{key}": _text(value) for key, value in given.items()})
    settings[ZONE] = "UTC"
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
    _set_zone(session, zone)
    session.sparkContext.setLogLevel(settings["spark.log.level"])
    for logger in _DOUBLED:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return session


def is_alive(session: SparkSession) -> bool:
    """Whether its JVM is there, and nobody stopped it."""
    context = session.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _forget_a_dead_jvm() -> None:
    """PySpark keeps the first JVM for the life of the process, and would go on asking it after its death."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        if (context := SparkContext._active_spark_context) is not None:
            context._jsc = None
            context.stop()
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def session_in(session: SparkSession, zone: str) -> SparkSession:
    """A session of its own beside another one, in a project's zone. It does not take over what was set in the other."""
    own = session.newSession()
    _set_zone(own, zone)
    return own


def _set_zone(session: SparkSession, zone: str) -> None:
    try:
        session.conf.set(ZONE, zone)
    except IllegalArgumentException:
        java = session.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
        raise SparkProblem(f"Java {java} does not know the zone {zone}; use a newer Java, or another zone") from None


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
