"""Windows whose lengths are chosen: as long as targets allow, and together with others for the same target."""

from __future__ import annotations

from penstock.control.events import BackfillRequested
from penstock.control.views.explain import explain
from penstock.model.graph import Graph
from penstock.model.tables import AUTO, Feed
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tests.control.replay import replay
from tests.control.schedule_world import World
from tests.control.test_at_most_once import DAY_1, base, late_file, made, run, start_all, view, warehouse


def a_minute_each(world: World) -> World:
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.0, 60.0, 0.0
    return world


def pair(**more) -> World:
    """Two base tables, and a child of both that may be half an hour old."""
    tables = [base("a", **more), base("b", **more), view("child", "a", "b", target_us=30 * MINUTE_US)]
    return a_minute_each(warehouse(tables))


def backfill(world: World, table: str, day: int = 0) -> None:
    ranges = ((DAY_1 + day * DAY_US, DAY_1 + (day + 1) * DAY_US),)
    world.emit(BackfillRequested(world.tick(), table, ranges))


def test_who_is_read_together_goes_together() -> None:
    world = pair(queue_us=AUTO)
    late_file(world, "fa")
    came = world.now
    assert not world.decide()
    # Half an hour, less two passes of two tables that take a minute each.
    assert world.controller.wake_at_us == came + 26 * MINUTE_US
    world.now = came + 2 * MINUTE_US
    late_file(world, "fb")
    assert not world.decide()
    world.now = came + 26 * MINUTE_US
    (start,) = world.decide()
    assert start.job.table == "a"
    world.start(start)
    # b has the time until its own target; but the child is going to be made now.
    assert world.controller.wake_at_us == world.state.now_us + 1
    assert [start.job.table for start in world.decide()] == ["b"]
    assert run(world) == ["a", "b", "child"]
    assert made(world) == {"child": 1}


def test_what_comes_after_that_is_for_the_next_time() -> None:
    world = pair(queue_us=AUTO)
    late_file(world, "fa")
    world.now += 26 * MINUTE_US
    start_all(world)
    late_file(world, "fb", 1)
    came = world.now
    assert not world.decide()
    world.finish(next(iter(world.running)))
    assert [start.job.table for start in world.decide()] == ["child"]  # and does not wait for b, which collects again
    start_all(world)
    world.finish(next(iter(world.running)))
    assert not world.decide()
    until = world.controller.wake_at_us
    assert until is not None and until == came + 26 * MINUTE_US
    assert run(world) == ["b", "child"]


def test_who_follows_does_not_close_the_next_window() -> None:
    """On one track: b starts when a has ended, for a change that came before a started. What has come to a meanwhile waits."""
    tables = [base(n, queue_us=AUTO) for n in "ab"] + [view("child", "a", "b", target_us=30 * MINUTE_US)]
    world = a_minute_each(warehouse(tables, tracks=1))
    late_file(world, "fa")
    late_file(world, "fb")
    world.now += 26 * MINUTE_US
    start_all(world)
    (first,) = (running for running, _, _ in world.running.values())
    world.now += 10 * SECOND_US
    late_file(world, f"f{first.table}", 1)
    world.finish(next(iter(world.running)))
    start_all(world)
    assert {running.table for running, _, _ in world.running.values()} == {"a", "b"} - {first.table}
    assert world.state.tables[first.table].running is None
    world.finish(next(iter(world.running)))
    assert [start.job.table for start in world.decide()] == ["child"]


def test_a_view_does_not_collect_again_what_was_collected_above() -> None:
    tables = [base("a", queue_us=AUTO), view("mid", "a", queue_us=AUTO), view("last", "mid", target_us=30 * MINUTE_US)]
    world = a_minute_each(warehouse([*tables, view("slow", "mid", queue_us=AUTO, target_us=3 * HOUR_US)]))
    late_file(world, "fa")
    world.now += 26 * MINUTE_US
    assert run(world, wake=False) == ["a", "mid", "last"]
    # Whose own target leaves it more time than was taken above.
    told = explain(world.state, "slow").waits
    assert told is not None and told.startswith("further changes are collected until")
    backfill(world, "mid")  # what is asked of it alone was not collected above
    assert not world.decide()
    assert run(world)[0] == "mid"


def test_who_is_patient_collects_requests_if_more_are_likely_to_come() -> None:
    world = pair(patience_us=10 * MINUTE_US)
    backfill(world, "a")
    assert run(world, wake=False) == ["a", "child"]  # nobody ever asked twice
    for name in "ab":
        world.state.tables[name].restated.gaps_us = [MINUTE_US] * 3
    backfill(world, "a")
    assert not world.decide()
    told = explain(world.state, "a").waits
    assert told is not None and told.startswith("further requests may come")
    world.now += MINUTE_US
    backfill(world, "b")
    assert run(world) == ["a", "b", "child"]
    assert made(world) == {"child": 2}  # once before


def test_a_file_ends_the_patience_of_a_base_table() -> None:
    world = pair(patience_us=10 * MINUTE_US)
    for name in "ab":
        world.state.tables[name].restated.gaps_us = [MINUTE_US] * 3
    backfill(world, "a")
    assert not world.decide()
    late_file(world, "fa", 1)
    (start,) = world.decide()
    assert start.job.table == "a" and start.job.pieces and start.job.files


def test_a_replay_decides_the_same() -> None:
    tables = [base(n, queue_us=AUTO) for n in "ab"] + [view("child", "a", "b", target_us=HOUR_US)]
    world = warehouse(tables)
    for day in range(8):
        late_file(world, "fa" if day % 3 else "fb", day % 4)
        world.now += 4 * MINUTE_US
        start_all(world)
    assert sorted(run(world)) == ["a", "b", "child"]
    assert replay(world.log) == []


def test_who_is_collected_together() -> None:
    tables = [base(n, queue_us=AUTO) for n in "abc"]
    graph = Graph(
        [Feed("fa"), Feed("fb"), Feed("fc")],
        [
            *tables,
            view("both", "a", "b", target_us=HOUR_US),
            view("soon", "b", target_us=MINUTE_US),
            view("late", "both", "c", target_us=2 * HOUR_US),
            view("more", "a", "c", target_us=HOUR_US),
        ],
    )
    # b must hurry for `soon`: then `both` is made anyway, but a has no need to hurry as often.
    assert graph.together == {"a": ("c",), "c": ("a",)}
    assert graph.tightest["a"] == graph.tightest["c"] == HOUR_US and graph.tightest["b"] == MINUTE_US
    assert graph.collected == {"both", "more", "late", "soon"} - {"both", "late"}
