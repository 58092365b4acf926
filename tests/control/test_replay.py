"""A recorded log gives the same decisions again, from its beginning and from any saved state."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.control.events import FileArrived, UpdateStarted
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.scheduling.jobs import Decision, Situation, Start
from penstock.scheduling.policies import find_policy
from penstock.scheduling.policies.index import MaxBenefit
from penstock.scheduling.protocol import UpdatePolicy
from tests.control.replay import replay
from tests.control.scenarios import Scenario


def recorded(seed: int, turns: int = 60) -> Scenario:
    scenario = Scenario(seed)
    scenario.run(turns)
    scenario.settle()
    return scenario


@pytest.mark.parametrize("seeds", [range(n, n + 25) for n in range(0, 150, 25)])
def test_the_same_log_gives_the_same_decisions(seeds: range) -> None:
    for seed in seeds:
        world = recorded(seed).world
        assert [str(difference) for difference in replay(world.log)] == [], f"seed {seed}"


@pytest.mark.parametrize("seeds", [range(n, n + 20) for n in range(0, 100, 20)])
def test_from_any_saved_state_too(seeds: range) -> None:
    for seed in seeds:
        world = recorded(seed, 40).world
        state = State()
        # A state between a decision and its record: the decision is older, so it is not compared.
        for number in sorted(world.rng.sample(range(len(world.log)), min(4, len(world.log)))):
            state.fold(world.log[state.applied : number])
            saved = load(json.loads(json.dumps(dump(state))))
            assert replay(world.log[number:], state=saved) == [], f"seed {seed} from event {number}"


class Alternating(MaxBenefit):
    """A policy that remembers: every other decision is by name. It also waits for company, so that many of its
    decisions start nothing and are not on record."""

    def decide(self, situation: Situation) -> Decision:
        turn = int(situation.memory.get("turn", 0)) + 1 + len(situation.finished)
        names = sorted(name for name, job in situation.ready.items() if not job.upkeep)
        if not names or (len(names) < 2 and situation.running):
            return Decision(memory={"turn": turn})
        name = names[0] if turn % 2 else names[-1]
        return Decision((Start(name, situation.free[0], f"it is turn {turn}"),), memory={"turn": turn})


@pytest.mark.parametrize("policy", [Alternating(), find_policy("random / reserve(forget=0.5)")])
@pytest.mark.parametrize("seeds", [range(n, n + 15) for n in range(0, 45, 15)])
def test_policies_that_remember_replay_too(seeds: range, policy: UpdatePolicy) -> None:
    """Also from any saved state: what they remember is in it."""
    remembered = 0
    for seed in seeds:
        scenario = Scenario(seed, policy=policy)
        scenario.run(60)
        scenario.settle()
        log = scenario.world.log
        assert [str(d) for d in replay(log, policy)] == [], f"seed {seed}"
        cut = scenario.rng.randrange(len(log))
        saved = load(json.loads(json.dumps(dump(State().fold(log[:cut])))))
        assert [str(d) for d in replay(log[cut:], policy, saved)] == [], f"seed {seed} from event {cut}"
        remembered += bool(saved.memory)
    assert remembered > 5


def busy_log(seed: int = 11) -> tuple[list, int]:
    """A log, and the position in it of a start that was one of several things to do."""
    for candidate in range(seed, seed + 100):
        log = recorded(candidate).world.log
        starts = [at for at, (_, event) in enumerate(log) if isinstance(event, UpdateStarted)]
        if len(starts) > 8:
            return log, starts[len(starts) // 2]
    raise AssertionError("no such log")


def test_another_reason_is_a_difference() -> None:
    log, at = busy_log()
    number, event = log[at]
    log[at] = (number, replace(event, why="because"))
    (found,) = replay(log)
    assert found.decided_at == event.decided_at and found.at_us == event.at_us
    assert [choice.why for choice in found.recorded if choice.job.id == event.job.id] == ["because"]
    assert event.why in [choice.why for choice in found.decided]
    assert str(found).startswith(f"after event {event.decided_at}: recorded")


def test_another_track_or_work_is_a_difference() -> None:
    log, at = busy_log()
    number, event = log[at]
    for changed in (replace(event, track=event.track + 7), replace(event, job=replace(event.job, amount=-1.0))):
        again = [*log[:at], (number, changed), *log[at + 1 :]]
        assert replay(again)[0].decided_at == event.decided_at


def test_a_file_that_the_record_does_not_know_of_is_a_difference() -> None:
    log, _ = busy_log()
    at = next(n for n, (_, event) in enumerate(log) if isinstance(event, FileArrived))
    number, event = log[at]
    log[at] = (number, replace(event, file=replace(event.file, size_bytes=10**9)))
    assert replay(log)


def test_an_empty_log_is_as_it_was() -> None:
    assert replay([]) == []
