"""Queries that never end, while others ask and files come: nobody else notices more than that the machine is busy."""

from __future__ import annotations

import os
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.desk.query_process import BEHIND_UPDATES
from penstock.engine.runtime import Pace
from penstock.service.serve import served
from tests.engine.shop import FILES, put, sales
from tests.waiting import LONG_S, until

pytestmark = pytest.mark.spark

T = datetime(2024, 3, 1, 10, 30, tzinfo=UTC)
ENDLESS = "select count(*) as n, {0} as x from " + ", ".join(f"sales s{n}" for n in range(12))
SMALL = """
[queries]
lanes = 1
memory = "600m"
[spark]
"driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def workers() -> set[int]:
    """Processes that answer queries, of this one."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if b"query_worker" in (entry / "cmdline").read_bytes() and parent == os.getpid():
                found.add(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def test_who_asks_for_ever_is_alone_with_it(tmp_path: Path, spark: SparkSession) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip("\n") + (SMALL if name == "penstock.toml" else ""))
    put(tmp_path, "sales", "one", sales(T, 300))
    put(tmp_path, "shops", "all", ["berlin,Berlin"])
    # Updates share the session of the tests; queries have processes.
    with Warehouse(tmp_path) as warehouse:
        warehouse.run(until_idle=True)
        with served(warehouse, pace=Pace(0.05, 0.05)) as (server, _):
            server.start()
            with httpx.Client(base_url=server.url, timeout=LONG_S) as client:
                hostile = [
                    client.post("/v1/queries", json={"sql": ENDLESS.format(n), "within": "5m"}).json()["links"]["self"]
                    for n in range(3)
                ]
                until(lambda: "running" in [client.get(one).json()["status"] for one in hostile], "one to run")
                # A profile that runs nothing has a lane of its own, a file that comes is loaded, and everything that is no query is answered.
                said = client.post("/v1/queries", json={"sql": "select 1 as one", "profile": "board", "within": "9m"})
                put(tmp_path, "sales", "two", sales(T, 5))
                until(lambda: warehouse.table("sales").count() == 305, "the file")
                one = said.json()["links"]["self"]
                until(lambda: client.get(one).json()["status"] == "done", "the answer")
                assert client.get(one).json()["answer"]["rows"] == [[1]]
                assert client.get("/healthz").status_code == 200
                statuses = [client.get(one).json()["status"] for one in hostile]
                assert "running" in statuses and "done" not in statuses
                # Cancelled, none of it is left running: the lane is ready for the next.
                for one in hostile:
                    client.delete(one)
                last = client.post("/v1/queries", json={"sql": "select count(*) as n from sales"}).json()["links"][
                    "self"
                ]
                until(lambda: client.get(last).json()["status"] == "done", "the last answer")
                assert client.get(last).json()["answer"]["rows"] == [[305]]
                # While both want a core, a thread of an update gets ten parts and one of a query one: the system sees to that.
                assert 1 <= len(workers()) <= 2
                assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in workers()} == {BEHIND_UPDATES}
    assert not workers()
