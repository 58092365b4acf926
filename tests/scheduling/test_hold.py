"""A job that would keep better ones waiting starts only if its own waiting costs more."""

from __future__ import annotations

from random import Random

from penstock.scheduling.jobs import FinishedJob, ReadyJob, ReadyJobs, RunningJob, Situation
from penstock.scheduling.placement.base import Recurring
from penstock.scheduling.placement.hold import Hold, JobOrder
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import powers
from penstock.sim.lean import _Outlook
from penstock.sim.scenario import Scenario, SimTable

S = 1_000_000
# Short ones every 10 s, 0.8 tracks together, and two that take 500 s of every 1000 s.
SHORT = tuple(SimTable(f"short{n}", period_s=10, priority=100, alpha_s=1, beta=0.1) for n in range(4))
LONG = tuple(SimTable(f"long{n}", period_s=1000, alpha_s=0, beta=0.5) for n in range(2))


def starts(scenario: Scenario, running: dict[int, RunningJob], memory: dict[str, float], *jobs: ReadyJob) -> list[str]:
    policy = bound(find_policy("hold"), scenario.graph)
    ready = powers(policy).no_jobs()
    for job in jobs:
        ready.put(job)
    free = tuple(track for track in range(scenario.tracks) if track not in running)
    at = Situation(1000 * S, ready, running, free, scenario.tracks, memory, outlook=_Outlook(scenario.costs_s, {}))
    return [start.table for start in policy.decide(at).starts]


def long_job(name: str) -> ReadyJob:
    return ReadyJob(name, 1, 1, 1000 * S, 2000 * S, 1000 * S, 0, 0, 0.1, 1.0, 500.0)


def test_the_last_track_is_kept_for_short_updates() -> None:
    both = Scenario((*SHORT, *LONG), tracks=2)
    runs = {0: RunningJob("long0", 0, 900 * S, 500.0)}
    assert starts(both, {}, {}, long_job("long0"), long_job("long1")) == ["long0"]
    assert starts(both, runs, {}, long_job("long1")) == []
    # With a track more there is one left for the short ones; but not if the machine is slow.
    assert starts(Scenario(both.tables, tracks=3), runs, {}, long_job("long1")) == ["long1"]
    assert starts(Scenario(both.tables, tracks=3), runs, {"slowness": 3.0}, long_job("long1")) == []


def test_nothing_is_kept_where_nobody_is_better() -> None:
    alike = Scenario(tuple(SimTable(f"t{n}", period_s=10, alpha_s=1, beta=0.1 + n / 100) for n in range(8)), tracks=2)
    runs = {0: RunningJob("t7", 0, 999 * S, 2.0)}
    last = ReadyJob("t6", 1, 1, 1000 * S, 1010 * S, 10 * S, 0, 0, 0.1, 1.0, 2.6)
    assert starts(alike, runs, {}, last) == ["t6"]


def test_what_a_query_waits_for_is_not_held() -> None:
    both = Scenario((*SHORT, *LONG), tracks=2)
    runs = {0: RunningJob("long0", 0, 900 * S, 500.0)}
    assert starts(both, runs, {}, long_job("long1")._replace(awaited_us=2000 * S)) == ["long1"]


def test_the_order_is_the_same_however_costs_came_about() -> None:
    chance = Random(1)
    graph = Scenario((*SHORT, *LONG)).graph
    names = list(graph.updated_with)
    jobs = {name: Recurring(name, 10.0, chance.uniform(1, 9)) for name in names}
    changed = JobOrder(graph, jobs.values())
    for _ in range(50):
        name = chance.choice(names)
        jobs[name] = Recurring(name, 10.0, chance.uniform(1, 9))
        changed.change([jobs[name]])
    anew = JobOrder(graph, jobs.values())
    for first in range(len(names) + 1):
        for capacity in (0.0, 0.3, 1.0, 2.5):
            assert changed.unserved(first, capacity) == anew.unserved(first, capacity)
    assert [changed.key(name) for name in names] == [anew.key(name) for name in names]


def test_how_slow_the_machine_is() -> None:
    def seen(*done: FinishedJob) -> float:
        return Hold(forget=0.5).remember(Situation(0, ReadyJobs(), {}, (), 1, {}, done))["slowness"]

    assert seen(FinishedJob("a", 0, 0, 2.0, 6.0)) == 2.0
    # Of a job of which nothing was expected, one learns nothing; of one that failed, that it is at most twice as slow.
    assert seen(FinishedJob("a", 0, 0, 0.0, 6.0)) == 1.0
    assert seen(FinishedJob("a", 0, 0, 2.0, 60.0, failed=True)) == 1.5
