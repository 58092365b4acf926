"""The front door on Spark: the four outcomes, what each answer claims, and what is left running."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.queries.choice import Way
from penstock.queries.outcome import DeadlineMissed, Ending, Rejected, Stale
from tests.conftest import Write
from tests.engine.shop import FILES, living, put, sales

pytestmark = pytest.mark.spark

T = datetime(2024, 3, 1, 10, 30, tzinfo=UTC)
SLOW = "select count(*) from sales a, sales b, sales c, sales d, sales e, sales f where a.amount + b.amount + c.amount + d.amount + e.amount + f.amount > 0"


@pytest.fixture
def shop(project: Write, spark: SparkSession) -> Path:
    folder = project(FILES)
    put(folder, "sales", "one", sales(T))
    put(folder, "shops", "all", ["berlin,Berlin", "paris,Paris"])
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    return folder


def test_outcomes_when_nobody_updates(shop: Path, spark: SparkSession) -> None:
    with Warehouse(shop, spark=spark) as warehouse:
        plain = warehouse.query("select shop, amount from daily")
        assert plain.rows == [("berlin", 30)] and plain.ending is Ending.SUCCESS and plain.lag == 0
        assert [(one.table, one.snapshot > 0) for one in plain.versions] == [("daily", True)]
        # The data are of 2024: whoever wants them a minute old gets them with a mark, or not at all.
        marked = warehouse.query("select sum(amount) as s from hourly", within="30s", fresh="1m")
        assert isinstance(marked.outcome, Stale) and marked.rows == [(30,)] and not marked.outcome.withheld
        withheld = warehouse.query("select sum(amount) as s from hourly", within="30s", fresh="1m", stale="withhold")
        assert withheld.ending in (Ending.STALE, Ending.REJECTED) and withheld.rows == [] and not withheld.is_answered
        if isinstance(withheld.outcome, Rejected):
            assert withheld.outcome.acceptable_freshness is not None
            assert (withheld.outcome.acceptable_freshness.age_us or 0) > 10**12
        # Strict is met: nothing has arrived that is missing.
        assert warehouse.query("select 1 as one from shops", lag=0).ending is Ending.SUCCESS
        # A deadline that nothing can keep is refused at once, with one that could be kept.
        began = time.monotonic()
        rejected = warehouse.query("select sum(n) from daily where shop = 'x'", within="1ms")
        assert isinstance(rejected.outcome, Rejected) and time.monotonic() - began < 5
        assert (rejected.outcome.acceptable_within_us or 0) > 1000
        assert [one.way for one in (plain, marked, rejected)] == [Way.NOW, Way.NOW, Way.REJECT]
        tally = warehouse.front.tallies.satisfaction.overall
        assert tally.queries == 5 == tally.success + tally.rejected + tally.missed + tally.stale


def test_a_missed_deadline_leaves_nothing_running(shop: Path, spark: SparkSession) -> None:
    put(shop, "sales", "many", sales(T, 300))
    with Warehouse(shop, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        warehouse.front.predictor.start_up_s = 0.01  # it thinks that everything is quick
        warehouse.front.predictor.error = 0.1
        missed = warehouse.query(SLOW, within="3s")
        assert isinstance(missed.outcome, DeadlineMissed) and missed.outcome.started and missed.rows == []
        withdrawn = warehouse.front.ask(SLOW)
        while withdrawn.status != "running":
            time.sleep(0.02)
        warehouse.front.withdraw(withdrawn)
        assert withdrawn.status == "withdrawn" and withdrawn.answer is None
        tracker = spark.sparkContext.statusTracker()
        until = time.monotonic() + 20
        while tracker.getActiveJobsIds() and time.monotonic() < until:
            time.sleep(0.05)
        assert not tracker.getActiveJobsIds() and not tracker.getActiveStageIds()
        while warehouse.front.status()["running"]:
            time.sleep(0.02)
        with warehouse.store.read() as conn:
            assert conn.exec_driver_sql("SELECT count(*) FROM penstock_pin").scalar() == 0
        # The lanes go on.
        assert warehouse.query("select count(*) as n from sales").rows == [(303,)]


def test_a_query_has_what_it_needs_refreshed(shop: Path, spark: SparkSession) -> None:
    with living(shop, spark) as (warehouse, _):
        warehouse.query("select 1 as x from daily")  # warm
        for number in range(3):
            put(shop, "sales", f"more{number}", sales(T.replace(minute=40 + number)))
            while warehouse.state().tables["sales"].arrived < 2 + number:
                time.sleep(0.01)
            answer = warehouse.query("select sum(n) as n from daily", within="60s", lag=0)
            assert (answer.rows, answer.ending, answer.lag) == ([(6 + 3 * number,)], Ending.SUCCESS, 0), answer
            assert answer.complete_us is not None and answer.consistent
        kinds = [event.kind for _, event in _log(warehouse)]
        ways = [one.way for one in warehouse.front._queries.values()]
        assert set(ways) & {Way.REFRESH, Way.WAIT}
        assert ("refresh-requested" in kinds) == (Way.REFRESH in ways)


def _log(warehouse: Warehouse) -> list:
    with warehouse.store.read() as conn:
        return list(warehouse.store.events(conn))


def test_many_who_ask_the_same_are_answered_by_one_run(shop: Path, spark: SparkSession) -> None:
    with Warehouse(shop, spark=spark) as warehouse:
        front = warehouse.front
        asked = [front.ask("select sum(amount) as s from hourly", profile="board") for _ in range(40)]
        asked += [front.ask(f"select {n} as n, sum(amount) as s from hourly") for n in range(3)]
        for one in asked:
            assert one.wait(60)
        assert {one.status for one in asked} == {"done"}
        answers = [one.answer for one in asked if one.answer]
        assert [answer.rows for answer in answers] == [[(30,)]] * 40 + [[(n, 30)] for n in range(3)]
        assert sum(not answer.shared for answer in answers[:40]) <= 3
        overall = front.tallies.satisfaction.overall
        assert overall.queries == 43 and sum(tally.queries for tally in front.tallies.satisfaction.values()) == 43
