"""Queries with deadlines against the demo warehouse, live on Spark, while a flash crowd doubles their number: the default policy against immediate
and on-demand updates, and against admission control with on-demand refresh.

Every policy has a warehouse of its own in the same Spark session, and gets the same files and the same queries at the same moments of its time. They take
turns, in rounds of calm, crowd and calm, each round beginning with another policy: a machine that is slower for a minute is so for all. All times are in
units of what a warm query takes on this machine just then, so that the load is the same on any. A query must be answered within its deadline, and nothing
may be missing in the answer that had arrived when it was asked. Answers are shared by those who ask the same of the same versions, under every policy.

PENSTOCK_QUERY_LOG=FILE writes what was predicted, decided and done for each query, as JSON lines.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, sleep

from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.cli.demo import write_demo
from penstock.cli.netops.feeds import DemoFile, Network, Scale, deliver
from penstock.engine.desk.front import Front
from penstock.engine.desk.ticket import QueryTicket
from penstock.engine.spark.session import start_spark
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.queries.contract import ANY, STRICT, Contract, OutcomeWeights, WhenStale
from penstock.queries.outcome import Ending

POLICIES = tuple(os.environ.get("PENSTOCK_POLICIES", "default,immediate,on-demand,admission+on-demand").split(","))
# In units: calm, crowd and calm again of a round; queries a unit when it is calm; deadlines; a minute of the network.
CALM, CROWD, AFTER = 20.0, 20.0, 10.0
RATE = 0.8
WITHIN = (8.0, 24.0)
PACE = 40.0
# All rounds together take about this long, whatever the machine.
BUDGET_S = float(os.environ.get("PENSTOCK_BUDGET", "240"))
ORIGIN_US = 1_709_251_200_000_000 - 40 * MINUTE_US  # before a midnight
SCALE = Scale(history_h=2, routers=20, syslog_lines=60)

# A few are asked by many, as it is.
QUERIES = (
    (8, "select * from critical_alerts where raised >= '{hour}' order by raised desc limit 20"),
    (
        6,
        "select slot, sum(bytes_in + bytes_out) as bytes from traffic_5m where router = '{router}' group by slot order by slot",
    ),
    (
        4,
        "select router, sum(alerts) as alerts from alerts_hourly group by router order by alerts desc, router limit {n}",
    ),
    (3, "select hour, bytes_in, errors from traffic_hourly where router = '{router}' order by hour"),
    (1, "select region, sum(bytes) as bytes from site_daily group by region order by region"),
)


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-spark-") as scratch:
        spark = start_spark("bench", Path(scratch), {})
        try:
            with ExitStack() as stack:
                sides = [_side(spark, policy, stack) for policy in POLICIES]
                _rounds(spark, sides)
                rows = [side.row() for side in sides]
                _log(sides)
            return rows
        finally:
            spark.stop()


@dataclass
class Side:
    """One policy: its warehouse, its loop, which runs only while it is its turn, its feeds and its queries."""

    policy: str
    warehouse: Warehouse
    front: Front
    turn: threading.Event
    deliveries: Iterator[DemoFile]
    unit_s: float
    asked: list[QueryTicket] = field(default_factory=list)
    crowd: list[QueryTicket] = field(default_factory=list)
    # Units that its time has gone on.
    passed: float = 0.0
    next: DemoFile | None = None

    def round(self, number: int, unit_s: float) -> None:
        self.turn.set()
        stop = threading.Event()
        begin = monotonic()
        feeds = threading.Thread(target=self._feed, args=(begin, unit_s, stop))
        feeds.start()
        mine: list[QueryTicket] = []
        for at, sql, within in _questions(number):
            sleep(max(0.0, at * unit_s - (monotonic() - begin)))
            within_us = int(within * unit_s * SECOND_US)
            mine.append(self.front.ask(sql, Contract(within_us, STRICT, True, OutcomeWeights(), WhenStale.MARK)))
            if CALM <= at < CALM + CROWD:
                self.crowd.append(mine[-1])
        for one in mine:
            one.wait(60)
        stop.set()
        feeds.join()
        self.asked += mine
        self.passed += (monotonic() - begin) / unit_s
        self.turn.clear()

    def _feed(self, begin: float, unit_s: float, stop: threading.Event) -> None:
        folder = self.warehouse.declared.declarations.folder
        while True:
            self.next = self.next or next(self.deliveries)
            due = (self.next.due_us - ORIGIN_US) / MINUTE_US * PACE - self.passed
            if stop.wait(max(0.0, due * unit_s - (monotonic() - begin))):
                return
            deliver(folder, self.next)
            self.next = None

    def row(self) -> dict[str, object]:
        endings = _endings(self.asked)
        crowd = _endings(self.crowd)
        took = [(one.ended_us - one.arrived_us) / SECOND_US for one in self.asked if one.ended_us is not None]

        def part(kind: Ending, among: Sequence[Ending] = endings) -> float:
            return among.count(kind) / max(1, len(among))

        return {
            "benchmark": self.policy,
            "queries": len(self.asked),
            "satisfaction": part(Ending.SUCCESS),
            "in the crowd": part(Ending.SUCCESS, crowd),
            "rejected": part(Ending.REJECTED),
            "missed": part(Ending.MISSED),
            "stale": part(Ending.STALE),
            "median s": median(took),
            "unit s": self.unit_s,
            "updates": sum(row.updates for row in self.warehouse.status()),
        }


def _endings(asked: Sequence[QueryTicket]) -> list[Ending]:
    """Every query has exactly one outcome."""
    found = [one.answer.ending for one in asked if one.answer is not None]
    assert len(found) == len(asked), [one.error for one in asked if one.answer is None]
    return found


def _side(spark: SparkSession, policy: str, stack: ExitStack) -> Side:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))) / "demo"
    write_demo(folder)
    config = folder / "penstock.toml"
    config.write_text(config.read_text() + f'\n[queries]\npolicy = "{policy}"\n')
    network = Network(ORIGIN_US, 600 * MINUTE_US, scale=SCALE)
    for delivery in network.history():
        deliver(folder, delivery)
    warehouse = stack.enter_context(Warehouse(folder, spark=spark))
    warehouse.run(until_idle=True)
    runtime = stack.enter_context(warehouse.running(for_queries=True))
    turn = threading.Event()
    loop = threading.Thread(target=runtime.run, args=(False, turn.wait))
    front = warehouse.open_front(runtime.wake)

    def end() -> None:
        front.close()
        runtime.stop()
        turn.set()
        loop.join()

    loop.start()
    stack.callback(end)
    return Side(policy, warehouse, front, turn, iter(network.deliveries()), _warm(front))


_NUMBERS = count()


def _warm(front: Front) -> float:
    """The first queries of a session are slow, and nothing is known of how long queries take: what one takes after that."""
    random = Random(1)
    took: list[float] = []
    for _ in range(3):
        for _, text in QUERIES:
            # Another text each time, else the first answer would be given again.
            sql = _written(text, random).replace("select ", f"select {next(_NUMBERS)} as warm, ", 1)
            begin = monotonic()
            front.ask(sql, Contract(freshness=ANY)).wait(60)
            took.append(monotonic() - begin)
    return median(took[len(QUERIES) :])


def _rounds(spark: SparkSession, sides: Sequence[Side]) -> None:
    begin = monotonic()
    number = 0
    longest = 0.0
    tracker = spark.sparkContext.statusTracker()
    # Whole rounds only, and as many as there is time for.
    while number == 0 or monotonic() - begin + longest < BUDGET_S:
        began = monotonic()
        unit_s = min(1.5, max(0.2, median(_warm(side.front) for side in sides[:1])))
        for place in range(len(sides)):
            side = sides[(place + number) % len(sides)]
            side.unit_s = unit_s
            side.round(number, unit_s)
            while tracker.getActiveJobsIds():  # its last updates are not to slow the next
                sleep(0.05)
        number += 1
        longest = max(longest, monotonic() - began)


def _questions(number: int) -> Iterator[tuple[float, str, float]]:
    """When, what and within what, in units; the same for all policies."""
    random = Random(7 + number)
    at = random.expovariate(RATE)
    while at < CALM + CROWD + AFTER:
        (text,) = random.choices([text for _, text in QUERIES], [weight for weight, _ in QUERIES])
        yield at, _written(text, random), random.uniform(*WITHIN)
        at += random.expovariate(RATE * (2 if CALM <= at < CALM + CROWD else 1))


ROUTERS = [router.name for router in Network(ORIGIN_US, MINUTE_US, scale=SCALE).routers]


def _written(text: str, random: Random) -> str:
    hour = f"2024-02-{random.choice((28, 29))}"
    return text.format(router=random.choice(ROUTERS), n=random.randrange(3, 12), hour=hour)


def _log(sides: Sequence[Side]) -> None:
    place = os.environ.get("PENSTOCK_QUERY_LOG")
    if not place:
        return
    with Path(place).open("w") as file:
        for side in sides:
            for one in side.asked:
                weighed = one.choice.considered if one.choice is not None else ()
                told = {
                    "policy": side.policy,
                    "sql": one.sql,
                    "arrived_us": one.arrived_us,
                    "within_us": one.deadline_us - one.arrived_us,
                    "way": one.way,
                    "why": one.why,
                    "outcome": one.answer.ending if one.answer is not None else None,
                    "ways": [
                        {
                            "way": option.way,
                            "wait_s": option.wait.mean_s,
                            "run_s": option.run.mean_s,
                            "lag": option.lag,
                            "success": prospect.success,
                            "expected": prospect.expected,
                        }
                        for option, prospect in weighed
                    ],
                    "steps": [
                        ((step.at_us - one.arrived_us) / SECOND_US, step.status, step.what) for step in one.steps
                    ],
                }
                file.write(json.dumps(told) + "\n")
