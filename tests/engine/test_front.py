"""The front door on Spark: the four outcomes, what each answer claims, and what is left running."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.declare.contracts import contract_of
from penstock.engine.runtime import Pace
from penstock.model.time import SECOND_US
from penstock.queries.contract import Contract
from penstock.queries.outcome import DeadlineMissed, Ending, Rejected, Stale, Way
from penstock.queries.policies import find_query_policy
from tests.conftest import Write
from tests.engine.shop import FILES, Hand, living, put, sales
from tests.waiting import IN_TIME, LONG_S, until

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
        marked = warehouse.query("select sum(amount) as s from hourly", within=IN_TIME, fresh="1m")
        assert isinstance(marked.outcome, Stale) and marked.rows == [(30,)] and not marked.outcome.withheld
        withheld = warehouse.query("select sum(amount) as s from hourly", within=IN_TIME, fresh="1m", stale="withhold")
        assert withheld.ending in (Ending.STALE, Ending.REJECTED) and withheld.rows == [] and not withheld.is_answered
        if isinstance(withheld.outcome, Rejected):
            assert withheld.outcome.acceptable_freshness is not None
            assert (withheld.outcome.acceptable_freshness.age_us or 0) > 10**12
        # Strict is met: nothing has arrived that is missing.
        assert warehouse.query("select 1 as one from shops", lag=0).ending is Ending.SUCCESS
        # A deadline that nothing can keep is refused at once, with one that could be kept.
        rejected = warehouse.query("select sum(n) from daily where shop = 'x'", within="1ms")
        assert isinstance(rejected.outcome, Rejected)
        assert (rejected.outcome.acceptable_within_us or 0) > 1000
        assert [one.way for one in (plain, marked, rejected)] == [Way.NOW, Way.NOW, Way.REJECT]
        tally = warehouse.front.tallies.satisfaction.overall
        assert tally.queries == 5 == tally.success + tally.rejected + tally.missed + tally.stale


def test_a_missed_deadline_leaves_nothing_running(shop: Path, spark: SparkSession) -> None:
    put(shop, "sales", "many", sales(T, 300))
    with Warehouse(shop, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        clock = warehouse.clock = Hand(warehouse.clock.now_us())  # type: ignore[assignment]
        warehouse.front.predictor.start_up_s = 0.01  # it thinks that everything is quick
        warehouse.front.predictor.error = 0.1
        missed = warehouse.front.ask(SLOW, Contract(within_us=3 * SECOND_US))
        until(lambda: missed.status == "running", "the query to run")
        clock.at_us += 4 * SECOND_US
        assert missed.wait(LONG_S) and missed.answer is not None
        assert isinstance(missed.answer.outcome, DeadlineMissed) and missed.answer.outcome.started
        assert missed.answer.rows == []
        withdrawn = warehouse.front.ask(SLOW)
        until(lambda: withdrawn.status == "running", "the query to run")
        warehouse.front.withdraw(withdrawn)
        assert withdrawn.status == "withdrawn" and withdrawn.answer is None
        tracker = spark.sparkContext.statusTracker()
        until(lambda: not tracker.getActiveJobsIds() and not tracker.getActiveStageIds(), "Spark to stop it")
        until(lambda: not warehouse.front.status()["running"], "the lanes")
        with warehouse.store.read() as conn:
            assert conn.exec_driver_sql("SELECT count(*) FROM penstock_pin").scalar() == 0
        # The lanes go on.
        assert warehouse.query("select count(*) as n from sales").rows == [(303,)]


def test_a_query_has_what_it_needs_refreshed(shop: Path, spark: SparkSession) -> None:
    with living(shop, spark) as (warehouse, _):
        warehouse.query("select 1 as x from daily")  # warm
        for number in range(3):
            put(shop, "sales", f"more{number}", sales(T.replace(minute=40 + number)))
            until(lambda n=number: warehouse.state().tables["sales"].arrived >= 2 + n, "the file")
            answer = warehouse.query("select sum(n) as n from daily", within=IN_TIME, lag=0)
            assert (answer.rows, answer.ending, answer.lag) == ([(6 + 3 * number,)], Ending.SUCCESS, 0), answer
            assert answer.complete_us is not None and answer.consistent
        kinds = [event.kind for _, event in _log(warehouse)]
        ways = [one.way for one in warehouse.front._register]
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
            assert one.wait(LONG_S)
        assert {one.status for one in asked} == {"done"}
        answers = [one.answer for one in asked if one.answer]
        assert [answer.rows for answer in answers] == [[(30,)]] * 40 + [[(n, 30)] for n in range(3)]
        assert sum(not answer.shared for answer in answers[:40]) <= 3
        overall = front.tallies.satisfaction.overall
        assert overall.queries == 43 and sum(tally.queries for tally in front.tallies.satisfaction.values()) == 43


def test_no_answer_claims_what_it_does_not_have(shop: Path, spark: SparkSession) -> None:
    """Files come while queries are asked. The amounts of each file are another power of two, so a sum tells exactly which files are in it: what an
    answer lacks, as it says itself, must be what it lacks, also of what had arrived when it was asked."""
    with living(shop, spark) as (warehouse, _):
        asked = []
        for number in range(8):
            put(shop, "sales", f"bit{number}", sales(T.replace(minute=number), 1, amount=2 ** (number + 10)))
            for table, contract in (("daily", {"lag": 0}), ("sales", {"lag": 1}), ("hourly", {"fresh": "1s"})):
                within = contract_of(Contract(within_us=600 * SECOND_US), **contract)
                asked.append(warehouse.front.ask(f"select sum(amount) as s, {number} as n from {table}", within))
            time.sleep(0.4)
        for one in asked:
            assert one.wait(LONG_S) and one.answer is not None, one.error
        log = [event for _, event in _log(warehouse)]
    arrived = {event.file.uri: event.at_us for event in log if event.kind == "file-arrived" and "bit" in event.file.uri}
    assert len(arrived) == 8
    bits = {uri: int(Path(uri).stem.removeprefix("bit")) + 10 for uri in arrived}
    endings = Counter(one.answer.ending for one in asked if one.answer is not None)
    assert sum(endings.values()) == 24 and endings[Ending.SUCCESS] > 0, endings
    for one in asked:
        answer = one.answer
        if answer is None or answer.reading is None or not answer.rows:
            continue
        total = answer.rows[0][0]
        lacks = [at for uri, at in arrived.items() if not total >> bits[uri] & 1 and at <= answer.reading.as_of_us]
        assert answer.lag == len(lacks), (one.sql, answer)
        missed = sum(at <= one.arrived_us for at in lacks)
        if answer.ending is Ending.SUCCESS and one.contract.freshness.lag is not None:
            assert missed <= one.contract.freshness.lag, (one.sql, answer)
        elif answer.ending is Ending.STALE and one.contract.freshness.lag is not None:
            assert missed > one.contract.freshness.lag, (one.sql, answer)


@pytest.mark.parametrize("policy", ["qmf", "unit", "unit+on-demand"])
def test_policies_with_a_controller(shop: Path, spark: SparkSession, policy: str) -> None:
    config = shop / "penstock.toml"
    config.write_text(config.read_text() + f'\n[queries]\npolicy = "{policy}"\n')
    with Warehouse(shop, spark=spark) as warehouse, warehouse.running(Pace(0.05, 0.05), for_queries=True) as runtime:
        front = warehouse.open_front(runtime.wake)
        loop = threading.Thread(target=runtime.run)
        loop.start()
        try:
            assert runtime.updates == "periods" == find_query_policy(policy).updates
            hopeless = front.ask("select sum(n) as n from daily", Contract(within_us=1000))
            good = front.ask("select sum(n) as n from daily", Contract(within_us=600 * SECOND_US))
            assert (
                hopeless.wait(LONG_S) and good.wait(LONG_S) and hopeless.answer is not None and good.answer is not None
            )
            assert isinstance(hopeless.answer.outcome, Rejected)
            assert (good.answer.ending, good.answer.rows) == (Ending.SUCCESS, [(3,)])
            # The controller has looked, and what it wants of updates is in the log.
            desk = front._keeper.desk
            assert desk is not None
            desk._wake_s = 0.0
            desk.policy.stretched = lambda memory: [(0, 3600.0)]  # type: ignore[method-assign]
            front.ask("select 1 as one from daily").wait(LONG_S)
            until(lambda: warehouse.state().stretched, "other periods")
            assert list(warehouse.state().stretched.values()) == [3600 * SECOND_US]
        finally:
            front.close()
            runtime.stop()
            loop.join()
