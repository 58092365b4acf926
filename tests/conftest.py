"""Shared by all tests: one Spark session, and project folders made from text."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from penstock.engine.spark.session import is_alive, start_spark

# Timings never decide a test, and a failure can be repeated.
settings.register_profile("penstock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of the tables can be chosen as a whole: `make test` runs them in the half with Spark, so that both are alike."""
    for item in items:
        if item.path.parent.name == "tables":
            item.add_marker("tables")


# Processes that tests start, too.
os.environ.setdefault("SPARK_DRIVER_MEMORY", "1g")
# Nothing is left in the home of who runs the tests.
os.environ.setdefault("PENSTOCK_CACHE", "")
# A small machine starts it soon, and it never ends for want of room. Where memory does end, it dies at once rather than half.
JVM = {
    "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
    "driver.memory": "2g",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the test run, with the settings that projects get."""
    session = start_spark("tests", tmp_path_factory.mktemp("spark"), JVM)
    yield session
    if is_alive(session):
        session.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A session that died in one test takes no other with it: the next begins with a new one, and with new fixtures that use it."""
    made = item._fixtureinfo.name2fixturedefs.get("spark", ())  # type: ignore[attr-defined]
    if made and made[-1].cached_result is not None:
        session, _, failed = made[-1].cached_result
        if failed or not is_alive(session):
            with suppress(Exception):  # what those fixtures do in the end may need the dead session
                made[-1].finish(item._request)  # type: ignore[attr-defined]


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
