"""Shared by all tests: one Spark session, and project folders made from text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from penstock.engine.spark import start_spark

# Timings never decide a test, and a failure can be repeated.
settings.register_profile("penstock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of the tables can be chosen as a whole: `make test` runs them in the half with Spark, so that both are alike."""
    for item in items:
        if item.path.parent.name == "tables":
            item.add_marker("tables")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the test run, with the settings that projects get."""
    session = start_spark(
        "tests",
        tmp_path_factory.mktemp("spark"),
        {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.driver.memory": "2g"},
    )
    yield session
    session.stop()


Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """Write a project: {file name: text}."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        return tmp_path

    return write
