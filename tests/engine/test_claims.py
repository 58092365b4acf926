"""What answers claim is true: an outside reader (DuckDB) finds the same rows at the versions that they name, all rows up to the time that they
name, and no arrived update missing beyond the lag that they name. While files keep coming."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import FileArrived
from penstock.engine.desk.ticket import QueryTicket
from penstock.model.time import moment
from penstock.queries.contract import Contract, Freshness, WhenStale
from penstock.queries.outcome import DeadlineMissed, Ending, Rejected, Stale, Success
from tests.conftest import Write
from tests.engine.shop import FILES, living, put, sales
from tests.oracle import attach
from tests.waiting import LONG_S

pytestmark = pytest.mark.spark

T = datetime(2024, 3, 1, 22, 50, tzinfo=UTC)
QUERIES = (
    "select sum(n) as n, sum(amount) as s from hourly",
    "select sum(n) as n, sum(amount) as s from daily",
    "select sum(n) as n, sum(amount) as s from hourly where hour >= '2024-03-01'",
    # both must be of one state
    "select (select sum(n) from hourly) as n, (select sum(amount) from daily) as s",
)


def feed(folder: Path, files: int, stop: threading.Event) -> None:
    for number in range(files):
        # Across a midnight, so that partitions begin.
        put(folder, "sales", f"live-{number:03d}", sales(T + timedelta(minutes=3 * (number + 1)), 4, number + 1))
        if stop.wait(0.25):
            return


def test_answers_are_what_they_claim(project: Write, spark: SparkSession) -> None:
    folder = project(FILES)
    put(folder, "sales", "first", sales(T, 5))
    put(folder, "shops", "all", ["berlin,Berlin"])
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    random = Random(3)
    asked: list[QueryTicket] = []
    with living(folder, spark) as (warehouse, runtime):
        front = warehouse.open_front(runtime.wake)
        stop = threading.Event()
        feeds = threading.Thread(target=feed, args=(folder, 25, stop))
        feeds.start()
        try:
            for number in range(36):
                # The first are easy to please, so that there are answers however slow the machine is.
                lag = None if number < 4 else random.choice((0, 0, 1, 3, None))
                within = None if number < 4 else random.choice((300_000, 3_000_000, 30_000_000, None))
                stale = random.choice((WhenStale.MARK, WhenStale.WITHHOLD))
                contract = Contract(within, Freshness(None, lag), random.random() < 0.8, when_stale=stale)
                asked.append(front.ask(random.choice(QUERIES), contract))
                time.sleep(0.15)
            for one in asked:
                assert one.wait(LONG_S)
        finally:
            stop.set()
            feeds.join()
            front.close()
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        with warehouse.store.read() as conn:
            arrivals = [
                (event.at_us, Path(event.file.uri).name)
                for _, event in warehouse.store.events(conn)
                if isinstance(event, FileArrived) and event.feed == "sales"
            ]
    tally = front.tallies.satisfaction.overall
    endings = Counter(one.answer.ending for one in asked if one.answer is not None)
    assert sum(endings.values()) == len(asked) == tally.queries
    assert (tally.success, tally.rejected, tally.missed, tally.stale) == tuple(endings[kind] for kind in Ending)
    assert endings[Ending.SUCCESS] >= 4
    con, lake = duckdb.connect(), attach(folder)
    for one in asked:
        check(one, con, lake, folder, arrivals)


def check(
    one: QueryTicket,
    con: duckdb.DuckDBPyConnection,
    lake: duckdb.DuckDBPyConnection,
    folder: Path,
    arrivals: list[tuple[int, str]],
) -> None:
    answer = one.answer
    assert answer is not None and one.ended_us is not None
    if isinstance(answer.outcome, Rejected | DeadlineMissed):
        assert answer.rows == []
        return
    reading = answer.reading
    assert reading is not None and answer.complete_us is not None
    need = one.contract.freshness.lag
    if isinstance(answer.outcome, Success):
        # Of what had arrived when it was asked; the lag that it tells counts what came since, too.
        assert one.ended_us <= one.deadline_us and (need is None or reading.lag_at(one.arrived_us) <= need)
    if isinstance(answer.outcome, Stale):
        assert need is not None and reading.lag_at(one.arrived_us) > need
        assert answer.outcome.withheld == (one.contract.when_stale is WhenStale.WITHHOLD) == (answer.rows == [])
        if answer.outcome.withheld:
            return
    assert reading.consistent or not one.contract.consistent
    ((n, s),) = answer.rows
    # The versions that it names hold what it says.
    at = {version.table: version.read_at for version in answer.versions}
    sql = one.text
    for table, snapshot in at.items():
        sql = sql.replace(f"from {table}", f"from lake.{table} at (version => {snapshot})")
    assert lake.execute(sql).fetchall() == [(n, s)], one.sql
    # All rows up to the time that it names, of all files that ever came: none of them was late.
    landed = f"read_csv('{folder}/landing/sales/*.csv', columns = {{'shop': 'VARCHAR', 'ts': 'TIMESTAMPTZ', 'amount': 'BIGINT'}}, filename = true)"
    edge = moment(answer.complete_us).isoformat()
    if reading.consistent:
        expected = con.execute(f"select count(*), sum(amount) from {landed} where ts < '{edge}'").fetchone()
        assert expected == (n, s), (one.sql, answer.plain())
    # Of all files that had come when it was read, no more are missing than it says.
    before = {name for at_us, name in arrivals if at_us <= reading.as_of_us}
    held = con.execute(f"select distinct filename from {landed} where ts < '{edge}'").fetchall()
    assert len(before - {Path(name).name for (name,) in held}) <= reading.lag
