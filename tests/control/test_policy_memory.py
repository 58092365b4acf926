"""What a policy learned is on record with what it started: it survives a restart, and failures count in it, but less."""

from __future__ import annotations

import json

import pytest

from penstock.control.controller import Controller
from penstock.control.events import Event, FileArrived, RunStarted, UpdateFailed, UpdateFinished, WarehouseDeclared
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.model.cost import CostModel
from penstock.model.tables import Feed, Table
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US
from penstock.requests.job import FeedFile, PublishedTable
from penstock.scheduling.jobs import Decision, FinishedJob, PolicyError, ReadyJob, Situation, Start
from penstock.scheduling.policies import find_policy
from penstock.scheduling.protocol import powers
from penstock.store.schema import decode, encode

T0 = 1_709_251_200_000_000
FEEDS = (Feed("fast", MINUTE_US), Feed("slow", HOUR_US))
TABLES = (Table("fast", "hour", feed="fast"), Table("slow", "day", feed="slow"))


class Life:
    """A warehouse with a table of short updates and one of long ones, on two tracks, through a log of texts."""

    def __init__(self, policy: str = "reserve") -> None:
        self.log: list[str] = []
        self.controller = Controller()
        self.now = T0
        self.policy = policy
        self.begin()

    def begin(self, policy: str | None = None) -> None:
        self.policy = policy or self.policy
        self.tell(RunStarted(self.now, "one"), WarehouseDeclared(self.now, FEEDS, TABLES, 2, self.policy))

    def tell(self, *events: Event) -> None:
        for event in events:
            self.log.append(encode(event))
            self.controller.apply(decode(self.log[-1]), len(self.log))

    def update(self, table: str, took_s: float, *, fails: bool = False) -> None:
        """A file comes, is loaded, and that takes so long or fails after so long."""
        file = FeedFile(f"{table}/{len(self.log)}", "1", 1000, self.now)
        self.tell(FileArrived(self.now, table, file))
        self.now += 400 * SECOND_US  # until whatever failed before may be tried again
        at = self.controller.state.applied
        commands = self.controller.decide(self.now)
        self.tell(*(command.started(at) for command in commands))
        for number, command in enumerate(commands):
            job = command.job
            self.now += round(took_s * SECOND_US)
            if fails:
                self.tell(UpdateFailed(self.now, job.id, job.table, "no luck", took_s))
            else:
                done = PublishedTable(
                    job.table, len(self.log) + number, True, ((T0, T0 + 1),), self.now, self.now - 1, T0
                )
                self.tell(UpdateFinished(self.now, job.id, job.table, (done,), took_s))

    def restart(self, *, saved: bool) -> None:
        events = [(number, decode(text)) for number, text in enumerate(self.log, 1)]
        if saved:
            state = load(json.loads(json.dumps(dump(self.controller.state))))
        else:
            state = State().fold(events)
        self.controller = Controller(state)
        self.begin()


def learned() -> Life:
    life = Life()
    for _ in range(5):
        life.update("slow", 200)
        life.update("fast", 1)
    for _ in range(5):
        life.update("fast", 3)
    return life


@pytest.mark.parametrize("saved", [True, False])
def test_what_was_learned_survives_a_restart(saved: bool) -> None:
    life = learned()
    before, unseen = dict(life.controller.state.memory), dict(life.controller.state.unseen)
    assert before["slowness"] > 1.05 and len(unseen) == 1
    life.restart(saved=saved)
    assert life.controller.state.memory == before and life.controller.state.unseen == unseen
    life.update("fast", 3)
    assert life.controller.state.memory["slowness"] > before["slowness"]


def test_another_policy_begins_anew() -> None:
    life = learned()
    life.begin("reserve / max-benefit")
    assert life.controller.state.memory == {}


