"""The worked examples of Golab, Johnson, Shkapenyuk 2011, with their arithmetic."""

from __future__ import annotations

import pytest

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Table
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import ReadyJob, ReadyJobs, RunningJob, Situation
from penstock.scheduling.placement.base import Recurring
from penstock.scheduling.placement.edf_partitioned import EdfPartitioned, pack
from penstock.scheduling.placement.proportional import Proportional, clusters, share_out
from penstock.scheduling.policies import bound, find_policy
from penstock.sim import lean, runtime
from penstock.sim.outcome import FreshnessSum
from penstock.sim.scenario import Scenario, SimTable

S = SECOND_US


def job(table: str, gain_s: float, expected_s: float, priority: float = 1.0, release_s: float = 0) -> ReadyJob:
    release = round(release_s * S)
    return ReadyJob(
        table, priority, priority, release, release + 100 * S, round(gain_s * S), 0, 0, 0.1, gain_s, expected_s
    )


class Outlook:
    version = 1

    def __init__(self, costs: dict[str, float], releases: dict[str, float] | None = None) -> None:
        self.costs, self.releases = costs, releases or {}

    def period_cost_s(self, table: str) -> float:
        return self.costs[table]

    def next_release_us(self, table: str) -> int | None:
        return round(self.releases[table] * S) if table in self.releases else None


def situation(policy, jobs, free=(0,), tracks=1, outlook=None, running=()) -> Situation:
    ready = ReadyJobs(getattr(policy, "index", None), getattr(policy, "tie", None))
    for one in jobs:
        ready.put(one)
    busy = {track: RunningJob(table, track, 0, 1.0) for track, table in running}
    return Situation(0, ready, busy, tuple(free), tracks, outlook=outlook or Outlook({}))


# Sec. 3.1: J1 (E = 3, delta 10) and J2 (E = 2, delta 5), released together.

J1, J2 = job("J1", 10, 3), job("J2", 5, 2)


def test_max_benefit_takes_the_larger_marginal_benefit() -> None:
    """10 / 3 against 5 / 2."""
    policy = find_policy("max-benefit")
    (start,) = policy.decide(situation(policy, [J1, J2])).starts
    assert start.table == "J1"
    assert "benefit 3.33 per second" in start.why


@pytest.mark.parametrize(
    ("order", "areas"),
    [
        # Table 1: 10 .. 13 over three seconds, then 3 .. 5: 34.5 + 8. Table 2: 5 .. 10 over five seconds.
        (("J1", "J2"), {"J1": 42.5, "J2": 37.5}),
        # Table 2: 5 .. 7 over two seconds, then 2 .. 5: 12 + 10.5. Table 1: 10 .. 15 over five seconds.
        (("J2", "J1"), {"J2": 22.5, "J1": 62.5}),
    ],
)
def test_80_against_85(order: tuple[str, str], areas: dict[str, float]) -> None:
    takes, gains = {"J1": 3, "J2": 2}, {"J1": 10, "J2": 5}
    now = 0
    found = {}
    for name in order:
        now += takes[name]
        fresh = FreshnessSum(-gains[name] * S)
        fresh.moved(now * S, 0)
        found[name] = fresh.mean_s(5 * S) * 5
    assert found == pytest.approx(areas)
    assert sum(found.values()) == (80 if order[0] == "J1" else 85)


def test_the_lookahead_of_101() -> None:
    """J3 comes in one second, with priority 10, E = 3, delta 50. {J2, J3}: (5 + 500) / (2 + 3) = 101 > 10 / 3."""
    tables = [
        Table(name, feed=name, priority=10 if name == "J3" else 1, period_us=50 * S) for name in ("J1", "J2", "J3")
    ]
    graph = Graph([Feed(t.name) for t in tables], tables)
    policy = bound(find_policy("max-benefit-lookahead"), graph)
    outlook = Outlook({"J1": 3, "J2": 2, "J3": 3}, {"J1": 99, "J2": 99, "J3": 1})
    decision = policy.decide(situation(policy, [J1, J2], outlook=outlook))
    assert [start.table for start in decision.starts] == ["J2"]
    # Without J3 in sight, or if it comes too late for J2 to bridge the time, J1 goes.
    for release in (99, 2.5):
        outlook.releases["J3"] = release
        assert policy.decide(situation(policy, [J1, J2], outlook=outlook)).starts[0].table == "J1"


