"""Every policy on random scenarios through the guard; memory that goes in and comes out, as JSON."""

from __future__ import annotations

import json
from random import Random

import pytest

from penstock.control.controller import Controller
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import FinishedJob, ReadyJob, ReadyJobs, Situation
from penstock.scheduling.policies import find_policy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Backfill, Outage, Scenario, Slowdown
from tests.sim.test_same_schedule import POLICIES, tree

ALL = (*POLICIES, "reserve", "reserve / patient / inherit=chain", "patient(patience=2) / chop=2")


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost(policy: str, seed: int) -> None:
    """Late data, outages, failures, a backfill, learned costs: the guard objects to nothing, no track is used twice, and
    when arrivals stop everything is brought up to date."""
    chance = Random(seed)
    tables = tree(chance, several_sources=True)
    base = [t.name for t in tables if t.is_base]
    stop = 1500.0
    scenario = Scenario(
        tuple(tables),
        tracks=chance.randint(1, 3),
        horizon_s=1_000_000,
        jitter=0.5,
        slowdown=Slowdown(3, 400),
        outages=(Outage(300, 500, base[0]), Outage(stop, 2_000_000)),
        backfills=(Backfill(700, base[-1], 0, 600),),
        failures=0.1,
        costs="learned",
        partition="1h" if chance.random() < 0 else "hour",
    )
    run = Simulation(scenario, find_policy(policy), seed, trace=True)
    while run.due(1_000_000 * SECOND_US):
        run.step()
    state = run.controller.state
    assert run.controller.idle and not state.busy
    for name, table in state.tables.items():
        assert not table.files and not table.needs, name
        if not table.table.is_base:
            assert table.edge_us == state.trailing_edge(name)
    free_at: dict[int, int] = {}
    writing: dict[str, int] = {}
    for start, name, track, took in run.trace:
        assert free_at.get(track, 0) <= start and writing.get(name, 0) <= start
        free_at[track] = writing[name] = start + took


@pytest.mark.parametrize("policy", ["random(seed=3)", "reserve", "random / reserve"])
def test_memory_is_plain_data(policy: str) -> None:
    """The same situation with memory that went through JSON gives the same decision."""
    found = find_policy(policy)
    ready = ReadyJobs(found.index, found.tie)
    for number in range(5):
        ready.put(ReadyJob(f"t{number}", 1, 1, number, 100, 50, 0, 0, 0.1, 1.0, 1.0))
    memory = {}
    for now in range(5):
        done = (FinishedJob("t0", 0, now, 1.0, 2.0),)
        at = Situation(now, ready, {}, (0, 1), 2, memory, done)
        again = Situation(now, ready, {}, (0, 1), 2, json.loads(json.dumps(dict(memory))), done)
        one, other = found.decide(at), found.decide(again)
        assert [s[:2] for s in one.starts] == [s[:2] for s in other.starts] and one.memory == other.memory
        memory = dict(one.memory)


def test_random_draws_all() -> None:
    policy = find_policy("random(seed=1)")
    ready = ReadyJobs(policy.index, policy.tie)
    for name in "abcd":
        ready.put(ReadyJob(name, 1, 1, 0, 100, 50, 0, 0, 0.1, 1.0, 1.0))
    memory, drawn = {}, []
    for now in range(4000):
        decision = policy.decide(Situation(now, ready, {}, (0,), 1, memory))
        memory = decision.memory
        drawn.append(decision.starts[0].table)
    assert all(900 < drawn.count(name) < 1100 for name in "abcd")


def test_the_controller_uses_the_policy_of_the_warehouse() -> None:
    run = Simulation(Scenario(tuple(tree(Random(1)))), find_policy("proportional(all) / edf"), 1)
    assert run.controller.policy.placement.all_tracks
    assert Controller().policy.chop is None
