"""What leads to a dimension reads every snapshot, all else the newest."""

from __future__ import annotations

import pytest

from penstock.declare.flow import Rows, flow
from penstock.flows.description import Flow
from penstock.flows.snapshots import NoSnapshots, of_every_snapshot

TABLES = {"people": "people_snapshots"}


def inputs(found: Flow) -> dict[str, tuple[str, ...]]:
    return {step.name: step.inputs for step in found.steps}


def test_only_what_leads_to_dimensions_and_keys_is_copied() -> None:
    @flow
    def dimensions(people: Rows, cities: Rows, orders: Rows) -> None:
        known = people.deduplicate("name").into("known")
        keyed = known.look_up(cities, on="city").surrogate_key("key", of="name", keys="keys").into("keyed")
        keyed.scd2("history", key="key", at="since")
        orders.look_up(known, on="name").scd1("orders_now", key="id")

    found = of_every_snapshot(dimensions.flow, TABLES)
    assert inputs(found) == {
        "people": (),
        "people_snapshots": (),
        "cities": (),
        "orders": (),
        "deduplicate": ("people",),
        "deduplicate of every snapshot": ("people_snapshots",),
        "known": ("deduplicate",),
        "look_up": ("known", "cities"),
        "look_up of every snapshot": ("deduplicate of every snapshot", "cities"),
        "new_keys": ("look_up of every snapshot",),
        "keys": ("new_keys",),
        "attach_key": ("look_up", "keys"),
        "attach_key of every snapshot": ("look_up of every snapshot", "keys"),
        "keyed": ("attach_key",),
        "history: since is known": ("attach_key of every snapshot",),
        "scd2": ("history: since is known",),
        "history": ("scd2",),
        # Orders are no snapshots: they look up what holds now.
        "look_up 2": ("orders", "known"),
        "scd1": ("look_up 2",),
        "orders_now": ("scd1",),
    }
    seen: set[str] = set()
    for step in found.steps:
        assert seen.issuperset(step.inputs)
        seen.add(step.name)
    assert list(found.sources) == ["people_snapshots", "cities", "orders"]
    assert of_every_snapshot(dimensions.flow, {}) == dimensions.flow


def test_a_flow_of_dimensions_only_reads_no_newest_snapshot() -> None:
    @flow
    def history(people: Rows) -> None:
        people.filter("name <> ''").scd2("person", key="name", at="since")

    found = of_every_snapshot(history.flow, TABLES)
    assert list(found.sources) == ["people_snapshots"]
    assert [step.name for step in found.steps] == [
        "people_snapshots", "filter", "person: since is known", "scd2", "person",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "write",
    [
        lambda people, cities: people.apply(lambda rows: rows, gives="name string"),
        lambda people, cities: people.union(cities),
        lambda people, cities: people.join(cities, on="city", how="full"),
    ],
)
def test_what_cannot_be_done_for_every_snapshot_is_told(write) -> None:
    @flow
    def history(people: Rows, cities: Rows) -> None:
        cities.into("kept")
        write(people, cities).scd1("person", key="name")

    with pytest.raises(NoSnapshots, match="every snapshot"):
        of_every_snapshot(history.flow, TABLES)