# Sec. 3.2.4: four jobs on two tracks (period / execution time / utilisation).

FOUR = [Recurring("J1", 4, 1), Recurring("J2", 4, 1), Recurring("J3", 8, 2), Recurring("J4", 10, 1.25)]
COSTS = {one.table: one.cost_s for one in FOUR}


def four() -> Graph:
    tables = [Table(one.table, feed=one.table, period_us=round(one.period_s * S)) for one in FOUR]
    return Graph([Feed(t.name) for t in tables], tables)


def test_home_tracks_and_promotion() -> None:
    """J3 on the first track would make 0.75 > 1 - 2/4. J4 may go there: 0.5 + 0.125 <= 1 - 1.25/4 = 0.6875; J1 may not go
    to the second: 0.375 + 0.25 > 1 - 2/4."""
    homes = pack(FOUR, 2)
    assert homes.home == {"J1": 0, "J2": 0, "J3": 1, "J4": 1}
    assert homes.promotable == {"J1": (), "J2": (), "J3": (), "J4": (0,)}
    assert homes.used == 2 and homes.fits


def test_jobs_that_do_not_fit_go_where_there_is_least() -> None:
    homes = pack([*FOUR, Recurring("J5", 20, 10)], 2)
    assert not homes.fits and homes.home["J5"] == 1  # 0.375 on the second track, 0.5 on the first


@pytest.mark.parametrize(
    ("released", "running", "aggressive", "expected"),
    [
        (["J3"], [], False, [("J3", 1)]),
        (["J3"], [(1, "J4")], False, []),  # not promotable
        (["J4"], [(1, "J3")], False, [("J4", 0)]),  # promoted
        (["J4", "J1"], [(1, "J3")], False, [("J1", 0)]),  # J1 wants its home, so J4 is not promoted
        (["J4", "J1"], [(1, "J3")], True, [("J4", 0)]),  # aggressive: it is
    ],
)
def test_promotion(released: list[str], running: list, aggressive: bool, expected: list) -> None:
    policy = bound(find_policy(f"edf-partitioned({'aggressive' if aggressive else 'non-aggressive'}) / fifo"), four())
    jobs = [job(name, 1, COSTS[name], release_s=number) for number, name in enumerate(released)]
    free = [track for track in (0, 1) if track not in dict(running)]
    found = policy.decide(situation(policy, jobs, free, 2, Outlook(COSTS), running))
    assert [(start.table, start.track) for start in found.starts] == expected


def test_clusters_and_ranges() -> None:
    """By execution time: J1, J2 (1), J4 (1.25), J3 (2). With k = 2 and periods: 4 < 8, but 10 >= 8 begins a new one, and
    8 < 20. U = 0.875, M = 2 / 0.875: the long cluster has 0 .. 0.857, the short one 0.857 .. 2."""
    groups = clusters(FOUR, 2, "P")
    assert [[one.table for one in group] for group in groups] == [["J1", "J2"], ["J4", "J3"]]
    ranges = share_out(groups, 2, all_tracks=True)
    assert ranges.high == pytest.approx((2.0, 0.375 * 2 / 0.875)) and ranges.low == pytest.approx(
        (0.375 * 2 / 0.875, 0)
    )
    assert list(ranges.tracks(0)) == [0, 1] and list(ranges.tracks(1)) == [0]
    # As printed, by execution time, all are one cluster: 2 < 2 * 4.
    assert len(clusters(FOUR, 2, "E")) == 1


def test_basic_leaves_free_tracks() -> None:
    ranges = share_out(clusters(FOUR, 2, "P"), 4, all_tracks=False)
    assert ranges.used == 1  # 0.875 rounded up
    assert share_out(clusters(FOUR, 2, "P"), 4, all_tracks=True).used == 4


