"""Placements look only at the groups of tables that can still start something: that must not change what they decide."""

from __future__ import annotations

from random import Random

import pytest

from penstock.scheduling.jobs import ByIndex, ReadyJob, ReadyJobs, RunningJob, Situation
from penstock.scheduling.placement.base import Placement
from penstock.scheduling.placement.edf_partitioned import EdfPartitioned
from penstock.scheduling.placement.proportional import Proportional
from penstock.scheduling.placement.reserve import Reserve
from penstock.scheduling.policies import find_policy
from penstock.scheduling.protocol import powers
from penstock.sim.scenario import Scenario, SimTable

PLACEMENTS = [
    Reserve(),
    Reserve(headroom=2.0),
    Proportional(),
    Proportional(all_tracks=True),
    Proportional(all_tracks=True, aggressive=True),
    Proportional(aggressive=True, by="P", k=2),
    EdfPartitioned(),
    EdfPartitioned(aggressive=True),
]


class Costs:
    version = 0

    def __init__(self, scenario: Scenario) -> None:
        self._costs_s = scenario.costs_s

    def period_cost_s(self, table: str) -> float:
        return self._costs_s[table]

    def next_release_us(self, table: str) -> int | None:
        return None


def world(chance: Random) -> Scenario:
    return Scenario(
        tuple(
            SimTable(
                f"t{n}",
                period_s=chance.choice((10, 100, 1000)),
                alpha_s=chance.choice((0.1, 1, 5)),
                beta=chance.choice((0.01, 0.1)),
            )
            for n in range(chance.randint(2, 90))
        ),
        tracks=chance.randint(1, 6),
    )


def situation(chance: Random, scenario: Scenario, ready: ReadyJobs) -> Situation:
    names = [table.name for table in scenario.tables]
    chance.shuffle(names)
    busy = {
        track: RunningJob(names.pop(), track, 0, 1.0)
        for track in range(scenario.tracks)
        if chance.random() < 0.5 and names
    }
    for job in busy.values():
        ready.discard(job.table)
    for name in names:
        if chance.random() < 0.4:
            ready.discard(name)
        if chance.random() < 0.6:
            release = chance.randrange(100)
            gain = chance.randint(1, 5) * 10**7
            late = chance.choice((0, 0, 3))
            upkeep = chance.random() < 0.05
            ready.put(
                ReadyJob(name, 1, chance.choice((1, 5)), release, release + 10**7, gain, late, 50, 0.1, 1, 2, upkeep)
            )
    free = tuple(track for track in range(scenario.tracks) if track not in busy)
    return Situation(chance.randrange(10**9), ready, busy, free, scenario.tracks, outlook=Costs(scenario))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("order", ["max-benefit", "patient", "edf-p"])
def test_the_same_with_groups_and_without(placement: Placement, order: str) -> None:
    for seed in range(25):
        chance = Random(seed)
        scenario = world(chance)
        placed = placement.knowing(scenario.graph)
        ready = powers(find_policy(order)).no_jobs()
        for _ in range(4):
            at = situation(chance, scenario, ready)
            if not at.free:
                continue
            memory = {"slowness": chance.choice((0.5, 1.0, 2.0))}
            whole = placed.place(at, list(ready.ranked(at.now_us)), lambda job, value: "", memory)
            grouped = placed.place(at, ByIndex(ready, at.now_us), lambda job, value: "", memory)
            assert [start[:2] for start in grouped] == [start[:2] for start in whole], seed


def test_only_groups_that_may_start_are_looked_at() -> None:
    ready = ReadyJobs(lambda job: (job.priority, 0.0))
    for n in range(1000):
        ready.put(ReadyJob(f"t{n}", n, n, 0, 1, 1, 0, 0, 0.1, 1, 1))
    of = {f"t{n}": n % 2 for n in range(1000)}
    asked: list[int] = []

    def even(group: int) -> bool:
        asked.append(group)
        return group == 0

    found = ready.among(0, of, even)
    assert next(found)[1].table == "t998"  # t999 is odd
    assert len(asked) <= 4
    ready.discard("t996")
    ready.put(ReadyJob("t996", 5000, 5000, 0, 1, 1, 0, 0, 0.1, 1, 1))
    assert [job.table for _, job in ready.among(0, of, even)][:3] == ["t996", "t998", "t994"]
