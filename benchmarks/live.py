"""Policies on the live demo warehouse: the same feeds on Spark, first with a machine that is slower for a while, then with
two feeds that are cut for a while. What counts is staleness by priority, as a ratio to the default policy of the same run.

Every policy gets the same files at the same moments of the demo's clock. Runs are interleaved, in one warm Spark session;
the order changes from round to round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

from penstock.cli.demo import DemoSummary, default_network, run_demo
from penstock.cli.netops.feeds import Delivery, Network
from penstock.control.events import Job
from penstock.declare.config import RunConfig
from penstock.engine.executor import Computed
from penstock.engine.spark import start_spark
from penstock.engine.sparkwork import SparkWork
from penstock.model.time import SECOND_US
from penstock.sim.timeline import timeline
from penstock.store.store import Store

SECONDS = float(os.environ.get("PENSTOCK_LIVE_SECONDS", "40"))
ROUNDS = int(os.environ.get("PENSTOCK_LIVE_ROUNDS", "2"))
SPEED = 60.0
SLOWER = 3.0
DEFAULT = RunConfig().policy
# What a trigger for every file does: each is loaded by itself, and what follows from it comes in order of arrival.
IMMEDIATE = "fifo / chop=1"
CUT = ("router_stats", "syslog")
CUT_FROM, CUT_TO = 0.35, 0.6


class CutNetwork(Network):
    """Two feeds deliver nothing for a while, then everything at once."""

    def deliveries(self) -> list[Delivery]:
        start, end = self._at(CUT_FROM), self._at(CUT_TO)
        found = [
            replace(one, due_us=end) if one.feed in CUT and start <= one.due_us < end else one
            for one in super().deliveries()
        ]
        return sorted(found, key=lambda one: (one.due_us, one.feed, one.name, one.kind))


@contextmanager
def slower_for_a_while(seconds: float) -> Iterator[None]:
    """In the middle third of the live part every update takes so many times as long, as on a machine that others use."""
    plain: Callable[[SparkWork, Job, str], Computed] = SparkWork.run
    begun: list[float] = []

    def slowed(self: SparkWork, job: Job, folder: str) -> Computed:
        start = time.monotonic()
        if not begun and job.pin > 15:  # the history is loaded before
            begun.append(start)
        found = plain(self, job, folder)
        if begun and seconds / 3 <= start - begun[0] < 2 * seconds / 3:
            time.sleep((SLOWER - 1) * (time.monotonic() - start))
        return found

    SparkWork.run = slowed  # type: ignore[method-assign]
    try:
        yield
    finally:
        SparkWork.run = plain  # type: ignore[method-assign]


def run() -> list[dict[str, object]]:
    spark = start_spark("live", Path(tempfile.mkdtemp()), {})
    try:
        _one(spark, DEFAULT, default_network(20, SPEED), slow=False)  # warm
        rows = _compare(spark, "slower for a while", (DEFAULT, IMMEDIATE, "fifo"), slow=True)
        return rows + _compare(spark, "two feeds cut", ("adaptive", DEFAULT, "fifo"), slow=False)
    finally:
        spark.stop()


def _compare(spark: SparkSession, name: str, policies: tuple[str, ...], *, slow: bool) -> list[dict[str, object]]:
    found: dict[str, list[dict[str, float]]] = {policy: [] for policy in policies}
    for number in range(ROUNDS):
        turn = policies[number % len(policies) :] + policies[: number % len(policies)]
        for policy in turn:
            network = default_network(SECONDS, SPEED)
            if not slow:
                network = CutNetwork(network.origin_us, network.duration_us)
            found[policy].append(_one(spark, policy, network, slow=slow))
    base = mean(one["weighted_s"] for one in found[policies[0]])
    rows: list[dict[str, object]] = []
    for policy, runs in found.items():
        weighted = mean(one["weighted_s"] for one in runs)
        row: dict[str, Any] = {
            "benchmark": f"live: {name}",
            "against": policy,
            "value": weighted,
            "unit": "s, staleness by priority",
            "ratio": weighted / base,
            "in_target": mean(one["in_target"] for one in runs),
            "updates": mean(one["updates"] for one in runs),
            "repeats": len(runs),
        }
        if not slow:
            row["healthy_in_target"] = mean(one["healthy_in_target"] for one in runs)
            row["recovered_after_s"] = mean(one["recovered_s"] for one in runs)
        rows.append(row)
    return rows


def _one(spark: SparkSession, policy: str, network: Network, *, slow: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        seconds = network.duration_us / SECOND_US / SPEED
        if slow:
            with slower_for_a_while(seconds):
                summary = run_demo(place, seconds=seconds, speed=SPEED, spark=spark, network=network, policy=policy)
        else:
            summary = run_demo(place, seconds=seconds, speed=SPEED, spark=spark, network=network, policy=policy)
        return _measured(summary) | _recovered(place, network)


def _measured(summary: DemoSummary) -> dict[str, float]:
    tables = [table for table in summary.tables if table.mean_staleness_us is not None]
    aimed = [table for table in tables if table.within_target is not None]
    healthy = [table for table in aimed if table.table in ("alerts", "critical_alerts", "alerts_hourly")]
    return {
        "weighted_s": sum(table.priority * (table.mean_staleness_us or 0) for table in tables) / SECOND_US,
        "in_target": mean(table.within_target or 0.0 for table in aimed),
        "healthy_in_target": mean(table.within_target or 0.0 for table in healthy),
        "updates": float(summary.updates),
    }


def _recovered(folder: Path, network: Network) -> dict[str, float]:
    """How long after the feeds came back their tables are within their targets again: the slowest, on the demo's clock."""
    store = Store(f"sqlite:///{folder}/.penstock/penstock.db")
    with store.read() as conn:
        found = timeline([event for _, event in store.events(conn)])
    store.close()
    back = network.origin_us + int(network.duration_us * CUT_TO)
    slowest = 0
    for name in CUT:
        target = found.targets_us.get(name)
        moves = found.edges.get(name, ())
        times = [at for at, edge in moves if at >= back and target is not None and at - edge <= target]
        slowest = max(slowest, (min(times) if times else network.end_us) - back)
    return {"recovered_s": slowest / SECOND_US}
