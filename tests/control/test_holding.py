"""Late work that waits on purpose: for what, until when, and when not."""

from __future__ import annotations

from random import Random

from penstock.control.events import BackfillRequested, Job, UpdateStarted
from penstock.control.explain import explain
from penstock.control.replay import replay
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, MINUTE_US, SECOND_US
from tests.control.schedule_world import World


def warehouse(patience_us: int, target_us: int | None = None) -> list[Table]:
    """Two feeds by day; `both` is made from both, `last` from that."""
    return [
        Table("a", "day", feed="fa", logic="x"),
        Table("b", "day", feed="fb", logic="x"),
        Table("b2", "day", sources=(Source("b", (0, 1)),), logic="x"),
        Table("both", "day", sources=(Source("a", (0, 1)), Source("b2", (0, 1))), logic="x", patience_us=patience_us),
        Table("last", "day", sources=(Source("both", (0, 1)),), logic="x", target_us=target_us),
    ]


def settled(patience_us: int, target_us: int | None = None) -> tuple[World, int]:
    """A world in which some days are loaded and everything is made; the first day."""
    world = World(Random(1), [Feed("fa"), Feed("fb")], warehouse(patience_us, target_us), tracks=4)
    first = world.now // DAY_US * DAY_US - 5 * DAY_US
    for feed in ("fa", "fb"):
        world.deliver(feed, world.new_rows([first + n * DAY_US for n in range(4)]))
    run(world)
    return world, first


def each_takes_a_second(world: World) -> None:
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.1, 1.0, 0.0


def run(world: World, *, wake: bool = True) -> list[str]:
    """Until nothing is left to do; the tables in the order in which they were updated."""
    done = []
    while True:
        for start in world.decide():
            world.start(start)
        if world.running:
            identity = next(iter(world.running))
            done.append(world.running[identity][0].table)
            world.finish(identity)
        elif wake and (at := world.controller.wake_at_us) is not None and at > world.now:
            world.now = at
        else:
            return done


def late_changes(world: World, first: int) -> None:
    """An old day of `a` comes anew; when `both` could follow, the same day of `b` is on its way, newer."""
    world.emit(BackfillRequested(world.tick(), "a", ((first, first + DAY_US),)))
    for start in world.decide():
        world.start(start)
    world.finish(next(iter(world.running)))
    world.emit(BackfillRequested(world.tick(), "b", ((first, first + DAY_US),)))


def test_without_patience_it_is_made_twice() -> None:
    world, first = settled(patience_us=0)
    late_changes(world, first)
    (start,) = [start for start in world.decide() if start.job.table == "both"]
    assert start.job.pieces
    assert world.controller.wake_at_us is None


def test_with_patience_it_waits_and_is_made_once() -> None:
    world, first = settled(patience_us=10 * MINUTE_US)
    asked_us = world.now
    late_changes(world, first)
    starts = world.decide()
    assert [start.job.table for start in starts] == ["b"]
    assert not world.controller.idle
    told = explain(world.state, "both").waits
    assert (
        told is not None
        and told.startswith("it waits until 2024-03-01 00:")
        and told.endswith("for a newer change that comes through b: saves 2 updates, no target at risk")
    )
    until = world.controller.wake_at_us
    assert until is not None and asked_us + 10 * MINUTE_US <= until <= world.now + 10 * MINUTE_US
    for start in starts:
        world.start(start)
    assert run(world) == ["b", "b2", "both", "last"]
    assert not world.state.tables["both"].needs
    assert replay(world.log) == []


def test_patience_ends() -> None:
    """What it waits for does not come: it is made when its patience is at an end."""
    world, first = settled(patience_us=10 * MINUTE_US)
    late_changes(world, first)
    assert {start.job.table for start in world.decide()} == {"b"}  # which nobody starts
    until = world.controller.wake_at_us
    assert until is not None
    world.now = until - 1
    assert {start.job.table for start in world.decide()} == {"b"}
    world.now = until
    assert {start.job.table for start in world.decide()} == {"b", "both"}


def test_no_hold_that_would_put_a_target_at_risk() -> None:
    """`both` and `last` take 2 s and a little, b and b2 before them as much: with 5 minutes for a change all is well; with
    3 s `last` would be too late."""
    for target_us, held in ((5 * MINUTE_US, True), (3 * SECOND_US, False)):
        world, first = settled(patience_us=10 * MINUTE_US, target_us=target_us)
        each_takes_a_second(world)
        late_changes(world, first)
        assert ("both" not in {start.job.table for start in world.decide()}) == held


def test_no_hold_past_the_deadline_of_a_request() -> None:
    world, first = settled(patience_us=10 * MINUTE_US)
    day = ((first, first + DAY_US),)
    world.emit(BackfillRequested(world.tick(), "a", day, deadline_us=world.now + 2 * SECOND_US))
    for start in world.decide():
        world.start(start)
    world.finish(next(iter(world.running)))
    world.emit(BackfillRequested(world.tick(), "b", day))
    assert "both" in {start.job.table for start in world.decide()}


def job_of(starts: list[UpdateStarted], table: str) -> Job | None:
    return next((start.job for start in starts if start.job.table == table), None)


def test_new_rows_never_wait() -> None:
    world, first = settled(patience_us=10 * MINUTE_US)
    for feed in ("fa", "fb"):
        world.deliver(feed, world.new_rows([first + 4 * DAY_US, first + 5 * DAY_US]))
    late_changes(world, first)
    edge = world.state.tables["both"].edge_us
    while not (job := job_of(starts := world.decide(), "both")):
        for start in starts:
            world.start(start)
        world.finish(next(iter(world.running)))
    assert edge is not None and job.edge_us is not None and job.edge_us > edge
    assert all(piece.start_us > first for piece in job.pieces)  # the old day still waits


def test_a_table_that_failed_is_not_waited_for() -> None:
    world, first = settled(patience_us=10 * MINUTE_US)
    late_changes(world, first)
    world.state.tables["b"].failed = True
    assert "both" in {start.job.table for start in world.decide()}
