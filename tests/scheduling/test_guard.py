"""What no policy may answer: the same guard refuses it in the controller, which is also the live one, and in the lean loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import Decision, PolicyError, ReadyJob, ReadyJobs, Situation, Start
from penstock.scheduling.policies import DEFAULT, find_policy
from penstock.scheduling.policies.index import Fifo
from penstock.scheduling.policies.patient import Patient
from penstock.scheduling.protocol import UpdatePolicy, powers
from penstock.sim import lean, runtime
from penstock.sim.outcome import Outcome
from penstock.sim.scenario import Scenario, SimTable

SCENARIO = Scenario(
    (
        SimTable("a", period_s=10, phase_s=5, alpha_s=3, beta=0.1),
        SimTable("b", period_s=10, phase_s=5, alpha_s=3, beta=0.1),
        SimTable("v", sources=("a", "b"), alpha_s=3, beta=0.1),
    ),
    tracks=2,
    horizon_s=200,
)
Loop = Callable[[Scenario, UpdatePolicy], Outcome]
LOOPS: dict[str, Loop] = {"controller": runtime.simulate, "lean": lean.simulate}


class Answers:
    """Decides what a function of the situation and its first ready table says."""

    def __init__(self, answer: Callable[[Situation, str], Any]) -> None:
        self.answer = answer

    def decide(self, situation: Situation) -> Any:
        return self.answer(situation, min(situation.ready))


def starts(*found: Any) -> Decision:
    return Decision(found)


WRONG: dict[str, tuple[Callable[[Situation, str], Any], str]] = {
    "nothing of it": (lambda s, t: starts(Start(t, 0, "", 0)), "take=0 of .*: at least 1"),
    "less than nothing": (lambda s, t: starts(Start(t, 0, "", -3)), "take=-3 of .*: at least 1"),
    "half a file": (lambda s, t: starts(Start(t, 0, "", 0.5)), "take=0.5 of .*: at least 1"),  # type: ignore[arg-type]
    "a truth": (lambda s, t: starts(Start(t, 0, "", True)), "take=True of .*: at least 1"),
    "in the past": (lambda s, t: Decision((), s.now_us - 1), "which is not later than now"),
    "now": (lambda s, t: Decision((), s.now_us), "which is not later than now"),
    "sometime": (lambda s, t: Decision((), float("nan")), "be woken at nan"),  # type: ignore[arg-type]
    "a table twice": (lambda s, t: starts(Start(t, 0), Start(t, 1)), "started a twice"),
    "a track twice": (lambda s, t: starts(*(Start(each, 0) for each in s.ready)), "track 0, which is not free"),
    "no such track": (lambda s, t: starts(Start(t, s.tracks)), "track 2, which is not free"),
    "no track": (lambda s, t: starts(Start(t, None)), "track None, which is not free"),  # type: ignore[arg-type]
    "what is not ready": (lambda s, t: starts(Start("v", 0)), "started v, which is not ready"),
    "no such table": (lambda s, t: starts(Start("x", 0)), "started x, which is not ready"),
    "no decision": (lambda s, t: None, "answered None; expected a Decision"),
    "a list": (lambda s, t: [Start(t, 0)], "expected a Decision"),
    "no starts": (lambda s, t: Decision(None), "expected a Decision"),  # type: ignore[arg-type]
    "names": (lambda s, t: starts(t), "answered .*; expected a Decision"),
    "a memory of things": (lambda s, t: Decision((), None, {"it": {1, 2}}), "which cannot be written down"),
    "no memory": (lambda s, t: Decision((), None, 7), "which cannot be written down"),  # type: ignore[arg-type]
    "an accident": (lambda s, t: s.ready["nobody"], r"the policy failed with KeyError: 'nobody' \(test_guard.py:\d+\)"),
    "an order that it has not": (lambda s, t: next(s.ready.ranked(s.now_us)), "no index"),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize(("answer", "message"), WRONG.values(), ids=WRONG)
def test_it_is_refused(loop: Loop, answer: Callable[[Situation, str], Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        loop(SCENARIO, Answers(answer))


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_an_index_that_is_no_number_is_refused(loop: Loop) -> None:
    class Lost(Fifo):
        def index(self, job: ReadyJob) -> tuple[float, float]:
            return float("nan"), 0.0

    with pytest.raises(PolicyError, match=r"index of .* is nan, 0.0; expected two numbers"):
        loop(SCENARIO, Lost())


POWERS: dict[str, tuple[dict[str, Any], str]] = {
    "a graph that it cannot read": (
        {"for_graph": lambda graph: graph.nothing},
        "failed with AttributeError: .*nothing",
    ),
    "nothing for a graph": ({"for_graph": lambda graph: None}, r"is None; expected one with decide\(situation\)"),
    "weights of some": ({"weights": {"a": 1.0}}, "weights say None of b; expected a number for each table"),
    "weights of words": ({"weights": {"a": "x", "b": 1, "v": 1}}, "weights say 'x' of a"),
    "weights in a row": ({"weights": [1, 2, 3]}, "weights say None of b"),
    "a chop of words": ({"chop": "x"}, "chop is 'x'; expected a number of periods above 0"),
    "a chop of nothing": ({"chop": 0}, "chop is 0; expected"),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize(("powers", "message"), POWERS.values(), ids=POWERS)
def test_what_it_says_of_itself_is_checked(loop: Loop, powers: dict[str, Any], message: str) -> None:
    policy = Answers(lambda s, t: Decision())
    vars(policy).update(powers)
    with pytest.raises(PolicyError, match=message):
        loop(SCENARIO, policy)


@pytest.mark.parametrize("fails", ["begin", "follow"])
def test_a_memory_that_cannot_follow_is_refused(fails: str) -> None:
    policy = Answers(lambda s, t: Decision((), None, s.memory))
    vars(policy).update({"begin": lambda tracks, outlook: {}, "follow": lambda memory, fact, outlook: None})
    vars(policy)[fails] = lambda *given: 1 / 0
    with pytest.raises(PolicyError, match="the policy failed with ZeroDivisionError"):
        runtime.simulate(SCENARIO, policy)


def test_a_reason_that_cannot_be_told_is_refused() -> None:
    for because in (lambda: 1 / 0, lambda: None, 7):
        policy = Answers(lambda s, t, because=because: starts(Start(t, s.free[0], because)))
        with pytest.raises(PolicyError, match=r"ZeroDivisionError|expected a sentence"):
            runtime.simulate(SCENARIO, policy)


def test_what_is_right_passes() -> None:
    policy = Answers(lambda s, t: Decision((Start(t, s.free[0], "", 1),), s.now_us + SECOND_US, {"last": t}))
    assert runtime.simulate(SCENARIO, policy).updates > 10


JOBS = [ReadyJob(name, 1, 1, 0, 10 * SECOND_US, 10 * SECOND_US, 0, 0, 0.1, 1.0, 1.0) for name in "abc"]


@pytest.mark.parametrize("ask", ["ranked", "best", "in_order"])
def test_without_an_index_there_is_no_order(ask: str) -> None:
    for jobs in ((), JOBS[:1], JOBS):
        ready = ReadyJobs()
        for job in jobs:
            ready.put(job)
        with pytest.raises(PolicyError, match=r"has no index\(job\) .*situation.ready.values\(\)"):
            getattr(ready, ask)(0)
        with pytest.raises(PolicyError, match="has no index"):
            next(ready.among(0, {}, lambda group: True))
        assert list(ready) == [job.table for job in jobs]


def test_lines_alone_are_an_order() -> None:
    ready = ReadyJobs(lines=lambda job, busy_since_us: ((0, -ord(job.table), 0.0),))
    for job in reversed(JOBS):
        ready.put(job)
    assert [job.table for _, job in ready.ranked(0)] == ["a", "b", "c"]


@pytest.mark.parametrize("policy", [DEFAULT, "patient", Patient()], ids=str)
def test_the_default_policy_leaves_its_situation_as_it_was(policy: str | UpdatePolicy) -> None:
    """Asked again about the same situation, or after another one, it says the same; and who asks for the order without
    saying since when the tracks are busy gets that of idle ones."""
    found = find_policy(policy) if isinstance(policy, str) else policy
    ready = powers(found).no_jobs()
    fresh, dear = 100 * SECOND_US, 600 * SECOND_US
    ready.put(ReadyJob("cheap", 1, 1, 1000 * SECOND_US, 1100 * SECOND_US, fresh, 0, 0, 0.1, 1.0, 2.0, start_up_s=1.0))
    ready.put(ReadyJob("dear", 1, 1, 450 * SECOND_US, 550 * SECOND_US, dear, 0, 0, 0.1, 1.0, 61.0, start_up_s=1.0))
    idle = Situation(1000 * SECOND_US, ready, {}, (0,), 1)
    busy = idle._replace(memory={"busy_since_us": -5000 * SECOND_US})
    plain = list(ready.ranked(idle.now_us))
    seen = [[start.table for start in found.decide(each).starts] for each in (idle, busy, idle, busy)]
    assert seen == [["cheap"], ["dear"], ["cheap"], ["dear"]]
    assert list(ready.ranked(idle.now_us)) == plain
    assert dict(busy.memory) == {"busy_since_us": -5000 * SECOND_US}


def test_a_policy_cannot_write_into_the_memory_of_the_state() -> None:
    def writes(situation: Situation, table: str) -> Decision:
        situation.memory["mine"] = 1  # type: ignore[index]
        return Decision()

    with pytest.raises(PolicyError, match="the policy failed with TypeError"):
        runtime.simulate(SCENARIO, Answers(writes))
