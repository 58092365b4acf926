"""Updates follow the demand of queries: hot tables first, cold ones less often, targets and waiting queries kept, nothing lost."""

from __future__ import annotations

import traceback
from dataclasses import replace
from functools import partial

import pytest

from penstock.control.controller import Controller
from penstock.control.events import (
    DemandSeen,
    FileArrived,
    PeriodsStretched,
    RefreshRequested,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.snapshot import dump, load
from penstock.control.views.explain import explain
from penstock.model.partitions import EVERYTHING
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import END_US, MINUTE_US, SECOND_US
from penstock.queries.demand import Modulator
from penstock.requests.job import FeedFile, PublishedTable
from tests.control import schedule_world
from tests.control.replay import replay
from tests.control.scenarios import Scenario, check_at_rest, check_reflects

S = SECOND_US


class World:
    """Two base tables, fed together, on one track; an update takes 8 of every 10 seconds."""

    def __init__(self, updates: str, *tables: Table, tracks: int = 1) -> None:
        self.now = 1_700_000_000 * S
        self.controller = Controller()
        feeds = (Feed("f", period_us=10 * S), Feed("g", period_us=10 * S))
        self.controller.apply(WarehouseDeclared(self.now, feeds, tables, tracks, "max-benefit", updates))  # type: ignore[arg-type]
        self.files = 0
        self.started: list[str] = []

    def file(self, feed: str) -> None:
        self.files += 1
        self.controller.apply(FileArrived(self.now, feed, FeedFile(f"{self.files}.csv", "x", 100, self.now)))

    def work(self, seconds: float) -> None:
        """Whatever there is to do now, one after the other."""
        while commands := self.controller.decide(self.now):
            command = commands[0]
            self.started.append(command.job.table)
            self.controller.apply(UpdateStarted(self.now, command.job, 0, command.why))
            self.now += int(seconds * S)
            table = command.job.table
            made = PublishedTable(table, self.files, True, complete_us=self.now)
            self.controller.apply(UpdateFinished(self.now, command.job.id, table, (made,), seconds))

    def rounds(self, count: int, **reads: int) -> list[str]:
        """Both feeds deliver every ten seconds, and queries read; what was started."""
        before = len(self.started)
        for _ in range(count):
            self.file("f")
            self.file("g")
            self.work(4.0)
            self.now += 2 * S
            self.controller.apply(DemandSeen(self.now, tuple(reads.items())))
        return self.started[before:]


BOTH = (Table("hot", feed="f"), Table("cold", feed="g"))


def test_what_is_read_comes_first_and_what_is_not_is_merged() -> None:
    world = World("demand", *BOTH)
    assert world.rounds(3) == ["cold", "hot"] * 3  # nobody asks: equal, in order of names
    started = world.rounds(30, hot=2000)
    assert started.count("hot") == 30
    # Of what nobody reads, updates start ten periods (100 s) apart; thirty rounds of 6 s are 180 s.
    assert started.count("cold") == 2
    state = world.controller.state
    assert (
        state.reading.modulation(state.tables["hot"]).priority_factor
        > 1
        > state.reading.modulation(state.tables["cold"]).priority_factor
    )
    waits = explain(state, "cold", world.now)
    assert (
        waits.demand is not None
        and "not read lately" in waits.demand
        and "what comes between is merged" in waits.demand
    )
    assert waits.waits == "it is read seldom, so its updates are merged" and waits.pending_files > 0
    assert "times an hour" in (explain(state, "hot", world.now).demand or "")
    # Nothing is lost: when its time comes, all files are loaded at once.
    pending = len(state.tables["cold"].files)
    wake = world.controller.wake_at_us
    assert pending > 1 and wake is not None
    world.now = wake
    world.work(4.0)
    assert not state.tables["cold"].files


def test_targets_are_kept() -> None:
    """A target of 20 s leaves no room for a gap of a period."""
    world = World("demand", BOTH[0], replace(BOTH[1], target_us=20 * S))
    world.rounds(3)
    assert world.rounds(10, hot=2000).count("cold") == 10


def test_a_priority_that_was_written_down_stays() -> None:
    world = World("demand", replace(BOTH[0], fixed=True), replace(BOTH[1], fixed=True))
    world.rounds(3)
    started = world.rounds(10, hot=50)
    assert started.count("cold") == 10
    state = world.controller.state
    assert {state.reading.modulation(state.tables[name]).priority_factor for name in ("hot", "cold")} == {1.0}


def test_a_track_is_kept_for_what_a_query_waits_for() -> None:
    """The view that a query waits for becomes ready when its source is loaded. Until then the other track stays free,
    though another table could run; but not longer than a period, and not if the query has given up."""
    view = Table("view", sources=(Source("hot"),))
    for deadline, wake in ((MINUTE_US, 10 * S), (3 * S, 3 * S + 1)):
        world = World("demand", *BOTH, view, tracks=2)
        world.rounds(2)
        world.file("f")
        want = (("hot", EVERYTHING.intervals), ("view", EVERYTHING.intervals))
        began = world.now
        world.controller.apply(RefreshRequested(began, "q", want, began + deadline))
        (command,) = world.controller.decide(world.now)
        assert command.job.table == "hot"
        world.controller.apply(UpdateStarted(world.now, command.job, 0, command.why))
        world.file("g")
        assert world.controller.decide(world.now) == [] and "cold" in world.controller.ready
        assert world.controller.wake_at_us == began + wake
        (other,) = world.controller.decide(began + wake)
        assert other.job.table == "cold"


def test_on_demand_waits_for_a_query() -> None:
    world = World("on-demand", *BOTH)
    assert sorted(world.rounds(5)) == ["cold", "hot"]  # once, to have something
    world.controller.apply(RefreshRequested(world.now, "q", (("cold", EVERYTHING.intervals),), world.now + MINUTE_US))
    world.work(1.0)
    assert world.started[-1] == "cold" and not world.controller.state.tables["cold"].files
    assert world.rounds(2, hot=9) == []
    assert explain(world.controller.state, "hot", world.now).waits == "it is updated when a query needs it"


def test_periods_that_a_policy_stretches() -> None:
    world = World("periods", *BOTH)
    assert world.rounds(3) == ["cold", "hot"] * 3
    world.controller.apply(PeriodsStretched(world.now, (("cold", 40 * S), ("gone", S))))
    # Rounds of ten seconds, of which updates take the eight they are given: a start of `cold` every 40 s at most.
    began = world.now
    started = world.rounds(12)
    assert started.count("hot") == 12 and 1 <= started.count("cold") <= (world.now - began) // (40 * S) + 1
    state = world.controller.state
    assert "at most every 40s" in (explain(state, "cold", world.now).demand or "")
    assert state.stretched == {"cold": 40 * S} == load(dump(state)).stretched
    # What a query waits for is not deferred; and a period that is no longer stretched is the old one.
    world.file("g")
    world.controller.apply(RefreshRequested(world.now, "q", (("cold", EVERYTHING.intervals),), world.now + MINUTE_US))
    world.work(1.0)
    assert world.started[-1] == "cold" and not state.tables["cold"].files
    world.controller.apply(PeriodsStretched(world.now, ()))
    assert world.rounds(2).count("cold") == 2
    # Never beyond a target, and not where the priority was written down.
    for other in (replace(BOTH[1], target_us=20 * S), replace(BOTH[1], fixed=True)):
        world = World("periods", BOTH[0], other)
        world.rounds(2)
        world.controller.apply(PeriodsStretched(world.now, (("cold", END_US),)))
        assert world.rounds(10).count("cold") >= 5


class Followed(Scenario):
    """A random history of a warehouse whose updates follow a random demand."""

    def turn(self) -> None:
        world, rng = self.world, self.rng
        if rng.random() < 0.1:
            reads = {name: rng.randrange(1, 50) for name in rng.sample(list(world.graph.order), 1)}
            world.emit(DemandSeen(world.tick(), tuple(reads.items())))
        super().turn()


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_tables_are_right_at_rest_whatever_is_read(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_world, "WarehouseDeclared", partial(WarehouseDeclared, updates="demand"))
    # As on a machine that has no time to spare.
    usual = Modulator.modulation
    monkeypatch.setattr(Modulator, "modulation", lambda self, *args: usual(self, *args[:4], 1.0))
    failed = []
    for seed in range(first, first + 40):
        try:
            scenario = Followed(seed, calm=seed % 2 == 0)
            scenario.run(60)
            scenario.settle()
            check_at_rest(scenario.world)
            check_reflects(scenario.world, scenario.rng)
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"seeds {[seed for seed, _ in failed]}\n{failed[0][1]}"


def test_decisions_with_demand_can_be_replayed() -> None:
    log = []
    world = World("demand", *BOTH)
    apply = world.controller.apply

    def logged(event, number=None):  # type: ignore[no-untyped-def]
        if isinstance(event, UpdateStarted):
            event = replace(event, decided_at=len(log))
        log.append((len(log) + 1, event))
        apply(event, len(log))

    world.controller.apply = logged  # type: ignore[method-assign]
    world.now += S
    logged(
        WarehouseDeclared(
            world.now, (Feed("f", period_us=10 * S), Feed("g", period_us=10 * S)), BOTH, 1, "max-benefit", "demand"
        )
    )
    world.rounds(20, hot=20)
    assert replay(log) == []
