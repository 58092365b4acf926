"""The session that all tests share: one that dies takes no other test with it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
killed: list[int] = []


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> SparkSession:
    """Something that lives longer than one test and needs the session."""
    spark.range(3).createOrReplaceTempView("numbers")
    return spark


def jvm_of(session: SparkSession) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    return process


def test_that_kills_it(numbers: SparkSession) -> None:
    assert numbers.table("numbers").count() == 3
    jvm = jvm_of(numbers)
    killed.append(jvm.pid)
    os.kill(jvm.pid, signal.SIGKILL)
    jvm.wait()


def test_that_comes_next(numbers: SparkSession, spark: SparkSession) -> None:
    """It gets another session, and what was made with the dead one is made again."""
    assert numbers is spark and jvm_of(spark).pid != killed[0]
    assert spark.table("numbers").count() == 3
    spark.stop()


def test_after_one_that_stopped_it(numbers: SparkSession) -> None:
    assert numbers.table("numbers").count() == 3
