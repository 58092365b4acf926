"""Queries with deadlines against the demo warehouse, live on Spark, while a flash crowd doubles their number: the default policy against immediate
and on-demand updates, and against admission control with on-demand refresh.

Every policy gets the same files at the same moments and the same queries at the same moments, in the same Spark session. A minute of the network
comes every ten seconds. A query must be answered within its deadline, and nothing that has arrived may be missing in the answer (the freshness of Qu,
Labrinidis and Mossé 2006). Answers are shared by those who ask the same of the same versions, under every policy.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, sleep

from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.cli.demo import write_demo
from penstock.cli.netops.feeds import Network, Scale
from penstock.cli.netops.generator import deliver
from penstock.engine.asked import Asked
from penstock.engine.front import Front
from penstock.engine.spark import start_spark
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.queries.contract import ANY, STRICT, Contract, Weights, WhenStale
from penstock.queries.outcome import Ending

POLICIES = ("default", "immediate", "on-demand", "admission+on-demand")
# Seconds of calm, of the crowd, and of calm again; queries a second when it is calm.
CALM_S, CROWD_S, AFTER_S = (float(x) for x in os.environ.get("PENSTOCK_CROWD", "12,12,6").split(","))
RATE = float(os.environ.get("PENSTOCK_RATE", "2"))
WITHIN_S = (3.0, 8.0)
# Seconds in which a minute of the network comes.
PACE_S = float(os.environ.get("PENSTOCK_PACE", "10"))
ORIGIN_US = 1_709_251_200_000_000 - 40 * MINUTE_US  # before a midnight

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
            return [_measured(spark, policy) for policy in POLICIES]
        finally:
            spark.stop()


def _measured(spark: SparkSession, policy: str) -> dict[str, object]:
    network = Network(ORIGIN_US, 60 * MINUTE_US, scale=Scale(history_h=2, routers=20, syslog_lines=60))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        folder = Path(place) / "demo"
        write_demo(folder)
        config = folder / "penstock.toml"
        config.write_text(config.read_text() + f'\n[queries]\npolicy = "{policy}"\n')
        for delivery in network.history():
            deliver(folder, delivery)
        with Warehouse(folder, spark=spark) as warehouse:
            warehouse.run(until_idle=True)
            before = sum(row.updates for row in warehouse.status())
            asked, began = _live(warehouse, network)
            updates = sum(row.updates for row in warehouse.status()) - before
    return _row(policy, asked, updates, began)


def _live(warehouse: Warehouse, network: Network) -> tuple[list[Asked], int]:
    """The loop, the feeds and the queries, all at once."""
    with warehouse.running(for_queries=True) as runtime:
        loop = threading.Thread(target=runtime.run)
        front = warehouse.open_front(runtime.wake)
        stop = threading.Event()
        feeds = threading.Thread(target=_feed, args=(warehouse, network, stop))
        loop.start()
        try:
            _warm(front)
            began = warehouse.clock.now_us()
            feeds.start()
            asked = _crowd(front, network)
            for one in asked:
                one.wait(60)
        finally:
            stop.set()
            front.close()
            runtime.stop()
            loop.join()
            feeds.join()
    return asked, began


def _feed(warehouse: Warehouse, network: Network, stop: threading.Event) -> None:
    begin = monotonic()
    folder = warehouse.declared.declarations.folder
    for delivery in network.deliveries():
        due_s = (delivery.due_us - network.origin_us) / MINUTE_US * PACE_S
        if stop.wait(max(0.0, due_s - (monotonic() - begin))):
            return
        deliver(folder, delivery)


def _warm(front: Front) -> None:
    """The first queries of a session are slow, and nothing is known of how long queries take."""
    random = Random(1)
    for number in range(3):
        for _, text in QUERIES:
            # Another text each time, else the first answer would be given again.
            sql = _written(text, random, ["ams-core-00"]).replace("select ", f"select {number} as warm, ", 1)
            front.ask(sql, Contract(freshness=ANY)).wait(60)


def _written(text: str, random: Random, routers: Sequence[str]) -> str:
    hour = f"2024-02-{random.choice((28, 29))}"
    return text.format(router=random.choice(routers), n=random.randrange(3, 12), hour=hour)


def _crowd(front: Front, network: Network) -> list[Asked]:
    random = Random(7)
    routers = [router.name for router in network.routers]
    at, moments = 0.0, []
    while at < CALM_S + CROWD_S + AFTER_S:
        moments.append(at)
        crowded = CALM_S <= at < CALM_S + CROWD_S
        at += random.expovariate(RATE * (2 if crowded else 1))
    begin = monotonic()
    found = []
    for moment in moments:
        (text,) = random.choices([text for _, text in QUERIES], [weight for weight, _ in QUERIES])
        sql = _written(text, random, routers)
        within = int(random.uniform(*WITHIN_S) * SECOND_US)
        sleep(max(0.0, moment - (monotonic() - begin)))
        found.append(front.ask(sql, Contract(within, STRICT, True, Weights(), WhenStale.MARK)))
    return found


def _row(policy: str, asked: Sequence[Asked], updates: int, began: int) -> dict[str, object]:
    endings = [one.answer.ending for one in asked if one.answer is not None]
    # Every query has exactly one outcome.
    assert len(endings) == len(asked), [one.error for one in asked if one.answer is None]
    crowd = [
        one.answer.ending
        for one in asked
        if one.answer is not None and CALM_S <= (one.arrived_us - began) / SECOND_US < CALM_S + CROWD_S
    ]
    took = [(one.ended_us - one.arrived_us) / SECOND_US for one in asked if one.ended_us is not None]

    def part(kind: Ending, among: Sequence[Ending] = endings) -> float:
        return among.count(kind) / max(1, len(among))

    return {
        "benchmark": policy,
        "queries": len(asked),
        "satisfaction": part(Ending.SUCCESS),
        "in the crowd": part(Ending.SUCCESS, crowd),
        "rejected": part(Ending.REJECTED),
        "missed": part(Ending.MISSED),
        "stale": part(Ending.STALE),
        "median s": median(took),
        "updates": updates,
    }