def test_what_ended_after_a_decision_and_before_its_record_is_not_forgotten() -> None:
    life = Life()
    life.update("fast", 1)
    life.update("fast", 1)
    life.tell(FileArrived(life.now, "fast", FeedFile("fast/a", "1", 1000, life.now)))
    at = life.controller.state.applied
    (first,) = life.controller.decide(life.now)
    life.tell(first.started(at))
    life.tell(FileArrived(life.now, "slow", FeedFile("slow/a", "1", 1000, life.now)))
    at = life.controller.state.applied
    (second,) = life.controller.decide(life.now)
    # The load of `fast` ends in another thread before the start of `slow` is written down.
    done = PublishedTable("fast", 9, True, ((T0, T0 + 1),), life.now, life.now - 1, T0)
    life.tell(UpdateFinished(life.now, first.job.id, "fast", (done,), 7.0), second.started(at))
    assert [end.took_s for end in life.controller.state.unseen.values()] == [7.0]


class Remembers:
    def __init__(self, memory: dict) -> None:
        self.memory = memory

    def decide(self, situation: Situation) -> Decision:
        (name,) = situation.ready
        return Decision((Start(name, 0, "it is there"),), None, self.memory)


@pytest.mark.parametrize("memory", [{"a": (1, 2)}, {"a": float("nan")}, {"a": {1: 2}}, {"a": object()}, {1: 2}])
def test_what_could_not_be_written_down_is_refused(memory: dict) -> None:
    controller = Controller(policy=Remembers(memory))
    controller.apply(WarehouseDeclared(T0, FEEDS, TABLES, 2, "mine"))
    controller.apply(FileArrived(T0, "fast", FeedFile("fast/1", "1", 1000, T0)))
    with pytest.raises(PolicyError, match="which cannot be written down; expected numbers"):
        controller.decide(T0)


def test_plain_values_are_accepted() -> None:
    controller = Controller(policy=Remembers({"a": [1, 2.5, None, {"b": "c", "d": True}]}))
    controller.apply(WarehouseDeclared(T0, FEEDS, TABLES, 2, "mine"))
    controller.apply(FileArrived(T0, "fast", FeedFile("fast/1", "1", 1000, T0)))
    (command,) = controller.decide(T0)
    assert decode(encode(command.started(2))) == command.started(2)


# Failures


def test_policies_see_failures() -> None:
    life = Life()
    life.update("fast", 1)
    life.update("fast", 40, fails=True)
    (end,) = life.controller.state.unseen.values()
    assert (end.table, end.failed, end.took_s) == ("fast", True, 40)


@pytest.mark.parametrize(
    ("took_s", "slowness"),
    [
        (0.1, 1.5),  # it failed at once: that says nothing of how fast the machine is
        (2.0, 0.9 * 1.5 + 0.1 * 2.0),  # it would have taken longer than 1.5 of its time, at least 2
        (60.0, 0.9 * 1.5 + 0.1 * 3.0),  # a time-out: it counts as twice 1.5, no more
    ],
)
def test_a_failure_counts_less_than_an_update(took_s: float, slowness: float) -> None:
    policy = find_policy("reserve").for_graph(Life().controller.state.graph)
    ready = powers(policy).no_jobs()
    ready.put(ReadyJob("fast", 1, 1, 0, 60, 60, 0, 0, 0.1, 1.0, 1.0))
    failed = FinishedJob("fast", 0, 0, 1.0, took_s, True)

    class Costs:
        version = 1

        def period_cost_s(self, table: str) -> float:
            return {"fast": 1.0, "slow": 200.0}[table]

    found = policy.decide(Situation(100, ready, {}, (0, 1), 2, {"slowness": 1.5}, (failed,), Costs()))
    assert found.memory["slowness"] == pytest.approx(slowness)


def test_a_cost_is_learned_from_a_failure_only_if_it_took_long() -> None:
    cost = CostModel()
    for _ in range(10):
        cost.observe(100, 10.0)
    cost.observe_failure(100, 2.0)
    assert cost.expected_s(100) == pytest.approx(10.0)
    cost.spread_s = 1.0
    cost.observe_failure(100, 60.0)  # an outlier counts as three times the usual deviation
    assert 10.0 < cost.expected_s(100) < 10.0 + 3.0 / 5
