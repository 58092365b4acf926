"""`penstock serve` as a process of its own: it answers, Ctrl-C ends it soon with nothing left, and the next one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.queries.outcome import Ending
from tests.conftest import Write
from tests.engine.shop import FILES, put, sales
from tests.engine.test_kill import QUICK_START
from tests.waiting import IN_TIME, LONG_S, until

pytestmark = pytest.mark.spark

T = datetime(2024, 3, 1, 10, 30, tzinfo=UTC)
FILES_QUICK = {**FILES, "penstock.toml": FILES["penstock.toml"] + QUICK_START}
SLOW = (
    "select count(*) as n from sales a, sales b, sales c, sales d where a.amount + b.amount + c.amount + d.amount > 0"
)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A process in a group of its own, so that what it leaves can be seen."""
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            told = ""
            while not told.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, f"it ended with {process.wait()}"
                told += line
            with closing(httpx.Client(base_url=json.loads(told)["url"], timeout=LONG_S)) as client:
                yield process, client
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def asked(client: httpx.Client, sql: str, **contract: object) -> dict[str, object]:
    response = client.post("/v1/queries", json={"sql": sql, **contract}, headers={"Prefer": "wait=900"})
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()["answer"]
    return answer


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_ends_at_once_and_the_next_goes_on(project: Write, spark: SparkSession) -> None:
    folder = project(FILES_QUICK)
    put(folder, "sales", "one", sales(T, 200))
    with serving(folder) as (process, client):
        until(lambda: _are_made(client), "the tables")
        first = asked(client, "select sum(n) as n from daily", within=IN_TIME, lag=0, weights={"missed": 2})
        assert (first["outcome"], first["rows"]) == ("success", [[200]])
        # Someone follows a query that would take for ever, and updates go on, when Ctrl-C reaches the whole group.
        slow = client.post("/v1/queries", json={"sql": SLOW}).json()
        put(folder, "sales", "two", sales(T, 5))
        follower = threading.Thread(target=_follow, args=(str(client.base_url), slow["links"]["events"]))
        follower.start()
        until(lambda: client.get(slow["links"]["self"]).json()["status"] == "running", "the query to run")
        os.killpg(process.pid, signal.SIGINT)
        process.wait(LONG_S)
        follower.join(LONG_S)
        until(lambda: is_gone(process.pid), "its group to end")
        assert not follower.is_alive()
    with Warehouse(folder, spark=spark) as warehouse:
        with warehouse.store.read() as conn:
            assert warehouse.state().owner is None
            assert conn.exec_driver_sql("SELECT count(*) FROM penstock_pin").scalar() == 0
        warehouse.run(until_idle=True)
        again = warehouse.query("select sum(n) as n from daily", within=IN_TIME, lag=0)
        assert (again.ending, again.rows) == (Ending.SUCCESS, [(205,)])


def _are_made(client: httpx.Client) -> bool:
    rows = client.get("/v1/tables").json()["tables"]
    return all(row["updates"] for row in rows if row["table"] in ("sales", "hourly", "daily"))


def _follow(url: str, path: str) -> None:
    try:
        with httpx.stream("GET", f"{url.rstrip('/')}{path}", timeout=LONG_S) as events:
            for _ in events.iter_lines():
                pass
    except httpx.HTTPError:
        pass  # the server is gone
