"""Queries with deadlines against the demo warehouse, live on Spark, while a flash crowd makes twice or three times as many of them: the default policy against all
others.

Every policy has a warehouse of its own, and gets the same files and the same queries at the same moments of its time. Updates run in this process; queries run
in processes of their own, as they do live. Policies take turns, in rounds of calm, crowd and calm, each round beginning with another policy: a machine that is slower for a minute is so for all. All times are in
units of what a warm query takes on this machine just then, so that the load is the same on any. A query must be answered within its deadline, and nothing
may be missing in the answer that had arrived when it was asked. Answers are shared by those who ask the same of the same versions, under every policy.

The last rows say whether the default won: in every round at least .05 above on-demand and above admission+on-demand while it is crowded, with a lower median latency, and nowhere worse when it is calm.

    PENSTOCK_POLICIES   the policies, by default all
    PENSTOCK_CROWDS     how many times as many queries there are in the crowd: 2,3
    PENSTOCK_ROUNDS     3
    PENSTOCK_BUSY       so many processes compete for the cores besides: 0
    PENSTOCK_QUERY_LOG  a file for what was predicted, decided and done for each query, as JSON lines
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from statistics import mean, median
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
from penstock.queries.policies import DEFAULT
from penstock.queries.policies import POLICIES as ALL

POLICIES = tuple(os.environ.get("PENSTOCK_POLICIES", ",".join(reversed(ALL))).split(","))
CROWDS = tuple(float(one) for one in os.environ.get("PENSTOCK_CROWDS", "2,3").split(","))
ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "3"))
BUSY = int(os.environ.get("PENSTOCK_BUSY", "0"))
# What the default must be ahead by in the crowd, and may be behind by when it is calm.
AHEAD, BEHIND = 0.05, 0.01
# In units: calm, crowd and calm again of a round; queries a unit when it is calm; deadlines; a minute of the network.
CALM, CROWD, AFTER = 20.0, 20.0, 10.0
RATE = 0.8
WITHIN = (8.0, 24.0)
PACE = 40.0
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
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
        try:
            with ExitStack() as stack:
                sides = [_side(spark, policy, stack) for policy in POLICIES]
                for number in range(ROUNDS * len(CROWDS)):
                    _round(spark, sides, number, CROWDS[number % len(CROWDS)])
                _log(sides)
                return [side.row(crowd) for crowd in CROWDS for side in sides] + _verdicts(sides)
        finally:
            for process in busy:
                process.kill()
                process.wait()
            spark.stop()


def _verdicts(sides: Sequence[Side]) -> list[dict[str, object]]:
    """Each round of a crowd, against the two that are hardest to beat."""
    by = {side.policy: side for side in sides}
    ours = by.get(DEFAULT)
    found: list[dict[str, object]] = []
    for rival in ("on-demand", "admission+on-demand"):
        if ours is None or rival not in by:
            continue
        for mine, other in zip(ours.rounds, by[rival].rounds, strict=True):
            ahead, calm = mine.crowded - other.crowded, mine.calm - other.calm
            row = {
                "benchmark": f"against {rival}",
                "crowd": mine.crowd,
                "ahead in the crowd": ahead,
                "ahead when calm": calm,
                "median s": mine.median_s,
                "other's median s": other.median_s,
                "passed": ahead >= AHEAD and calm >= -BEHIND and mine.median_s <= other.median_s,
            }
            found.append(row)
    return found


@dataclass(frozen=True)
class Round:
    crowd: float
    crowded: float
    calm: float
    median_s: float
    asked: list[QueryTicket]


@dataclass
class Side:
    """One policy: its warehouse, its loop, which runs only while it is its turn, its feeds and its queries."""

    policy: str
    warehouse: Warehouse
    front: Front
    turn: threading.Event
    deliveries: Iterator[DemoFile]
    unit_s: float
    rounds: list[Round] = field(default_factory=list)
    # Units that its time has gone on.
    passed: float = 0.0
    next: DemoFile | None = None

    def round(self, number: int, crowd: float, unit_s: float) -> None:
        self.turn.set()
        stop = threading.Event()
        begin = monotonic()
        feeds = threading.Thread(target=self._feed, args=(begin, unit_s, stop))
        feeds.start()
        mine: list[QueryTicket] = []
        crowded: list[QueryTicket] = []
        for at, sql, within in _questions(number, crowd):
            sleep(max(0.0, at * unit_s - (monotonic() - begin)))
            within_us = int(within * unit_s * SECOND_US)
            mine.append(self.front.ask(sql, Contract(within_us, STRICT, True, OutcomeWeights(), WhenStale.MARK)))
            if CALM <= at < CALM + CROWD:
                crowded.append(mine[-1])
        for one in mine:
            one.wait(60)
        stop.set()
        feeds.join()
        calm = [one for one in mine if one not in crowded]
        self.rounds.append(Round(crowd, _satisfied(crowded), _satisfied(calm), _median_s(crowded), mine))
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

    def row(self, crowd: float) -> dict[str, object]:
        some = [one for one in self.rounds if one.crowd == crowd]
        asked = [one for each in some for one in each.asked]
        endings = _endings(asked)

        def part(kind: Ending) -> float:
            return endings.count(kind) / max(1, len(endings))

        return {
            "benchmark": self.policy,
            "crowd": crowd,
            "queries": len(asked),
            "satisfaction": part(Ending.SUCCESS),
            "in the crowd": mean(one.crowded for one in some),
            "when calm": mean(one.calm for one in some),
            "rejected": part(Ending.REJECTED),
            "missed": part(Ending.MISSED),
            "stale": part(Ending.STALE),
            "median s": _median_s(asked),
            "unit s": self.unit_s,
            "updates": sum(row.updates for row in self.warehouse.status()),
        }


def _satisfied(asked: Sequence[QueryTicket]) -> float:
    return _endings(asked).count(Ending.SUCCESS) / max(1, len(asked))


def _median_s(asked: Sequence[QueryTicket]) -> float:
    """Of those that were answered."""
    good = [one for one in asked if one.answer is not None and one.answer.is_answered and one.ended_us is not None]
    return median([((one.ended_us or 0) - one.arrived_us) / SECOND_US for one in good] or [0.0])


def _endings(asked: Sequence[QueryTicket]) -> list[Ending]:
    """Every query has exactly one outcome."""
    found = [one.answer.ending for one in asked if one.answer is not None]
    assert len(found) == len(asked), [one.error for one in asked if one.answer is None]
    return found


def _side(spark: SparkSession, policy: str, stack: ExitStack) -> Side:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))) / "demo"
    write_demo(folder)
    config = folder / "penstock.toml"
    config.write_text(config.read_text() + f'\n[queries]\npolicy = "{policy}"\nmemory = "512m"\n')
    network = Network(ORIGIN_US, 600 * MINUTE_US, scale=SCALE)
    for delivery in network.history():
        deliver(folder, delivery)
    warehouse = stack.enter_context(Warehouse(folder, spark=spark))
    warehouse.run(until_idle=True)
    runtime = stack.enter_context(warehouse.running(for_queries=True))
    # Queries in processes of their own, as live; updates go on in the session that there is.
    warehouse._session, warehouse._given = spark, None
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


def _round(spark: SparkSession, sides: Sequence[Side], number: int, crowd: float) -> None:
    tracker = spark.sparkContext.statusTracker()
    unit_s = min(1.5, max(0.2, median(_warm(side.front) for side in sides[:1])))
    for place in range(len(sides)):
        side = sides[(place + number) % len(sides)]
        side.unit_s = unit_s
        side.round(number, crowd, unit_s)
        while tracker.getActiveJobsIds():  # its last updates are not to slow the next
            sleep(0.05)


def _questions(number: int, crowd: float) -> Iterator[tuple[float, str, float]]:
    """When, what and within what, in units; the same for all policies."""
    random = Random(7 + number)
    at = random.expovariate(RATE)
    while at < CALM + CROWD + AFTER:
        (text,) = random.choices([text for _, text in QUERIES], [weight for weight, _ in QUERIES])
        yield at, _written(text, random), random.uniform(*WITHIN)
        at += random.expovariate(RATE * (crowd if CALM <= at < CALM + CROWD else 1))


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
            for one in (one for each in side.rounds for one in each.asked):
                told = {
                    "policy": side.policy,
                    "sql": one.sql,
                    "arrived_us": one.arrived_us,
                    "within_us": one.deadline_us - one.arrived_us,
                    "way": one.way,
                    "why": one.why,
                    "run_s": one.run.mean_s,
                    "chain": one.chain,
                    "chance": one.chance,
                    "outcome": one.answer.ending if one.answer is not None else None,
                    "steps": [
                        ((step.at_us - one.arrived_us) / SECOND_US, step.status, step.what) for step in one.steps
                    ],
                }
                file.write(json.dumps(told) + "\n")
