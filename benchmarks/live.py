"""Policies on the live demo warehouse: the same feeds on Spark, first with a machine that is slower for a while, then with
two feeds that are cut for a while. What counts is staleness by priority, as a ratio to the default policy of the same run.

Runs are interleaved, in one warm Spark session, and begin alike (see `livedemo`); the order changes from round to round.
Beside each ratio stands what the simulator says of the same arrivals, with the costs learned before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.livedemo import Run, Stage, weighted_s
from penstock.cli.netops.feeds import DemoFile, Incident, Network, Scale, _csv
from penstock.control.state import State
from penstock.control.views.recovery import recoveries
from penstock.declare.config import RunConfig
from penstock.engine.spark.session import start_spark
from penstock.model.cost import CostModel
from penstock.model.time import MINUTE_US, SECOND_US, moment, parse_instant
from penstock.scheduling.jobs import Decision, Situation
from penstock.scheduling.policies import register
from penstock.scheduling.policies.index import Fifo
from penstock.sim.whatif.recording import Recording, record
from penstock.sim.whatif.replay import Changes, Replay, SlowPeriod

# Of each run. After half as long the policies have hardly parted: the first files find every track free.
SECONDS = float(os.environ.get("PENSTOCK_LIVE_SECONDS", "80"))
ROUNDS = int(os.environ.get("PENSTOCK_LIVE_ROUNDS", "3"))
PARTS = os.environ.get("PENSTOCK_LIVE_PARTS", "slow,cut").split(",")
# Before them: the history is loaded, costs are learned, and the JVM compiles what is run often. That takes two minutes.
WARM_S = float(os.environ.get("PENSTOCK_LIVE_WARM", "120"))
# Times real time: so that one update for each file would keep most of the tracks busy, and more than all of them while the
# machine is slower.
SPEED = float(os.environ.get("PENSTOCK_LIVE_SPEED", "25"))
SLOWER, SLOW_FROM, SLOW_TO = 2.5, 0.15, 0.65
# Slower than the runs above: an outage is one after three periods.
CUT_SPEED = float(os.environ.get("PENSTOCK_LIVE_CUT_SPEED", "10"))
CUT_SECONDS = 0.75 * SECONDS
CUT_FROM, CUT_TO = 0.05, 0.6
DEFAULT = RunConfig().policy
IMMEDIATE = "immediate"
ORIGIN_US = parse_instant("2026-03-02 23:20")
# As often as the other feeds: a file every ten seconds for each of which something runs is more than two cores can do.
SCALE = Scale(alert_every_s=60)
ALERTS = {'period = "10s"': 'period = "1m"'}
SYSLOG = {'period = "5m"': 'period = "1m"'}
CUT = ("router_stats", "syslog")
HEALTHY = ("alerts", "critical_alerts", "alerts_hourly")


@register(IMMEDIATE)
class Immediate:
    """What a trigger for every file does: each is loaded by itself, and what follows from it comes in order of arrival. (Kinder than
    a queue of triggers: what waits for the same derived table is still one update.)"""

    def __init__(self) -> None:
        self._order = Fifo()
        self.index = self._order.index

    def decide(self, situation: Situation) -> Decision:
        found = self._order.decide(situation)
        return found._replace(starts=tuple(start._replace(take=1) for start in found.starts))


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark("live", Path(folder), {})
        try:
            if "slow" in PARTS:
                rows += _slower_for_a_while(spark, Path(folder) / "slow")
            if "cut" in PARTS:
                rows += _two_feeds_cut(spark, Path(folder) / "cut")
        finally:
            spark.stop()
    return rows


def _moment(speed: float, seconds: float) -> int:
    """A moment of the runs, from the beginning of the network's time."""
    return int((WARM_S + seconds) * speed * SECOND_US)


