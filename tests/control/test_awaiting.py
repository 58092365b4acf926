"""Queries that wait for partitions: these come first and alone, and whatever is wanted when, tables end up right."""

from __future__ import annotations

import traceback

import pytest

from penstock.control.controller import Controller
from penstock.control.events import FileArrived, RefreshRequested, UpdateFinished, UpdateStarted, WarehouseDeclared
from penstock.control.query_inputs import chain_of, to_refresh
from penstock.control.snapshot import dump, load
from penstock.model.grain import WHOLE
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, SECOND_US
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.waits import QueryWaits
from tests.control.replay import replay
from tests.control.scenarios import T0, Scenario, check_at_rest, check_reflects


class Queried(Scenario):
    """A random history in which queries ask for random partitions of random tables."""

    def turn(self) -> None:
        if self.rng.random() < 0.2:
            self.ask()
        super().turn()

    def ask(self) -> None:
        world, rng = self.world, self.rng
        wanted = []
        for name in rng.sample(list(world.graph.order), rng.randrange(1, len(world.graph.order) + 1)):
            grain = world.graph.tables[name].grain
            at = T0 + rng.randrange(-DAY_US, 3 * DAY_US)
            some = EVERYTHING if grain is WHOLE or rng.random() < 0.2 else PartitionSet.of(grain.hull(at, at + HOUR_US))
            wanted.append((name, some.intervals))
        until = world.now + rng.choice([0, SECOND_US, DAY_US])
        world.emit(RefreshRequested(world.tick(), "q", tuple(wanted), until))


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_tables_are_right_at_rest_whatever_is_wanted(first: int) -> None:
    failed = []
    for seed in range(first, first + 40):
        try:
            scenario = Queried(seed)
            scenario.run(60)
            scenario.settle()
            check_at_rest(scenario.world)
            check_reflects(scenario.world, scenario.rng)
            assert not replay(scenario.world.log)
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"seeds {[seed for seed, _ in failed]}\n{failed[0][1]}"


def test_what_a_query_waits_for_comes_first() -> None:
    """Two base tables with a file each; the one of priority 100 would be first, were the other not wanted."""
    tables = (Table("low", feed="f", priority=1.0), Table("high", feed="g", priority=100.0))
    controller = Controller()
    controller.apply(WarehouseDeclared(1, (Feed("f"), Feed("g")), tables, 1, "max-benefit"))
    for feed in "fg":
        controller.apply(FileArrived(2, feed, FeedFile(f"{feed}.csv", "x", 10, 2)))
    assert [command.job.table for command in controller.decide(3)] == ["high"]
    controller.apply(RefreshRequested(4, "q1", (("low", EVERYTHING.intervals),), 4 + SECOND_US))
    (command,) = controller.decide(5)
    assert command.job.table == "low"
    assert command.why.startswith("is what a query waits for")
    # Later than its deadline nobody waits any more: any event tells the time.
    controller.apply(FileArrived(5 + SECOND_US, "g", FeedFile("h.csv", "x", 10, 2)))
    assert [command.job.table for command in controller.decide(6 + SECOND_US)] == ["high"]


def test_a_want_outlives_an_update_that_cannot_fill_it() -> None:
    """`view` has older work when a file comes and a query asks for it. An update of `view` that starts before the file is loaded cannot have it,
    so the query still waits for the next; waiting for the one that runs would not be enough."""
    tables = (Table("base", feed="f"), Table("view", sources=(Source("base"),)))
    controller = Controller()
    state = controller.state
    controller.apply(WarehouseDeclared(1, (Feed("f"),), tables, 2, "max-benefit", "on-demand"))

    def start() -> list[Job]:
        commands = sorted(controller.decide(state.now_us + 1), key=lambda one: one.job.table)
        for command in commands:
            controller.apply(UpdateStarted(state.now_us + 1, command.job, command.track, command.why))
        return [command.job for command in commands]

    def finish(job: Job, snapshot: int) -> None:
        edge = state.now_us
        made = PublishedTable(job.table, snapshot, True, ((0, edge),), edge, edge, 0, 1, 1, 1)
        controller.apply(UpdateFinished(state.now_us + SECOND_US, job.id, job.table, (made,), 1.0))

    controller.apply(FileArrived(2, "f", FeedFile("1.csv", "x", 10, 2)))
    finish(*start(), 1)
    finish(*start(), 2)
    want = (("base", EVERYTHING.intervals), ("view", EVERYTHING.intervals))
    for number in (2, 3):
        at = state.now_us + 1
        controller.apply(FileArrived(at, "f", FeedFile(f"{number}.csv", "x", 10, at)))
        controller.apply(RefreshRequested(at, f"q{number}", want, at + DAY_US))
        if number == 2:
            finish(*start(), 3)
    first, second = start()
    assert (first.table, second.table) == ("base", "view")
    touched = {"view": EVERYTHING}
    steps = to_refresh(state, touched)
    # The load that runs is enough, and after it another update of `view`, not only the one that runs.
    assert chain_of(state, steps) == (("base", True), ("view", False))
    assert "view" in state.awaited
    finish(second, 4)
    finish(first, 5)
    assert [job.table for job in start()] == ["view"]
    steps = to_refresh(state, touched)
    assert chain_of(state, steps) == (("view", True),)
    assert "view" not in state.awaited


def test_wants_are_kept_in_snapshots_and_merge() -> None:
    wanted = QueryWaits()
    wanted.add("t", PartitionSet.of((0, 10)), 100)
    wanted.add("t", PartitionSet.of((5, 20)), 50)
    assert wanted.until("t", PartitionSet.of((0, 2))) == 100
    assert wanted.until("t", PartitionSet.of((4, 6))) == 50
    again = QueryWaits()
    again.load(wanted.dump())
    assert again == wanted and again.next_us == wanted.next_us
    assert wanted.expire(60) == ["t"]
    assert wanted.partitions("t") == PartitionSet.of((0, 5))
    wanted.started("t", EVERYTHING)
    assert not wanted and "t" not in wanted
    scenario = Queried(7)
    scenario.run(40)
    state = scenario.world.state
    assert load(dump(state)).awaited == state.awaited
