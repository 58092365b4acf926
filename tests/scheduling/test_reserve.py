"""Tracks kept for short jobs: as many as those can use."""

from __future__ import annotations

import pytest

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Table
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import ReadyJob, RunningJob, Situation
from penstock.scheduling.placement.base import Recurring
from penstock.scheduling.placement.proportional import Clusters, stretch
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import powers


def test_periods_that_can_be_kept() -> None:
    jobs = [Recurring("a", 10.0, 6.0), Recurring("b", 60.0, 30.0)]
    assert Clusters(jobs, 1.0, "P", 2).shortest_s == [10.0, 60.0]
    assert Clusters(jobs, 1.0, "P", 2).loads == pytest.approx([0.6, 0.5])
    # One track is enough for 1 / 1.1 of that; periods are stretched by the next sixteenth of a doubling.
    found = Clusters(jobs, 1.0, "P", 1)
    assert found.shortest_s == pytest.approx([10 * 2 ** (3 / 16), 60 * 2 ** (3 / 16)])
    assert found.loads == pytest.approx([0.6 / 1.1, 0.5 / 1.1])
    # A table whose update takes longer than its period uses one track, not six; 1 + 1 + 0.1 tracks are 1.05 times two.
    jobs = [Recurring("a", 10.0, 60.0), Recurring("b", 60.0, 60.0), Recurring("c", 300.0, 30.0)]
    assert sum(Clusters(jobs, 1.0, "E", 2).loads) == pytest.approx(2.0)
    assert Clusters(jobs, 1.0, "E", 2).shortest_s == pytest.approx([60 * 2 ** (2 / 16)])
    assert stretch(0.3) == stretch(1.0) == 1.0 and stretch(2.0) == 2.0


class Costs:
    version = 0

    def __init__(self, costs_s: dict[str, float]) -> None:
        self._costs_s = costs_s

    def period_cost_s(self, table: str) -> float:
        return self._costs_s[table]

    def changed_since(self, version: int) -> None:
        return None

    def next_release_us(self, table: str) -> int | None:
        return None


def test_no_track_idles_for_updates_that_are_merged_anyway() -> None:
    """Every update takes about as long, most of it for starting, and files come faster than that: they wait and are loaded together. Nobody is short
    or long then, and a free track is for whoever is ready."""
    costs = {"often": 20.0, **{name: 22.0 + number for number, name in enumerate("abcdefgh")}}
    periods = {name: 5 if name == "often" else 60 for name in costs}
    graph = Graph(
        [Feed(name, period * SECOND_US) for name, period in periods.items()],
        [Table(name, "hour", feed=name) for name in costs],
    )
    policy = bound(find_policy("reserve"), graph)
    ready = powers(policy).no_jobs()
    ready.put(ReadyJob("c", 1, 1, 0, 100, 50, 0, 0, 0.1, 1.0, 24.0))
    running = {0: RunningJob("b", 0, 0, 23.0)}
    (start,) = policy.decide(Situation(0, ready, running, (1,), 2, outlook=Costs(costs))).starts
    assert (start.table, start.track) == ("c", 1)
