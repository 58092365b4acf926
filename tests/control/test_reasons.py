"""Reasons have names, wherever they come from, and tables say which they follow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from penstock.control.events import BackfillRequested, FileWithdrawn
from penstock.control.snapshot import dump, load
from penstock.model.tables import Table
from penstock.model.time import DAY_US
from tests.control.schedule_world import World
from tests.control.test_at_most_once import DAY_1, base, late_file, made, view, warehouse
from tests.control.test_holding import run

FOLLOWS = {
    "late": ("new", "late"),
    "corrected": ("corrected",),
    "withdrawn": ("withdrawn",),
    "logic": ("logic",),
    "gdpr": ("new", "compliance"),
    "audit": ("audit",),
}


def world_of_followers() -> World:
    """One table for each kind of reason, each through a table that follows all."""
    tables = [base("a"), view("b", "a")]
    tables += [replace(view(name, "b"), propagate=follows) for name, follows in FOLLOWS.items()]
    return warehouse(tables)


def followed(world: World) -> set[str]:
    run(world)
    state = load(dump(world.state))
    assert {name for name in FOLLOWS if state.tables[name].held} == {
        name for name in FOLLOWS if world.state.tables[name].held
    }
    return set(made(world)) - {"b"}


def test_late_rows() -> None:
    world = world_of_followers()
    late_file(world, "fa")
    assert followed(world) == {"late"}
    # What was held is taken along by the next reason that is followed.
    world.counts.clear()
    world.emit(BackfillRequested(world.tick(), "b", ((DAY_1, DAY_1 + DAY_US),), "audit"))
    assert followed(world) == {"audit"}
    assert not world.state.tables["audit"].held


def test_a_corrected_file() -> None:
    world = world_of_followers()
    (delivery,) = world.newest.values()
    world.deliver("fa", [*delivery.rows[1:], *world.new_rows([delivery.rows[0][0] + 5])], delivery.file.uri)
    assert followed(world) >= {"corrected"}
    assert followed(world) <= {"corrected", "late"}


def test_a_withdrawn_file_with_a_reason() -> None:
    world = world_of_followers()
    uri = next(iter(world.newest))
    world.emit(FileWithdrawn(world.tick(), "fa", uri, ((DAY_1, DAY_1 + 1),), "compliance"))
    names = {need for _, _, each in world.state.tables["a"].needs.pieces() for need in each.reasons}
    assert names == {"withdrawn", "compliance"}


def test_new_logic() -> None:
    world = world_of_followers()
    tables = [
        replace(table, logic="y", reason="compliance") if table.name == "b" else table
        for table in world.graph.tables.values()
    ]
    world.declare(list(world.feeds.values()), tables)
    assert followed(world) == {"logic", "gdpr"}


@pytest.mark.parametrize("pattern", ["*gdpr*", "fa/gdpr-?"])
def test_files_with_a_name_for_their_reason(pattern: str) -> None:
    world = world_of_followers()
    feed = replace(world.feeds["fa"], reasons=((pattern, "compliance"),))
    world.declare([feed], list(world.graph.tables.values()))
    world.deliver("fa", world.new_rows([DAY_1 + 1]), "fa/gdpr-1")
    assert followed(world) == {"late", "gdpr"}


def test_names_travel_down() -> None:
    tables = [base("a"), view("b", "a"), view("c", "b"), replace(view("d", "c"), propagate=("compliance",))]
    world = warehouse(tables)
    feed = replace(world.feeds["fa"], reasons=(("*gdpr*", "compliance"),))
    world.declare([feed], list(world.graph.tables.values()))
    late_file(world, "fa")
    run(world)
    assert made(world) == Counter({"b": 1, "c": 1})
    world.counts.clear()
    world.deliver("fa", world.new_rows([DAY_1 + DAY_US + 1]), "fa/gdpr-2")
    run(world)
    assert made(world) == Counter({"b": 1, "c": 1, "d": 1})


def test_a_table_is_a_plain_value() -> None:
    assert Table("t", reason="why").reason == "why"