def _interleaved(stage: Stage, policies: tuple[str, ...], rounds: int) -> dict[str, list[Run]]:
    """There and back, so that a machine which gets faster or slower all the time favours nobody."""
    found: dict[str, list[Run]] = {policy: [] for policy in policies}
    for number in range(rounds):
        for policy in policies if number % 2 == 0 else reversed(policies):
            one = stage.run(policy)
            print(f"  {_label(policy)}: {one.weighted_s:.0f} s, {one.updates} updates, busy {one.busy:.0%}", flush=True)
            found[policy].append(one)
    return found


def _label(policy: str) -> str:
    return "default" if policy == DEFAULT else policy


def _row(name: str, policy: str, runs: list[Run], base: list[Run]) -> dict[str, Any]:
    weighted = mean(one.weighted_s for one in runs)
    return {
        "benchmark": name,
        "policy": _label(policy),
        "staleness_s": weighted,
        "ratio": weighted / mean(one.weighted_s for one in base),
        "in_target": mean(mean(one.in_target.values()) for one in runs),
        "busy": mean(one.busy for one in runs),
        "updates": mean(one.updates for one in runs),
        "repeats": len(runs),
    }


# A machine that is slower for a while


def _slower_for_a_while(spark: SparkSession, folder: Path) -> list[dict[str, object]]:
    network = Network(ORIGIN_US, _moment(SPEED, SECONDS), scale=SCALE)
    slow = SlowPeriod(_moment(SPEED, SECONDS * SLOW_FROM), _moment(SPEED, SECONDS * SLOW_TO), SLOWER)
    stage = Stage(spark, folder, network, SPEED, WARM_S, ALERTS, Changes(slowdowns=(slow,)))
    stage.prepare(DEFAULT)
    before = record(enumerate(stage.log()[0], 1))
    runs = _interleaved(stage, (DEFAULT, IMMEDIATE, "fifo"), ROUNDS)
    world = _world(stage, before, runs[DEFAULT][0])
    simulated = {policy: _simulated(world, stage, policy) for policy in runs}
    # What is left if updates took no time: nobody can do anything about it.
    at_once = _simulated(_at_once(world), stage, "fifo")
    waits = {policy: mean(one.weighted_s for one in found) - at_once for policy, found in runs.items()}
    return [
        {
            **_row("slower for a while", policy, found, runs[DEFAULT]),
            "simulated_ratio": simulated[policy] / simulated[DEFAULT],
            "waiting_ratio": waits[policy] / waits[DEFAULT],
            "simulated_waiting_ratio": (simulated[policy] - at_once) / (simulated[DEFAULT] - at_once),
        }
        for policy, found in runs.items()
    ]


