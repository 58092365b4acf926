"""`penstock pause`, `resume`, and feeds in `status` and `explain`, from the log alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.app import Warehouse
from penstock.control.events import (
    Event,
    FeedCameBack,
    FeedWentOut,
    FileArrived,
    RunStarted,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.model.time import MINUTE_US
from penstock.requests.job import FeedFile, Job
from penstock.store.lock import RunLock
from tests.cli.test_bounds import project, run


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A feed with a file every 5 minutes, the last 24 minutes ago, since 3 hours ago watched by a process."""
    watched(tmp_path)
    with Warehouse(tmp_path) as warehouse:
        lock = RunLock(warehouse.store, tmp_path / ".penstock" / "run.lock")
        lock.acquire("one")
        yield tmp_path
        lock.release()


def watched(tmp_path: Path) -> None:
    project(tmp_path)
    with Warehouse(tmp_path) as warehouse:
        now = warehouse.clock.now_us()
        graph = warehouse.declared.graph
        start = now - 180 * MINUTE_US
        feeds, tables = tuple(graph.feeds.values()), tuple(graph.tables.values())
        events: list[Event] = [RunStarted(start, "one"), WarehouseDeclared(start, feeds, tables, 2, "adaptive")]
        for back in range(99, 23, -5):
            at = now - back * MINUTE_US
            events.append(FileArrived(at, "stats", FeedFile(f"landing/stats/{back}.csv", "c", 100, at)))
        with warehouse.store.write() as conn:
            warehouse.store.append(conn, events)


def test_status_shows_an_outage(folder: Path) -> None:
    shown = run("status", "-p", str(folder), "--feeds").output
    assert "feeds: 1 out" in shown
    assert "stats: out for 19m" in shown and ", last file " in shown
    assert "records old" in shown and "5m" in shown
    found = json.loads(run("status", "-p", str(folder), "--json").stdout)["feeds"][0]
    assert (found["feed"], found["health"], found["period_us"], found["jitter_us"]) == (
        "stats",
        "out",
        5 * MINUTE_US,
        0,
    )
    assert found["waiting_files"] == 16
    assert "its feed stats: out for 19m" in run("explain", "-p", str(folder), "stats").output
    assert "made from stats: out for 19m" in run("explain", "-p", str(folder), "hourly").output


def test_pause_and_resume(folder: Path) -> None:
    place = ("-p", str(folder))
    assert "stats is paused; what runs ends" in run("pause", "stats", *place, "--reason", "new routers").output
    shown = run("status", *place).output
    assert "feeds: 1 paused" in shown and "(new routers), 16 files waiting, last file " in shown
    assert "its feed stats is paused (new routers)" in run("explain", "stats", *place).output
    assert "was already paused" in run("pause", "stats", *place).output
    found = json.loads(run("resume", "stats", *place, "--json").stdout)
    assert (found["paused"], found["changed"], found["waiting"], found["running"]) == (False, True, 16, True)
    assert "was not paused" in run("resume", "stats", *place).output
    with Warehouse(folder) as warehouse:
        assert [feed.health for feed in warehouse.feeds()] == ["healthy"]
        assert len(warehouse.state().tables["stats"].files) == 16


def test_a_declared_jitter_is_part_of_what_is_proven(folder: Path) -> None:
    settings = folder / "penstock.toml"
    settings.write_text(settings.read_text().replace('period = "5m"', 'period = "5m"\njitter = "2m"'))
    found = json.loads(run("bounds", "-p", str(folder), "--json").stdout)["guarantees"]
    # Theta + p + (p + J) = 360 + 300 + 420 s
    assert next(each for each in found if each["table"] == "stats")["bound"]["staleness_us"] == 1_080_000_000


def test_a_feed_that_is_not_there(folder: Path) -> None:
    result = run("pause", "stat", "-p", str(folder), code=1)
    assert "there is no feed `stat` in this project; did you mean `stats`?" in result.output


def test_an_outage_on_record(folder: Path) -> None:
    with Warehouse(folder) as warehouse:
        now = warehouse.clock.now_us()
        with warehouse.store.write() as conn:
            event = FeedWentOut(now - 8 * MINUTE_US, "stats", now - 19 * MINUTE_US, now - 24 * MINUTE_US)
            warehouse.store.append(conn, [event])
    assert "stats: out for 19m" in run("status", "-p", str(folder)).output


def test_status_shows_a_recovery(folder: Path) -> None:
    with Warehouse(folder) as warehouse:
        now = warehouse.clock.now_us()
        with warehouse.store.write() as conn:
            out = FeedWentOut(now - 90 * MINUTE_US, "stats", now - 100 * MINUTE_US, now - 105 * MINUTE_US)
            warehouse.store.append(conn, [out, FeedCameBack(now - 20 * MINUTE_US, "stats", now - 100 * MINUTE_US)])
    shown = run("status", "-p", str(folder)).output
    assert "stats: recovers after 1h 20m of outage of stats, 1h 20m behind, expected to end at" in shown
    assert ", proven: " in shown and " at the latest" in shown
    found = json.loads(run("status", "-p", str(folder), "--json").stdout)["recovery"]
    assert [(each["table"], each["cause"], each["pending_files"]) for each in found] == [
        ("stats", "outage", 16),
        ("hourly", "outage", 0),
    ]


def test_what_a_killed_process_did_is_pending_again(tmp_path: Path) -> None:
    watched(tmp_path)
    with Warehouse(tmp_path) as warehouse:
        (first, *_) = warehouse.state().tables["stats"].files.values()
        now = warehouse.clock.now_us()
        with warehouse.store.write() as conn:
            job = Job("job-000001", "stats", "load", 0, (first,))
            warehouse.store.append(conn, [UpdateStarted(now, job, 0, "is late")])
        state = warehouse.state()
        assert warehouse.died and state.owner is None and not state.busy
        assert len(state.tables["stats"].files) == 16
        # The next process says so in the log, and then it is the same.
        with warehouse.store.write() as conn:
            warehouse.store.append(conn, [RunStarted(now, "two")])
        lock = RunLock(warehouse.store, tmp_path / ".penstock" / "run.lock")
        lock.acquire("two")
        state = warehouse.state(state)
        assert state.owner == "two" and not warehouse.died and len(state.tables["stats"].files) == 16
        lock.release()
    shown = run("status", "-p", str(tmp_path)).output
    assert "not running: the last process was killed" in shown and "pending" in shown
    assert json.loads(run("status", "-p", str(tmp_path), "--json").stdout)["died"]
