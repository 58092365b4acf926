"""Signals: the first lets updates end for a while, the second does not. Either way the end is on record."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Write
from tests.engine.test_kill import QUICK_START, command
from tests.waiting import LONG_S, until

pytestmark = pytest.mark.spark

SLOW = """
import time
from pathlib import Path

import penstock as ps

BEGUN = Path(__file__).parent.parent / "begun"


@ps.table
def slow(events):
    BEGUN.touch()
    time.sleep(3000)
    return events
"""


def kinds(folder: Path) -> list[str]:
    with sqlite3.connect(folder / ".penstock" / "penstock.db") as store:
        return [kind for (kind,) in store.execute("SELECT kind FROM penstock_event ORDER BY number")]


@pytest.mark.parametrize(("grace", "signals"), [("0s", [signal.SIGTERM]), ("50m", [signal.SIGTERM, signal.SIGINT])])
def test_a_long_update_does_not_keep_it(project: Write, grace: str, signals: list[int]) -> None:
    folder = project(
        {
            "penstock.toml": f"""
                name = "stopping"
                [run]
                grace = "{grace}"
                {QUICK_START}
                [feeds.events]
                path = "landing/*.csv"
                format = "csv"
                columns = "k string, v int"
                settle = "0s"
            """,
            "tables/slow.py": SLOW,
            "landing/1.csv": "k,v\na,1\n",
        }
    )
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(command(folder), stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            until(lambda: (folder / "begun").exists() or process.poll() is not None, "the update to begin")
            ask = [sys.executable, "-m", "penstock", "query", "SELECT v FROM events", "--json", "-p", str(folder)]
            asked = subprocess.run(ask, capture_output=True, text=True, timeout=LONG_S, check=False)
            assert "Starting Spark" not in asked.stderr and json.loads(asked.stdout)["rows"] == [[1]], asked
            for number in signals:
                process.send_signal(number)
            assert process.wait(LONG_S) == 0, (folder / "run.log").read_text()
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in (folder / "run.log").read_text()
    found = kinds(folder)
    assert "run-stopped" in found
    assert "update-failed" not in found
