"""Early cut-off: who reads what was made again with the same rows is not told. Random schedules have it, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.events import BackfillRequested
from penstock.control.views.status import status
from penstock.model.tables import Source, Table
from penstock.model.time import DAY_US
from tests.control.replay import replay
from tests.control.schedule_world import World, mixed
from tests.control.test_at_most_once import DAY_1, base, finish, late_file, made, start_all, view, warehouse
from tests.control.test_holding import run


def world_of(*tables: Table, tracks: int = 4) -> World:
    world = warehouse(list(tables), tracks=tracks)
    world.compares = True
    return world


def backfill(world: World, table: str, first: int, last: int) -> None:
    interval = (DAY_1 + first * DAY_US, DAY_1 + last * DAY_US)
    world.emit(BackfillRequested(world.tick(), table, (interval,)))


@pytest.mark.parametrize("partition", ["day", "none"])
def test_readers_of_the_same_rows_are_not_told(partition: str) -> None:
    world = world_of(
        base("a"), view("b", "a"), view("c", "b", partition=partition), view("d", "c", partition=partition)
    )
    backfill(world, "b", 0, 3)
    run(world)
    assert made(world) == {"b": 3}
    days = 3 if partition == "day" else 1
    assert {row.table: row.spared for row in status(world.state)} == {"a": 0, "b": 0, "c": days, "d": days}
    (request,) = world.state.requests.values()
    assert request.finished_us is not None and request.made == {"b": 3}
    assert replay(world.log) == []


def test_of_what_differs_they_are_told() -> None:
    world = world_of(base("a"), view("b", "a"), view("c", "b"))
    for row in world.contents["b"].rows[DAY_1 + DAY_US]:
        row.key = mixed(row.key, 1)  # as if a library had been mended since
    backfill(world, "b", 0, 3)
    run(world)
    assert made(world) == {"b": 3, "c": 1}


def test_a_correction_that_changes_nothing_goes_no_further() -> None:
    world = world_of(base("a"), view("b", "a"), view("c", "b"))
    (delivery,) = world.newest.values()
    world.deliver("fa", list(reversed(delivery.rows)), delivery.file.uri)
    run(world)
    assert made(world) == {}


def test_what_is_new_at_the_edge_goes_on() -> None:
    world = world_of(base("a"), view("b", "a"), view("c", "b"))
    world.deliver("fa", world.new_rows([DAY_1 + 4 * DAY_US]))
    run(world)
    state = world.state
    assert state.tables["c"].edge_us == state.tables["b"].edge_us == state.tables["a"].edge_us
    assert state.tables["c"].edge_us > DAY_1 + 3 * DAY_US


def test_who_is_to_take_new_rows_only_is_told() -> None:
    """To a table that is to be folded, files that were written again look as if they had come since."""
    rowwise = Table("b", "day", sources=(Source("a", (0, 1)),), logic="x", foldable=True, exact_time=True)
    world = world_of(base("a"), rowwise, replace(rowwise, name="c", sources=(Source("b", (0, 1)),)))
    late_file(world, "fa")
    start_all(world)
    finish(world, "a")
    start_all(world)
    world.fail_rate = 0.0
    finish(world, "b")
    assert [need.append for _, _, need in world.state.tables["c"].needs.pieces()] == [True]
    world.fail_rate = 1.0
    start_all(world)
    finish(world, "c")
    world.fail_rate = 0.0
    backfill(world, "b", 0, 1)
    world.start(next(start for start in world.decide() if start.job.table == "b"))
    finish(world, "b")
    assert [need.append for _, _, need in world.state.tables["c"].needs.pieces()] == [False]


def test_a_table_that_reads_itself_stops_where_nothing_changes() -> None:
    so_far = Table("b", "day", sources=(Source("a", (0, 1)), Source("b", (-1, 0))), logic="x")
    world = world_of(base("a"), so_far, view("c", "b"))
    backfill(world, "b", 0, 1)
    run(world)
    assert made(world) == {"b": 1}
