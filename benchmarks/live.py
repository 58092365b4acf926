"""Policies on the live demo warehouse: the same feeds on Spark, first with a machine that is slower for a while, then with
two feeds that are cut for a while. What counts is staleness by priority, as a ratio to the default policy of the same run.

Runs are interleaved, in one warm Spark session, and begin alike (see `livedemo`); the order changes from round to round.
Beside each ratio stands what the simulator says of the same arrivals, with the costs learned before.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.livedemo import Run, Stage, weighted_s
from penstock.cli.netops.feeds import Network, Scale
from penstock.declare.config import RunConfig
from penstock.engine.spark import start_spark
from penstock.model.time import SECOND_US, parse_instant
from penstock.sim.whatif.change import Changes, Slowdown
from penstock.sim.whatif.recording import record
from penstock.sim.whatif.replay import Replay

# Of each run.
SECONDS = float(os.environ.get("PENSTOCK_LIVE_SECONDS", "90"))
ROUNDS = int(os.environ.get("PENSTOCK_LIVE_ROUNDS", "1"))
PARTS = os.environ.get("PENSTOCK_LIVE_PARTS", "slow,cut").split(",")
WARM_S = 70.0
SPEED = float(os.environ.get("PENSTOCK_LIVE_SPEED", "15"))
SLOWER = 2.5
DEFAULT = RunConfig().policy
# What a trigger for every file does: each is loaded by itself, and what follows from it comes in order of arrival.
IMMEDIATE = "fifo / chop=1"
ORIGIN_US = parse_instant("2026-03-02T23:20")
CUT = ("router_stats", "syslog")
HEALTHY = ("alerts", "critical_alerts", "alerts_hourly")
CUT_FROM, CUT_TO = 0.2, 0.55


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark("live", Path(folder), {})
        try:
            if "slow" in PARTS:
                rows += _slow(spark, Path(folder) / "slow")
        finally:
            spark.stop()
    return rows


def _slow(spark: SparkSession, folder: Path) -> list[dict[str, object]]:
    duration = int((WARM_S + SECONDS) * SPEED * SECOND_US)
    first, last = (int((WARM_S + SECONDS * part) * SPEED * SECOND_US) for part in (0.25, 0.65))
    changes = Changes(slowdowns=(Slowdown(first, last, SLOWER),))
    network = Network(ORIGIN_US, duration, scale=Scale(alert_every_s=60))
    stage = Stage(spark, folder, network, SPEED, WARM_S, {'period = "10s"': 'period = "1m"'}, changes)
    stage.prepare(DEFAULT)
    before = record(enumerate(stage.log()[0], 1))
    runs = _interleaved(stage, (DEFAULT, IMMEDIATE, "fifo"))
    base = mean(one.weighted_s for one in runs[DEFAULT])
    world = record(enumerate(runs[DEFAULT][0].events, 1))
    world = replace(world, costs=before.costs, luck=before.luck, crowding=before.crowding)
    changes = replace(changes, slowdowns=tuple(_since(slow, ORIGIN_US - world.start_us) for slow in changes.slowdowns))
    simulated = {policy: _simulated(world, policy, changes, stage) for policy in runs}
    rows: list[dict[str, Any]] = []
    for policy, found in runs.items():
        weighted = mean(one.weighted_s for one in found)
        rows.append(
            {
                "benchmark": "live: slower for a while",
                "against": policy,
                "value": weighted,
                "unit": "s, staleness by priority",
                "ratio": weighted / base,
                "simulated_ratio": simulated[policy] / simulated[DEFAULT],
                "in_target": mean(mean(one.in_target.values()) for one in found),
                "busy": mean(one.busy for one in found),
                "updates": mean(one.updates for one in found),
                "repeats": len(found),
            }
        )
    return rows


def _since(slow: Slowdown, shift_us: int) -> Slowdown:
    return replace(slow, start_us=slow.start_us + shift_us, end_us=slow.end_us + shift_us)


def _simulated(world: Any, policy: str, changes: Changes, stage: Stage) -> float:
    found = [
        weighted_s(
            Replay(world, policy, None, changes, seed, keep_log=True).run().log, stage.begin_us, stage.network.end_us
        )
        for seed in range(1, 6)
    ]
    return mean(found)


def _interleaved(stage: Stage, policies: tuple[str, ...]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {policy: [] for policy in policies}
    for number in range(ROUNDS):
        turn = number % len(policies)
        for policy in policies[turn:] + policies[:turn]:
            one = stage.run(policy)
            print(f"  {policy}: {one.weighted_s:.0f} s, {one.updates} updates, busy {one.busy:.0%}", flush=True)
            found[policy].append(one)
    return found
