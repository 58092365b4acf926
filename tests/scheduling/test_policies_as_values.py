"""Policies are values: memory goes in and comes out, as JSON."""

from __future__ import annotations

import json
from random import Random

import pytest

from penstock.control.controller import Controller
from penstock.scheduling.jobs import FinishedJob, ReadyJob, ReadyJobs, Situation
from penstock.scheduling.policies import find_policy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Scenario
from tests.sim.test_same_schedule import tree


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
