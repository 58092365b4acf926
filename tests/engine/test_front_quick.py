"""The front door with every policy, on a clock that is put forward by hand, with DuckDB for updates and a reader that answers at once. It decides
when it is told to: how fast the machine is changes nothing."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.cli.main import application
from penstock.engine.desk.front import Front, FrontSettings
from penstock.engine.desk.question import Question, ResultRows
from penstock.engine.desk.reads import Reading
from penstock.engine.desk.ticket import QueryTicket
from penstock.model.time import SECOND_US
from penstock.queries.contract import Contract, Freshness, WhenStale
from penstock.queries.desk import Desk
from penstock.queries.outcome import Ending, Way
from penstock.queries.policies import DEFAULT, POLICIES, find_query_policy
from tests.engine.crashing import DELIVERIES, InlineRuntime, Site, make_site, stats
from tests.engine.shop import Hand
from tests.waiting import LONG_S

S = SECOND_US
SQL = "select sum(n) as n from hourly"
WITH_REFRESH = (DEFAULT, "on-demand", "admission+on-demand", "unit+on-demand")


class Reader:
    """In the place of Spark. Queries take until they are let go, if they are `held`."""

    held = threading.Event()
    is_alive = True

    def answer(self, question: Question) -> ResultRows:
        self.held.wait()
        return ResultRows(pa.table({"n": [1]}), ("bigint",), count=1)

    def cancel(self, group: str) -> None:
        pass

    def close(self) -> None:
        pass


class ByHand(Front):
    """It decides when it is told to."""

    def _work(self) -> None:
        pass

    def look_around(self) -> None:
        """A round in which it knows everything that the log has."""
        self._known.now(max_age_s=-1)
        self._round()

    def asked(self, sql: str, within_us: int, when_stale: WhenStale = WhenStale.MARK) -> QueryTicket:
        asked = self.ask(sql, Contract(within_us=within_us, when_stale=when_stale))
        self.look_around()
        return asked


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    # Every update takes half a second, and every lot is the same.
    ticks = count()
    monkeypatch.setattr("penstock.engine.updates.executor.perf_counter", lambda: next(ticks) * 0.5)
    monkeypatch.setattr("penstock.engine.desk.front.random", lambda: 0.5)
    Reader.held.set()
    return make_site(tmp_path, monkeypatch)


@contextmanager
def open_door(site: Site, process: InlineRuntime, policy: str) -> Iterator[tuple[ByHand, Hand]]:
    """After a first delivery was worked off under the policy."""
    site.deliver(DELIVERIES[0])
    process.run(until_idle=True)
    hand = Hand(site.clock.now_us())
    settings = FrontSettings(policy=policy)
    front = ByHand(process.warehouse, process.store, process.catalogue, Reader, hand, settings)  # type: ignore[arg-type]
    try:
        yield front, hand
    finally:
        Reader.held.set()
        front.close()


def heard(site: Site, process: InlineRuntime, hand: Hand, name: str, at: str) -> None:
    """A file comes and is on record."""
    site.deliver({f"stats/{name}.csv": stats(("b", at, 5))})
    assert process.arrivals.scan() == 1
    process.tail()
    hand.at_us = site.clock.now_us()


def ended(asked: QueryTicket) -> Ending:
    """How it ended, which a lane says soon."""
    assert asked.wait(LONG_S) and asked.answer is not None, (asked.steps, asked.error)
    return asked.answer.ending


def begun(asked: QueryTicket) -> None:
    """A lane has taken it."""
    runs = threading.Event()
    forget = asked.listen(lambda: asked.status == "running" and runs.set())
    assert asked.status == "running" or runs.wait(LONG_S), asked.steps
    forget()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_each_policy_does_with_stale_data(site: Site, policy: str) -> None:
    with site.running() as process, open_door(site, process, policy) as (front, hand):
        assert ended(front.asked(SQL, 60 * S)) is Ending.SUCCESS
        # Another file comes, and is known of before the query is asked.
        heard(site, process, hand, "s3", "02T00:10")
        front.look_around()
        asked = front.asked(SQL, 60 * S)
        if policy in WITH_REFRESH:
            assert (asked.status, asked.way) == ("waiting", Way.REFRESH)
            assert _log(process)[-1][1].kind == "refresh-requested"
            # A file that comes while it waits is not waited for.
            process.run(until_idle=True)
            heard(site, process, hand, "s4", "02T00:20")
            front.look_around()
            assert ended(asked) is Ending.SUCCESS
            assert asked.answer is not None and asked.answer.lag == 1
            assert asked.answer.plain()["lag_when_asked"] == 0
        else:
            assert ended(asked) is Ending.STALE and asked.way is Way.NOW
            assert asked.answer is not None and asked.answer.lag == 1
        tally = front.tallies.satisfaction.overall
        assert tally.queries == 2 == tally.success + tally.stale


@pytest.mark.parametrize("policy", POLICIES)
def test_deadlines_that_come(site: Site, policy: str) -> None:
    """What cannot be in time is turned away, or its deadline passes; nothing of it is left."""
    with site.running() as process, open_door(site, process, policy) as (front, hand):
        Reader.held.clear()
        hopeless = front.asked(SQL, 1)
        hand.at_us += S
        front.look_around()
        patient = policy in ("immediate", "on-demand")
        assert ended(hopeless) is (Ending.MISSED if patient else Ending.REJECTED)
        slow = front.asked("select count(*) as n from stats", 30 * S)
        begun(slow)
        hand.at_us += 31 * S
        front.look_around()
        assert ended(slow) is Ending.MISSED
        Reader.held.set()
        assert ended(front.asked(SQL, 60 * S)) is Ending.SUCCESS
    assert front.status() == {"waiting": 0, "queued": 0, "running": 0}
    with closing(sqlite3.connect(site.folder / ".penstock" / "penstock.db")) as con:
        assert con.execute("SELECT count(*) FROM penstock_pin").fetchone() == (0,)


def test_what_is_too_late_for_one_is_hurried_for_the_next(site: Site) -> None:
    """The refresh takes longer than the deadline: the query gets what is there, with a mark, and the refresh is asked for all the same."""
    with site.running() as process, open_door(site, process, DEFAULT) as (front, hand):
        assert ended(front.asked(SQL, 60 * S)) is Ending.SUCCESS
        heard(site, process, hand, "s3", "02T00:10")
        asked = front.asked(SQL, 600_000)
        assert ended(asked) is Ending.STALE
        assert "refresh-requested" in [event.kind for _, event in _log(process)]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_recorded_log_gives_the_same_decisions_again(site: Site, policy: str) -> None:
    """What a live front door decided is in the log, with all that it decided on: told to a desk again, it decides the same. And what it learned is
    known after a restart."""
    with site.running() as process:
        with open_door(site, process, policy) as (front, hand):
            Reader.held.clear()
            first = front.asked("select count(*) as n from stats", 30 * S)
            heard(site, process, hand, "s3", "02T00:10")
            others = [front.asked(f"select {n} as x, sum(n) as n from hourly", (n + 1) * S) for n in range(6)]
            hand.at_us += 3 * S
            front.look_around()
            process.run(until_idle=True)
            Reader.held.set()
            for _ in range(7):
                hand.at_us += S
                front.look_around()
            for asked in (first, *others):
                ended(asked)
            learned = front.predictor.plain()
            before = front.tallies.satisfaction.overall
        assert before.queries == 7
        events = [event for _, event in _log(process)]
        (opened,) = [event for event in events if event.kind == "desk-opened"]
        assert opened.setup.policy == policy and opened.setup.lanes == 2
        desk = Desk(find_query_policy(policy), process.controller.state.graph, opened.setup)
        entries = [entry for event in events if event.kind == "queries-handled" for entry in event.entries]
        # What queries took counts in the price by which the warehouse updates.
        assert max(event.busy for event in events if event.kind == "demand-seen") > 0
        kinds = {entry.event.kind for entry in entries}
        assert {"query-came", "query-went", "updates-seen"} <= kinds
        for entry in entries:
            assert desk.handle(entry.event) == entry.commands
        with open_door(site, process, policy) as (front, _):
            assert front.predictor.plain() == learned
            assert front.tallies.satisfaction.overall == before
            assert sum(count for count, _, _ in front.tallies.reliability.rows()) > 0
        # People see it with a command.
        shown = CliRunner().invoke(application(("query",)), ["queries", "--project", str(site.folder), "--json"])
        told = json.loads(shown.output)
        assert (told["policy"], told["queries"], told["usm"]) == (policy, 7, before.usm)
        assert told["S"] - told["R"] - told["F_m"] - told["F_s"] == pytest.approx(told["usm"])
        assert ("c_flex" in told) == (policy in ("qmf", "unit", "unit+on-demand"))
        assert ("price_per_s" in told) == (policy == DEFAULT)
        # And what would have been, by the same code from the same log.
        shown = CliRunner().invoke(
            application(("whatif",)),
            ["whatif", "--queries", "policy=unit,on-demand", "--project", str(site.folder), "--json"],
        )
        rows = json.loads(shown.output)
        assert [row["policy"] for row in rows] == list(dict.fromkeys(["as it was", policy, "unit", "on-demand"]))
        assert rows[0]["usm"] == pytest.approx(before.usm) and rows[0]["success"] == before.success
        assert all(sum(row[kind] for kind in ("success", "rejected", "missed", "stale")) == 7 for row in rows)


def test_the_lag_of_several_tables_is_that_of_the_one_that_lacks_most() -> None:
    """Two updates of one base table are missing, and one of another: the paper's freshness of both is that of the first, 1 / (1 + 2)."""
    reading = Reading((), True, None, ((3 * S, 9 * S), (5 * S,)), 10 * S, 1)
    assert (reading.lag, reading.lag_at(4 * S), reading.lag_at(6 * S), reading.lag_at(0)) == (2, 1, 1, 0)
    assert Freshness.of_percent(30).met(None, reading.lag) and not Freshness.of_percent(50).met(None, reading.lag)


def _log(process: InlineRuntime) -> list[Any]:
    with process.store.read() as conn:
        return list(process.store.events(conn))
