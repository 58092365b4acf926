"""A Spark that dies is started again; what it was doing is done again."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import FaultEnded, FaultMet, UpdateFailed
from penstock.engine.spark.session import ENDED, is_alive
from tests.conftest import JVM, Write
from tests.engine.test_spark_environment import FILES
from tests.waiting import until

pytestmark = pytest.mark.spark

SETTINGS = "[spark]\n" + "".join(f"'{key}' = '{value}'\n" for key, value in JVM.items())
DEADLY = """
import os
import signal
from pathlib import Path

import penstock as ps

DEADLY = Path(__file__).parent.parent / "deadly"


@ps.table
def copied(events):
    if DEADLY.exists():
        left = int(DEADLY.read_text()) - 1
        DEADLY.write_text(str(left)) if left else DEADLY.unlink()
        jvm = events.sparkSession.sparkContext._gateway.proc
        os.kill(jvm.pid, signal.SIGKILL)
        jvm.wait()
    return events
"""


def made(project: Write, deaths: int) -> Path:
    toml = FILES["penstock.toml"].replace("\n        ", "\n") + SETTINGS
    calm = {"tables/calm.sql": "SELECT k, v FROM events", "landing/1.csv": FILES["landing/1.csv"]}
    return project({"penstock.toml": toml, "tables/copied.py": DEADLY, "deadly": str(deaths), **calm})


def events(warehouse: Warehouse, *kinds: type) -> list[Any]:
    with warehouse.store.read() as conn:
        return [event for _, event in warehouse.store.events(conn) if isinstance(event, kinds)]


def test_it_dies_in_an_update(project: Write, spark: SparkSession) -> None:
    """The update is done again, and none of its attempts is used up; who asks finds another session."""
    with Warehouse(made(project, 1)) as warehouse:
        assert is_alive(warehouse.spark) and is_alive(spark)
        state = warehouse.run(until_idle=True)
        assert not is_alive(spark)
        copied = state.tables["copied"]
        assert (copied.error, copied.counts.updates, copied.counts.failures) == (None, 1, 0)
        assert not events(warehouse, UpdateFailed)
        assert {event.reason for event in events(warehouse, FaultMet)} == {ENDED}
        assert [event.part for event in events(warehouse, FaultEnded)] == ["spark"]
        assert warehouse.query("select count(*) as n from copied").rows == [(2,)]
        warehouse.spark.stop()


def test_an_update_that_ends_it_each_time(project: Write, spark: SparkSession) -> None:
    """As one that needs more memory than there is: it fails, the others do not."""
    folder = made(project, 100)
    table = folder / "tables" / "copied.py"
    table.write_text(table.read_text().replace("@ps.table", "@ps.table(attempts=2)"))
    with Warehouse(folder) as warehouse:
        state = warehouse.run(until_idle=True)
        assert state.tables["copied"].failed and ENDED in str(state.tables["copied"].error)
        assert not state.tables["calm"].failed and state.tables["calm"].counts.updates == 1
        warehouse.spark.stop()


def test_it_dies_while_nothing_runs(project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is noticed, and mended, before the next file comes."""
    monkeypatch.setattr("penstock.engine.runtime.MARK_EVERY_S", 0.1)
    folder = made(project, 1)
    (folder / "deadly").unlink()
    with Warehouse(folder) as warehouse, warehouse.running() as runtime:
        runtime.run(until_idle=True)
        loop = threading.Thread(target=runtime.run)
        loop.start()
        try:
            jvm = warehouse.spark.sparkContext._gateway.proc  # type: ignore[union-attr]
            os.kill(jvm.pid, signal.SIGKILL)
            until(lambda: events(warehouse, FaultEnded), "Spark to be there again")
            (folder / "landing" / "2.csv").write_text("k,ts,v\nz,2024-03-01T00:00:00Z,5\n")
            until(lambda: runtime.controller.state.tables["copied"].counts.updates == 2, "the next file")
        finally:
            runtime.stop()
            loop.join()
        assert not events(warehouse, UpdateFailed)
        warehouse.spark.stop()