def _world(stage: Stage, before: Recording, run: Run) -> Recording:
    """The arrivals of a run, with costs as they were known before."""
    found = record(enumerate(run.events, 1))
    # Without the first updates of each table, which were those of a cold machine.
    luck = {name: ratios[len(ratios) // 2 :] for name, ratios in before.luck.items()}
    return replace(found, costs=before.costs, luck=luck, crowding=before.crowding, output=before.output)


def _at_once(world: Recording) -> Recording:
    return replace(world, costs={name: CostModel(weight=1.0, alpha_s=0.001) for name in world.costs}, luck={})


def _simulated(world: Recording, stage: Stage, policy: str) -> float:
    """Staleness by priority as the simulator finds it."""
    shift = stage.network.origin_us - world.start_us
    slow = [replace(one, start_us=one.start_us + shift, end_us=one.end_us + shift) for one in stage.changes.slowdowns]
    # Before the run everything takes no time: all policies begin with the same tables.
    before = SlowPeriod(0, stage.begin_us - world.start_us, 0.001)
    changes = Changes(slowdowns=(before, *slow))
    return mean(
        weighted_s(Replay(world, policy, None, changes, seed, keep_log=True).run().log, *stage.span)
        for seed in range(1, 6)
    )


# Two feeds that are cut for a while


class CutNetwork(Network):
    """Two feeds deliver nothing for a while, then everything at once; all others are well."""

    def __init__(self, origin_us: int, duration_us: int, cut: tuple[int, int]) -> None:
        super().__init__(origin_us, duration_us, scale=SCALE)
        self.outage = Incident(self.end_us, self.end_us, "")
        self.cut_us = cut[0] + origin_us, cut[1] + origin_us

    def _syslog(self) -> Iterator[DemoFile]:
        """As often as the others."""
        for start in range(self.origin_us, self.end_us - MINUTE_US + 1, MINUTE_US):
            stamp = moment(start).strftime("%Y%m%dT%H%M%S")
            rows = self._syslog_rows(start, MINUTE_US, self.scale.syslog_lines // 5)
            yield DemoFile(start + MINUTE_US, "syslog", f"syslog-{stamp}.csv", _csv(rows), len(rows))

    def deliveries(self) -> list[DemoFile]:
        start, end = self.cut_us
        found = [
            replace(one, due_us=end) if one.feed in CUT and start <= one.due_us < end else one
            for one in super().deliveries()
        ]
        return sorted(found, key=lambda one: (one.due_us, one.feed, one.name, one.kind))


@dataclass(frozen=True)
class Recovered:
    """How long after the feeds came back their tables had caught up, and by when that was proven; on the demo's clock."""

    slowest_s: float
    # Of tables of which it is proven: the largest part of the proven time that it took.
    of_proven: float | None
    all_recovered: bool


def _two_feeds_cut(spark: SparkSession, folder: Path) -> list[dict[str, object]]:
    cut = _moment(CUT_SPEED, CUT_SECONDS * CUT_FROM), _moment(CUT_SPEED, CUT_SECONDS * CUT_TO)
    network = CutNetwork(ORIGIN_US, _moment(CUT_SPEED, CUT_SECONDS), cut)
    stage = Stage(spark, folder, network, CUT_SPEED, WARM_S, ALERTS | SYSLOG)
    stage.prepare(DEFAULT)
    runs = _interleaved(stage, ("adaptive", DEFAULT, "fifo"), ROUNDS)
    rows: list[dict[str, object]] = []
    for policy, found in runs.items():
        recovered = [_recovered(one) for one in found]
        shares = [one.of_proven for one in recovered if one.of_proven is not None]
        # In each round something is to be proven, and held.
        held = max(shares) if len(shares) == len(recovered) else inf
        judged = {"value": held, "unit": "of the proven time", "limit": 1.0} if policy == "adaptive" else {}
        rows.append(
            {
                **_row("two feeds cut", policy, found, runs["adaptive"]),
                "healthy_in_target": mean(mean(one.in_target[name] for name in HEALTHY) for one in found),
                "healthy_worst": max(one.worst_s(name) for one in found for name in HEALTHY),
                "recovered_after_s": mean(one.slowest_s for one in recovered),
                "of_proven": max(shares) if shares else None,
                "all_recovered": all(one.all_recovered for one in recovered),
                **judged,
            }
        )
    return rows


def _recovered(run: Run) -> Recovered:
    """From the log: which tables recover, when each is done, and what was proven when it began."""
    state = State()
    began: dict[str, int] = {}
    done: dict[str, int] = {}
    latest: dict[str, int] = {}
    for number, event in enumerate(run.events, 1):
        state.apply(event, number)
        if event.at_us < run.begin_us:
            continue
        for name, cause in state.recovering.items():
            began[name] = cause.since_us
            done.pop(name, None)
        for name in began.keys() - state.recovering.keys() - done.keys():
            done[name] = event.at_us
        if event.kind == "feed-came-back":
            latest |= {one.table: one.latest_end_us for one in recoveries(state) if one.latest_end_us is not None}
    parts = [(done[name] - began[name]) / (latest[name] - began[name]) for name in latest if name in done]
    ends = [done.get(name, run.end_us) - since for name, since in began.items()]
    return Recovered(max(ends, default=0) / SECOND_US, max(parts, default=None), began.keys() <= done.keys())
