"""A long backfill: it is finished, and hardly anybody else notices."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest

from penstock.control.events import UpdateStarted
from penstock.scheduling.policies import DEFAULT, find_policy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Redelivery, Scenario, SimTable


def campaign(backfill: bool) -> Scenario:
    short = [SimTable(f"short{n}", period_s=60, priority=5, alpha_s=1, beta=0.05) for n in range(6)]
    history = [
        SimTable("orders", period_s=300, alpha_s=1, beta=0.02),
        SimTable("hourly", ("orders",), alpha_s=1, beta=0.05),
        SimTable("report", ("hourly",), alpha_s=1, beta=0.05),
    ]
    # Eight hours come again: half an hour of work for each of the two views, where a short table waits a minute.
    campaigns = (Redelivery(30_000, "orders", 0, 29_000),) if backfill else ()
    return Scenario((*short, *history), tracks=2, horizon_s=40_000, jitter=0.3, backfills=campaigns, partition="hour")


def run(policy: str, *, backfill: bool) -> tuple[Simulation, float, float]:
    simulation = Simulation(campaign(backfill), find_policy(policy), 1, trace=True)
    stale = simulation.run().staleness_s
    return simulation, sum(stale[f"short{n}"] for n in range(6)) / 6, stale["hourly"] + stale["report"]


def test_a_backfill_starves_nobody_and_is_not_starved() -> None:
    _, short, views = run(DEFAULT, backfill=False)
    simulation, short_beside, views_beside = run(DEFAULT, backfill=True)
    assert not any(table.needs for table in simulation.controller.state.tables.values())
    began = min(at for at, name, _, _ in simulation.trace if name == "hourly" and at >= 30_000 * 10**6)
    again = [(at, took) for at, name, _, took in simulation.trace if name in ("hourly", "report") and took > 80 * 10**6]
    # What is expected to take a minute, the shortest period, may take up to 30 % longer.
    # All of it within a quarter more than the time that the work takes on one track.
    assert max(at + took for at, took in again) - began < 1.25 * sum(took for _, took in again)
    assert short_beside < 1.06 * short
    assert views_beside < 1.12 * views
    # Hardly ever more than one track of the two: only if a job turns out longer than expected.
    spans = sorted((at, at + took) for at, took in again)
    both = sum(max(0, end - start) for (_, end), (start, _) in pairwise(spans))
    assert both < 0.2 * sum(took for _, took in again)


def test_nor_where_costs_are_learned_from_updates_that_are_all_alike() -> None:
    """Nothing but the backfill itself shows what so much more data cost: until then it is guessed."""
    mean = {}
    for backfill in (False, True):
        simulation = Simulation(replace(campaign(backfill), costs="learned"), find_policy(DEFAULT), 1, trace=True)
        stale = simulation.run().staleness_s
        mean[backfill] = sum(stale[f"short{n}"] for n in range(6)) / 6
        assert not any(table.needs for table in simulation.controller.state.tables.values())
    assert mean[True] < 1.15 * mean[False]
    assert max(took for _, name, _, took in simulation.trace if name == "hourly") < 600 * 10**6  # of 1,450 s in all


@pytest.mark.parametrize("costs", ["known", "learned"])
def test_nor_where_the_views_are_a_group(costs: Literal["known", "learned"]) -> None:
    """Three views that are one job, made again for eight hours: it is cut as a table's would be."""
    mean = {}
    for backfill in (False, True):
        plain = campaign(backfill)
        views = tuple(SimTable(name, ("orders",), alpha_s=1, beta=0.03, group="g") for name in ("u", "v", "w"))
        scenario = replace(plain, tables=(*plain.tables[:-2], *views), costs=costs)
        simulation = Simulation(scenario, find_policy(DEFAULT), 1, trace=True)
        stale = simulation.run().staleness_s
        mean[backfill] = sum(stale[f"short{n}"] for n in range(6)) / 6
        assert not any(table.needs for table in simulation.controller.state.tables.values())
    assert mean[True] < 1.15 * mean[False]
    assert max(took for _, name, _, took in simulation.trace if name in "uvw") < 600 * 10**6  # of 1,740 s in all


def test_without_chopping_its_own_views_would_wait_for_it() -> None:
    _, _, views = run("max-benefit", backfill=False)
    _, _, views_beside = run("max-benefit", backfill=True)
    assert views_beside > 1.3 * views


@pytest.mark.parametrize("policy", ["max-benefit", "fifo", "reserve / patient", DEFAULT])
def test_every_policy_finishes_it(policy: str) -> None:
    simulation, _, _ = run(policy, backfill=True)
    assert not any(table.needs for table in simulation.controller.state.tables.values())


@pytest.mark.parametrize("known", [True, False])
def test_known_times_are_waited_for(known: bool) -> None:
    """Old hours of `a` come again at 1:00, the same of `b` at 2:00; `both` and `report` make them once if that is known."""
    hour = 3600.0
    scenario = Scenario(
        (
            SimTable("a", period_s=600, restated="01:00" if known else ""),
            SimTable("b", period_s=600, restated="02:00" if known else ""),
            SimTable("both", ("a", "b")),
            SimTable("report", ("both",)),
        ),
        horizon_s=3 * hour,
        backfills=(Redelivery(hour + 5, "a", 0, 600), Redelivery(2 * hour + 5, "b", 0, 600)),
        partition="30m",
    )
    simulation = Simulation(scenario, find_policy(DEFAULT), 1, keep_log=True)
    simulation.run()
    assert simulation.log is not None
    again = [
        (event.job.table, event.at_us / 3_600_000_000)
        for event in simulation.log
        if isinstance(event, UpdateStarted) and any(piece.need.late for piece in event.job.pieces)
    ]
    made = {name: [at for table, at in again if table == name] for name in ("both", "report")}
    assert [len(found) for found in made.values()] == ([1, 1] if known else [2, 2])
    assert not known or all(at >= 2 for found in made.values() for at in found)
    assert not any(table.needs for table in simulation.controller.state.tables.values())
