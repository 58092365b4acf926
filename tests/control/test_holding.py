"""Late work that waits on purpose: for what, until when, and when not."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from random import Random

import pytest

from penstock.control.events import BackfillRequested, UpdateStarted
from penstock.control.views.explain import explain
from penstock.control.views.requests import requests
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_instant
from penstock.requests.budget import MOST, below, share_us
from penstock.requests.cadence import Restated
from penstock.requests.job import Job
from tests.control.replay import replay
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


@pytest.mark.parametrize(("costs", "waits"), [(0.0, True), (60.0, True), (1e5, False)])
@pytest.mark.parametrize("late", ["both", "last"])
def test_what_lateness_costs_is_weighed(late: str, costs: float, waits: bool) -> None:
    """Two updates of a second each are saved. What is on its way takes some seconds: at 60 s of updates an hour that costs less, at
    100,000 more, whichever of the two tables must not be late."""
    world, first = settled(patience_us=10 * MINUTE_US)
    tables = [replace(t, late_cost=costs) if t.name == late else t for t in world.graph.tables.values()]
    world.declare(list(world.feeds.values()), tables, tracks=4)
    each_takes_a_second(world)
    late_changes(world, first)
    assert ("both" not in {start.job.table for start in world.decide()}) == waits


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


# Known times

MONDAY = parse_instant("2024-03-04 01:00")


def restated_on_mondays(
    target_us: int | None = None, patience_us: int | None = None, *, learned: bool = False
) -> tuple[World, int]:
    """`both` is made from `a`, restated on Mondays at 1:00, and, through `b2`, from `b`, restated on Mondays at 2:00. All
    days up to the Friday before are there; now it is Monday, 1:00."""
    known = {"a": "Mon 01:00", "b": "Mon 02:00..02:10"}
    tables = [
        replace(table, restated=known.get(table.name, ""), patience_us=patience_us) for table in warehouse(0, target_us)
    ]
    world = World(Random(1), [Feed("fa"), Feed("fb")], tables, tracks=4)
    first = MONDAY // DAY_US * DAY_US - 8 * DAY_US
    for feed in ("fa", "fb"):
        world.deliver(feed, world.new_rows([first + n * DAY_US for n in range(5)]))
    run(world)
    if not learned:
        each_takes_a_second(world)
    world.now = MONDAY
    return world, first


def restate(world: World, table: str, first: int) -> list[str]:
    """A correction of the first day comes; what is updated before anything else happens."""
    world.emit(BackfillRequested(world.tick(), table, ((first, first + DAY_US),)))
    return run(world, wake=False)


def test_both_are_restated_on_mondays_at_one_and_at_two() -> None:
    world, first = restated_on_mondays()
    assert restate(world, "a", first) == ["a"]
    # b is there at 2:10 at the latest, then takes b and b2 2 s, and in all but rare cases 2 * sqrt(2) * 0.125 s more.
    assert world.controller.wake_at_us is not None
    assert world.controller.wake_at_us // SECOND_US == parse_instant("2024-03-04 02:10:02") // SECOND_US
    told = "it waits until 2024-03-04 02:10:02 for b, restated Mondays 02:00: saves 2 updates, no target at risk"
    assert explain(world.state, "both").waits == told
    (request,) = requests(world.state)
    assert (request.stage, request.waits) == ("waiting", told)
    world.now = parse_instant("2024-03-04 02:03")
    assert restate(world, "b", first) == ["b", "b2", "both", "last"]
    assert all(request.stage == "done" for request in requests(world.state))


def test_the_second_comes_early_or_not_at_all() -> None:
    world, first = restated_on_mondays()
    assert restate(world, "a", first) == ["a"]
    world.now = parse_instant("2024-03-04 01:55")
    assert restate(world, "b", first) == ["b", "b2", "both", "last"]

    world, first = restated_on_mondays()
    assert restate(world, "a", first) == ["a"]
    assert run(world) == ["both", "last"]
    assert world.now // SECOND_US >= parse_instant("2024-03-04 02:10:02") // SECOND_US


def test_a_replay_waits_for_known_times_too() -> None:
    world, first = restated_on_mondays(learned=True)
    assert restate(world, "a", first) == ["a"]
    world.now = parse_instant("2024-03-04 02:03")
    assert restate(world, "b", first) == ["b", "b2", "both", "last"]
    world.now = parse_instant("2024-03-11 01:02")
    assert restate(world, "a", first) == ["a"]
    assert run(world) == ["both", "last"]
    assert replay(world.log) == []


@pytest.mark.parametrize("patience_us", [2 * HOUR_US, None])
def test_restatements_that_nobody_declared_are_learned(patience_us: int | None) -> None:
    """`a` was restated on four Mondays at 1:00, `b` at 2:00. On the fifth whoever has patience waits for the second."""
    tables = [replace(table, patience_us=patience_us) for table in warehouse(0)]
    world = World(Random(1), [Feed("fa"), Feed("fb")], tables, tracks=4)
    first = MONDAY // DAY_US * DAY_US - 8 * DAY_US
    for feed in ("fa", "fb"):
        world.deliver(feed, world.new_rows([first + n * DAY_US for n in range(5)]))
    run(world)
    for week in range(4):
        for table, hour in (("a", 0), ("b", 1)):
            world.now = MONDAY + 7 * week * DAY_US + hour * HOUR_US
            restate(world, table, first)
            run(world)
    world.now = MONDAY + 28 * DAY_US
    made = restate(world, "a", first)
    assert made == (["a"] if patience_us else ["a", "both", "last"])
    if patience_us:
        told = explain(world.state, "both").waits
        assert told is not None and "for b, restated Mondays 02:00" in told
        world.now += HOUR_US
        assert restate(world, "b", first) == ["b", "b2", "both", "last"]
    assert replay(world.log) == []


def test_what_is_not_near_is_not_waited_for() -> None:
    """On a Tuesday the next Monday is far; on a Sunday evening it is near, at 22:30 for 1:00 and 2:00."""
    for when, waits in (("2024-03-05 01:00", False), ("2024-03-10 22:30", True)):
        world, first = restated_on_mondays()
        world.now = parse_instant(when)
        assert (restate(world, "b", first) == ["b"]) == waits
    # With patience of its own it is as near as that.
    world, first = restated_on_mondays(patience_us=30 * MINUTE_US)
    assert restate(world, "a", first) == ["a", "both", "last"]
    world, first = restated_on_mondays(patience_us=60 * MINUTE_US)
    assert restate(world, "a", first) == ["a"]


def test_a_target_below_is_not_put_at_risk_for_it() -> None:
    """From 1:00 until b has come at 2:00 and both and last are made: an hour and a few seconds."""
    for target_us, waits in ((59 * MINUTE_US, False), (2 * HOUR_US, True)):
        world, first = restated_on_mondays(target_us)
        assert (restate(world, "a", first) == ["a"]) == waits


# The budget of a chain


def test_a_chain_shares_its_budget_unevenly() -> None:
    """Changes come to `both` from a and b, and nothing else comes to `last`: waiting there saves nothing that waiting in
    `both` does not, so `both` has all of the time. If changes come to the table below from a third base table, far more
    often, it is the other way round."""
    world, _ = settled(patience_us=HOUR_US, target_us=30 * MINUTE_US)
    each_takes_a_second(world)
    for name in ("a", "b"):
        world.state.tables[name].restated = Restated(gaps_us=[10 * MINUTE_US])
    chain = below(world.state, "both")
    assert chain is not None
    budget_us = 30 * MINUTE_US - int((2 + 2 * sqrt(2) * 0.12533) * SECOND_US)
    assert share_us(world.state, chain) == pytest.approx(budget_us, abs=SECOND_US)
    tables = [
        *warehouse(HOUR_US)[:-1],
        Table("c", "day", feed="fc", logic="x"),
        Table(
            "last", "day", sources=(Source("both", (0, 1)), Source("c", (0, 1))), logic="x", target_us=30 * MINUTE_US
        ),
    ]
    world = World(Random(1), [Feed("fa"), Feed("fb"), Feed("fc")], tables, tracks=4)
    each_takes_a_second(world)
    for name, gap_us in (("a", HOUR_US), ("b", HOUR_US), ("c", MINUTE_US)):
        world.state.tables[name].restated = Restated(gaps_us=[gap_us])
    chain = below(world.state, "both")
    assert chain is not None
    share = share_us(world.state, chain)
    assert share is not None and share < budget_us / 4


def test_a_table_above_too_many_others_does_not_wait() -> None:
    many = [Table(f"t{n}", "day", sources=(Source("both", (0, 1)),), logic="x") for n in range(MOST)]
    for count, held in ((MOST - 2, True), (MOST - 1, False)):
        world = World(Random(1), [Feed("fa"), Feed("fb")], [*warehouse(HOUR_US), *many[:count]], tracks=4)
        assert (below(world.state, "both") is not None) == held
