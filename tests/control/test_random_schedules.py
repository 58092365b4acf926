"""Whatever happens in whatever order, at rest every table is what its definition says. `PENSTOCK_SCENARIOS=20000` runs more."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable
from random import Random

import pytest

from penstock.control import readiness
from penstock.control.events import UpdateStarted
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.requests.needs import partitions_of
from penstock.scheduling.policies import find_policy
from tests.control.replay import replay
from tests.control.scenarios import Scenario, check_at_rest, check_reflects, grouped, outside

SCENARIOS = int(os.environ.get("PENSTOCK_SCENARIOS", "2000"))
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
CHUNK = 250


@pytest.fixture(autouse=True)
def _upkeep_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SMALL_FILES", 6)


def chunks(scenarios: int) -> pytest.MarkDecorator:
    seeds = range(FIRST, FIRST + scenarios)
    return pytest.mark.parametrize("seeds", [seeds[n : n + CHUNK] for n in range(0, scenarios, CHUNK)], ids=str)


def each(seeds: Iterable[int], run: Callable[[int], object]) -> None:
    """All of them, and then which failed."""
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"seeds {[seed for seed, _ in failed]}\n{failed[0][1]}"


def settled(scenario: Scenario) -> Scenario:
    """After a while, when all is at rest: what it should be. In half of them it is noticed where rows are the same as before."""
    scenario.world.compares = scenario.seed % 2 == 1
    scenario.run(scenario.rng.choice([30, 60, 100]))
    scenario.settle()
    check_at_rest(scenario.world)
    check_reflects(scenario.world, scenario.rng)
    return scenario


def released(scenario: Scenario) -> None:
    """And when nothing is held any more."""
    settled(scenario).release()
    check_at_rest(scenario.world)


@chunks(SCENARIOS)
def test_tables_are_right_at_rest(seeds: range) -> None:
    def run(seed: int) -> None:
        scenario = settled(Scenario(seed))
        if not scenario.trouble and not scenario.world.redefined:
            assert not scenario.world.repeated, f"made twice from the same: {scenario.world.repeated[:3]}"

    each(seeds, run)


@chunks(SCENARIOS // 4)
def test_requests_and_policies_lose_nothing(seeds: range) -> None:
    """Backfills, cancelled ones too, tables that follow only some changes, jobs that are stopped for newer ones: what is
    not held is right, and when everything is let through again everything is."""
    each(seeds, lambda seed: released(Scenario(seed, asking=True)))


@chunks(SCENARIOS // 4)
def test_feeds_that_promise_something_else_lose_nothing_and_claim_no_more(seeds: range) -> None:
    """Lateness up and down, markers instead of it and back: whatever waited for what, and whatever is declared now."""
    each(seeds, lambda seed: released(Scenario(seed, promising=True, asking=seed % 3 == 0)))


@chunks(SCENARIOS // 2)
def test_groups_are_right_at_rest_and_published_together(seeds: range) -> None:
    def run(seed: int) -> None:
        rng = Random(seed)
        released(Scenario(seed, asking=rng.random() < 0.3, warehouse=grouped(rng)))

    each(seeds, run)


@chunks(SCENARIOS // 8)
def test_updates_that_are_cut_anywhere_lose_nothing(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that takes up 20 periods of new rows at a time, though a start is worth more: inside of partitions, too."""
    monkeypatch.setattr(readiness, "WORTH_A_START", 0)
    cut = 0

    def run(seed: int) -> None:
        nonlocal cut
        scenario = settled(Scenario(seed, policy=find_policy("max-benefit / chop=20")))
        jobs = [event.job for _, event in scenario.world.log if isinstance(event, UpdateStarted)]
        made: dict[tuple[str, int], PartitionSet] = {}
        for job in jobs:  # a partition twice as of one snapshot: up to some time, and then the rest
            before = made.get((job.table, job.pin), EMPTY)
            cut += bool(before & partitions_of(job.pieces)) and job.kind == "derive"
            made[job.table, job.pin] = before | partitions_of(job.pieces)

    each(seeds, run)
    assert cut > len(seeds) // 10


@chunks(SCENARIOS // 5)
def test_one_more_file_makes_every_partition_at_most_once(seeds: range) -> None:
    def run(seed: int) -> None:
        assert not made_twice(seed)

    each(seeds, run)


def made_twice(seed: int) -> list[tuple[str, int]]:
    """Partitions that are made more than once for a single file, late or not, when all was at rest. Tables that go step
    by step bring their readers on step by step, too; and two base tables of one feed are two changes. (A table that
    cannot be cut and has several sources may come on with each of them, which these seeds do not show: test_diamonds.py.)"""
    scenario = Scenario(seed, calm=True)
    scenario.run(60)
    scenario.settle()
    world, graph = scenario.world, scenario.world.graph
    feed = scenario.rng.choice(list(world.feeds.values()))
    stepwise = {name for name, table in graph.tables.items() if table.chop or name in graph.chained}
    # A table that does not wait for a source comes on with each of its sources.
    stepwise |= {name for name, table in graph.tables.items() if not all(source.waits for source in table.sources)}
    found: list[tuple[str, int]] = []
    for late in (False, True):
        before = dict(world.counts)
        known = {
            name
            for name, table in world.state.tables.items()
            if table.exists and not (graph.ancestors[name] | {name}) & stepwise
        }
        scenario.file(feed, late=late)
        scenario.settle()
        if len(graph.fed_by[feed.name]) == 1:
            found += [k for k, count in world.counts.items() if k[0] in known and count > before.get(k, 0) + 1]
    return found


@chunks(SCENARIOS // 2)
def test_tables_that_others_make_are_right_too(seeds: range) -> None:
    def run(seed: int) -> None:
        scenario = Scenario(seed, asking=seed % 2 == 0, warehouse=outside(Random(seed)))
        released(scenario)
        assert [str(difference) for difference in replay(scenario.world.log)] == []

    each(seeds, run)
