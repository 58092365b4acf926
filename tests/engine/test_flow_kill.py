"""`kill -9` of the real process in the middle of each stratum of a flow: nothing of it is published, nothing is left over,
and the next start makes all tables."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from penstock.app import Warehouse
from tests.conftest import Write
from tests.engine.test_kill import QUICK_START, command
from tests.oracle import attach, rows
from tests.waiting import LONG_S

pytestmark = pytest.mark.spark

TOML = """
name = "killed"
[feeds.orders]
path = "landing/*.csv"
format = "csv"
columns = "id bigint, item string, amount int"
mode = "snapshot"
settle = "0s"
"""
# A function of the flow is called when its step begins, after all steps before it have ended.
FLOW = """
import os
import signal
from pathlib import Path

import penstock as ps

DEADLY = Path(__file__).parent.parent / "deadly"


def dies(stratum):
    def function(rows):
        if DEADLY.exists() and DEADLY.read_text() == stratum:
            DEADLY.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    return function


@ps.flow
def strata(orders):
    good = orders.not_null("id", bad="quarantine").apply(dies("first"), gives="id bigint, item string, amount int").into("good")
    items = good.aggregate("item", amount="sum(amount)").apply(dies("second"), gives="item string, amount bigint").into("items")
    items.aggregate([], amount="sum(amount)").apply(dies("third"), gives="amount bigint").into("whole")
"""


@pytest.mark.parametrize(
    "strata", [["second"], pytest.param(["first", "third", "second", "third"], marks=pytest.mark.soak)]
)
def test_killed_in_the_middle_of_a_stratum(project: Write, strata: list[str]) -> None:
    csv = "id,item,amount\n1,a,2\n2,b,3\n3,a,4\n,c,9\n"
    folder = project({"penstock.toml": TOML + QUICK_START, "tables/strata.py": FLOW, "landing/1.csv": csv})
    for stratum in strata:
        (folder / "deadly").write_text(stratum)
        killed = subprocess.run(command(folder, "--until-idle"), capture_output=True, text=True, timeout=LONG_S)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with Warehouse(folder) as warehouse:
            state = warehouse.state()
        assert [state.tables[name].counts.updates for name in ("good", "items", "whole")] == [0, 0, 0]
        assert stratum == "first" or list(parquet(folder)), "something had been staged"
    final = subprocess.run(command(folder, "--until-idle"), capture_output=True, text=True, timeout=LONG_S)
    assert final.returncode == 0, final.stderr
    con = attach(folder)
    assert rows(con, "SELECT * FROM lake.good") == [(1, "a", 2), (2, "b", 3), (3, "a", 4)]
    assert rows(con, "SELECT * FROM lake.items") == [("a", 6), ("b", 3)]
    assert rows(con, "SELECT * FROM lake.whole") == [(9,)]
    assert rows(con, "SELECT activity FROM lake.strata_quarantine") == [("not_null",)]
    with Warehouse(folder) as warehouse, warehouse.store.read() as conn:
        assert list(warehouse.catalogue.unknown_files(conn)) == []


def parquet(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.parquet") if "/good/" in str(path)]