@pytest.mark.parametrize(
    ("words", "released", "running", "expected"),
    [
        ("all, P", ["J1"], [], [("J1", 1)]),  # above its first track before that itself, which it shares
        ("all, P", ["J1", "J2"], [], [("J1", 1), ("J2", 0)]),
        ("all, P", ["J3"], [(0, "J1")], []),  # never on tracks of shorter jobs
        ("all, P", ["J3", "J4"], [], [("J3", 0)]),
        ("basic, P", ["J3", "J4"], [], [("J3", 0), ("J4", 1)]),  # a free track is for all
    ],
)
def test_proportional(words: str, released: list[str], running: list, expected: list) -> None:
    policy = bound(find_policy(f"proportional({words}, k=2) / fifo"), four())
    jobs = [job(name, 1, COSTS[name], release_s=number) for number, name in enumerate(released)]
    free = [track for track in (0, 1) if track not in dict(running)]
    found = policy.decide(situation(policy, jobs, free, 2, Outlook(COSTS), running))
    assert [(start.table, start.track) for start in found.starts] == expected


@pytest.mark.parametrize(("aggressive", "first"), [("aggressive", "s"), ("non-aggressive", "l")])
def test_a_short_job_takes_the_idle_track_of_long_ones(aggressive: str, first: str) -> None:
    """Two tracks, loads of one half each: the long cluster owns track 0, the short one track 1, which is busy."""
    tables = [Table("s", feed="s", period_us=10 * S), Table("s2", feed="s2", period_us=10 * S)]
    tables.append(Table("l", feed="l", period_us=1000 * S))
    graph = Graph([Feed(t.name) for t in tables], tables)
    policy = bound(find_policy(f"proportional(all, {aggressive}) / fifo"), graph)
    costs = {"s": 2.5, "s2": 2.5, "l": 500.0}
    jobs = [job("s", 1, 2.5, release_s=0), job("l", 1, 500, release_s=1)]
    found = policy.decide(situation(policy, jobs, (0,), 2, Outlook(costs), [(1, "s2")]))
    assert [(start.table, start.track) for start in found.starts] == [(first, 0)]


def test_more_load_than_tracks() -> None:
    heavy = [Recurring("a", 10, 9), Recurring("b", 10, 9), Recurring("c", 1000, 900), Recurring("d", 1000, 900)]
    ranges = share_out(clusters(heavy, 1), 2, all_tracks=False)
    assert ranges.high == pytest.approx((2, 1)) and ranges.low == pytest.approx((1, 0))


# Fig. 2: batches at 4 (with data up to 3), 7 and 9; the first is loaded at 5, the other two together at 11.


def test_the_trace_of_figure_2() -> None:
    fresh = FreshnessSum(0)
    found = {}
    for now, reach in ((5, 3), (11, 9)):
        found[now] = (now - fresh.fresh_us // S, now - reach)  # before and after
        fresh.moved(now * S, reach * S)
    assert found == {5: (5, 2), 11: (8, 2)}
    # Areas: 12.5 up to 5, then 2 .. 8 over six seconds is 30, then 2 .. 3 over one is 2.5.
    assert fresh.mean_s(12 * S) * 12 == pytest.approx(12.5 + 30 + 2.5)


@pytest.mark.parametrize("simulate", [lean.simulate, runtime.simulate])
def test_two_batches_are_loaded_together(simulate) -> None:
    """Batches of b at 3 and 6 come while a occupies the only track from 0 to 7: one update loads both, and b's freshness
    goes from 0 to 6 at 7 + 2 = 9."""
    tables = (
        SimTable("a", period_s=100, phase_s=0, alpha_s=7, beta=0, priority=5),
        SimTable("b", period_s=3, phase_s=3 - 1e-6, alpha_s=2, beta=0),
    )
    found = simulate(Scenario(tables, tracks=1, horizon_s=8.9), find_policy("max-benefit"), trace=True)
    assert found.trace == [(0, "a", 0, 7 * S), (7 * S, "b", 0, 2 * S)]


def test_placements_know_tables_only_if_told() -> None:
    for placement in (EdfPartitioned(), Proportional()):
        policy = find_policy("edf")
        jobs = [job("x", 1, 1), job("y", 1, 1)]
        at = situation(policy, jobs, (0, 1), 2)
        assert len(placement.place(at, at.ready.ranked(0), lambda job, value: "")) == 2
