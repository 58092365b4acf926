"""The front door with every policy, on a clock that is put forward by hand, with DuckDB for updates and a reader that answers at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine import lanes
from penstock.engine.answer import Rows
from penstock.engine.asked import Asked
from penstock.engine.front import Front, FrontSettings
from penstock.model.time import SECOND_US
from penstock.queries.choice import Way
from penstock.queries.contract import Contract, WhenStale
from penstock.queries.live import NAMES
from penstock.queries.outcome import Ending
from tests.engine.crashing import DELIVERIES, InlineRuntime, Site, make_site, stats

S = SECOND_US
SQL = "select sum(n) as n from hourly"
WITH_REFRESH = ("default", "on-demand", "admission+on-demand", "unit+on-demand")


class Hand:
    """A clock that stands still until someone moves it; waiting takes no time."""

    speed = 1.0

    def __init__(self, now_us: int) -> None:
        self.at_us = now_us

    def now_us(self) -> int:
        return self.at_us

    def wall_s(self, duration_us: int) -> float:
        return 0.01


class Reader:
    """In the place of Spark. Queries of what is `held` take until it is let go."""

    held = threading.Event()

    def __init__(self, *_: Any) -> None:
        pass

    def bind(self, group: str, what: str) -> None:
        pass

    def frame(self, *_: Any) -> None:
        self.held.wait(20)

    def collect(self, frame: None, limit: int) -> Rows:
        return Rows(pa.table({"n": [1]}), ("bigint",), count=1)

    def forget(self, read: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(lanes, "SparkReader", Reader)
    monkeypatch.setattr(lanes, "cancel", lambda session, group: None)
    Reader.held.set()
    return make_site(tmp_path, monkeypatch)


@contextmanager
def open_door(site: Site, process: InlineRuntime, policy: str) -> Iterator[tuple[Front, Hand]]:
    """After a first delivery was worked off under the policy."""
    site.deliver(DELIVERIES[0])
    process.run(until_idle=True)
    hand = Hand(site.clock.now_us())
    settings = FrontSettings(policy=policy)
    front = Front(process.warehouse, process.store, process.catalogue, lambda: None, hand, settings)  # type: ignore[arg-type,return-value]
    try:
        yield front, hand
    finally:
        front.close()


def heard(site: Site, process: InlineRuntime, hand: Hand, name: str, at: str) -> None:
    """A file comes and is on record, and the front has had time to see that."""
    site.deliver({f"stats/{name}.csv": stats(("b", at, 5))})
    assert process.arrivals.scan() == 1
    process.tail()
    hand.at_us = site.clock.now_us()
    time.sleep(0.05)


def settled(asked: Asked, *statuses: str) -> str:
    until = time.monotonic() + 20
    while asked.status not in statuses and time.monotonic() < until:
        time.sleep(0.005)
    assert asked.status in statuses, asked.steps
    return asked.status


def ended(asked: Asked) -> Ending:
    assert asked.wait(20) and asked.answer is not None, (asked.steps, asked.error)
    return asked.answer.ending


@pytest.mark.parametrize("policy", NAMES)
def test_what_each_policy_does_with_stale_data(site: Site, policy: str) -> None:
    with site.running() as process, open_door(site, process, policy) as (front, hand):
        assert ended(front.ask(SQL, Contract(within_us=60 * S))) is Ending.SUCCESS
        # Another file comes, and is known of before the query is asked.
        heard(site, process, hand, "s3", "02T00:10")
        asked = front.ask(SQL, Contract(within_us=60 * S))
        if policy in WITH_REFRESH:
            assert settled(asked, "waiting", "done") == "waiting" and asked.way is Way.REFRESH
            kinds = [event.kind for _, event in _log(process)]
            assert kinds[-1] == "refresh-requested"
            # A file that comes while it waits is not waited for.
            process.run(until_idle=True)
            heard(site, process, hand, "s4", "02T00:20")
            assert ended(asked) is Ending.SUCCESS
            assert asked.answer is not None and asked.answer.lag in (0, 1)
            assert asked.answer.plain()["lag_when_asked"] == 0
        else:
            assert ended(asked) is Ending.STALE and asked.way is Way.NOW
            assert asked.answer is not None and asked.answer.lag == 1
        tally = front.tallies.satisfaction.overall
        assert tally.queries == 2 == tally.success + tally.stale


@pytest.mark.parametrize("policy", NAMES)
def test_deadlines_that_come(site: Site, policy: str) -> None:
    """What cannot be in time is turned away, or its deadline passes; nothing of it is left."""
    with site.running() as process, open_door(site, process, policy) as (front, hand):
        hopeless = front.ask(SQL, Contract(within_us=1))
        hand.at_us += S
        first = ended(hopeless)
        assert first in ((Ending.MISSED,) if policy in ("immediate", "on-demand") else (Ending.REJECTED, Ending.MISSED))
        Reader.held.clear()
        slow = front.ask("select count(*) as n from stats", Contract(within_us=30 * S))
        assert settled(slow, "running", "done") == "running"
        hand.at_us += 31 * S
        assert ended(slow) is Ending.MISSED
        Reader.held.set()
        assert ended(front.ask(SQL, Contract(within_us=60 * S))) is Ending.SUCCESS
        assert front.status() == {"waiting": 0, "queued": 0, "running": 0} or settled_to_nothing(front)
        with process.store.read() as conn:
            assert conn.exec_driver_sql("SELECT count(*) FROM penstock_pin").scalar() == 0


def settled_to_nothing(front: Front) -> bool:
    until = time.monotonic() + 20
    while any(front.status().values()) and time.monotonic() < until:
        time.sleep(0.005)
    return not any(front.status().values())


def test_what_is_too_late_for_one_is_hurried_for_the_next(site: Site) -> None:
    """The refresh takes longer than the deadline: the query gets what is there, with a mark, and the refresh is asked for all the same."""
    with site.running() as process, open_door(site, process, "default") as (front, hand):
        assert ended(front.ask(SQL, Contract(within_us=60 * S))) is Ending.SUCCESS
        heard(site, process, hand, "s3", "02T00:10")
        asked = front.ask(SQL, Contract(within_us=6000, when_stale=WhenStale.MARK))
        assert ended(asked) in (Ending.STALE, Ending.REJECTED, Ending.MISSED)
        assert "refresh-requested" in [event.kind for _, event in _log(process)]


def _log(process: InlineRuntime) -> list[Any]:
    with process.store.read() as conn:
        return list(process.store.events(conn))
