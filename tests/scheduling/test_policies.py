from __future__ import annotations

import pytest

from penstock.model.freshness import Staleness
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.scheduling.jobs import ReadyJob, ReadyJobs, Situation
from penstock.scheduling.policies import find_policy
from penstock.scheduling.policies.index import Fifo, MaxBenefit
from penstock.scheduling.protocol import UpdatePolicy
from tests.scheduling.test_ranking import ready


def decide(
    policy: UpdatePolicy, *jobs: ReadyJob, now_us: int = 0, tracks: int = 1, free: tuple[int, ...] | None = None
):
    found = ReadyJobs(policy.index)  # type: ignore[attr-defined]
    for job in jobs:
        found.put(job)
    free = tuple(range(tracks)) if free is None else free
    return policy.decide(Situation(now_us, found, {}, free, tracks)).starts


# Golab et al., Sec. 3.1: p1 = p2 = 1, E1 = 3, E2 = 2, dF1 = 10, dF2 = 5, both released at the same time.
J1 = ready("j1", expected_s=3.0, gain_us=10 * SECOND_US)
J2 = ready("j2", expected_s=2.0, gain_us=5 * SECOND_US)


def test_max_benefit_takes_the_larger_benefit_per_second() -> None:
    """10 / 3 = 3.33 against 5 / 2 = 2.5."""
    policy = MaxBenefit()
    assert policy.index(J1)[0] == pytest.approx(10 / 3)
    assert policy.index(J2)[0] == pytest.approx(5 / 2)
    assert [start.table for start in decide(policy, J2, J1)] == ["j1"]


@pytest.mark.parametrize(("order", "total"), [((J1, J2), 80.0), ((J2, J1), 85.0)])
def test_the_staleness_of_both_orders(order: tuple[ReadyJob, ...], total: float) -> None:
    """Between t and t + 5: J1 first gives 42.5 + 37.5 = 80, J2 first gives 85."""
    now = 100
    staleness = {job.table: Staleness() for job in order}
    for job in order:
        staleness[job.table].moved(now * SECOND_US, now * SECOND_US - job.gain_us)
    for job in order:
        now += round(job.expected_s)
        staleness[job.table].moved(now * SECOND_US, 100 * SECOND_US)
    for found in staleness.values():
        found.moved(105 * SECOND_US, 100 * SECOND_US)
    assert sum(found.area for found in staleness.values()) == total


def test_a_backfill_gains_weight_while_it_waits() -> None:
    """At first 3 s of freshness outweigh 2 old partitions (0.1 * 2 * age), after 15 s no more."""
    fresh = ready("fresh", gain_us=3 * SECOND_US)
    old = ready("old", late=2, late_since_us=1000 * SECOND_US)
    assert decide(MaxBenefit(), fresh, old, now_us=1014 * SECOND_US)[0].table == "fresh"  # 2.8
    assert decide(MaxBenefit(), fresh, old, now_us=1016 * SECOND_US)[0].table == "old"  # 3.2


def test_priority_is_that_of_whatever_depends_on_it() -> None:
    assert (
        decide(MaxBenefit(), ready("a", gain_us=9), ready("b", gain_us=1, priority=0.1, inherited=10.0))[0].table == "b"
    )


def test_every_free_track_gets_a_job_and_says_why() -> None:
    jobs = [ready(name, gain_us=gain * MINUTE_US) for name, gain in [("a", 1), ("b", 3), ("c", 2)]]
    starts = decide(MaxBenefit(), *jobs, tracks=3, free=(0, 2))
    assert [(start.table, start.track) for start in starts] == [("b", 0), ("c", 2)]
    assert (
        starts[0].why
        == "gains 3m of freshness in about 1.00s at priority 1: benefit 180 per second, the largest of the ready tables"
    )


def test_first_in_first_out() -> None:
    starts = decide(Fifo(), ready("late", release_us=7), ready("early", release_us=3), tracks=2)
    assert [start.table for start in starts] == ["early", "late"]
    assert starts[0].why.startswith("has waited longest")


def test_upkeep_only_when_there_is_nothing_else_and_a_track_to_spare() -> None:
    upkeep, work = ready("upkeep", upkeep=True), ready("work", gain_us=1)
    assert [start.table for start in decide(MaxBenefit(), upkeep, work, tracks=2)] == ["work"]
    assert [start.table for start in decide(MaxBenefit(), upkeep, tracks=2)] == ["upkeep"]
    assert decide(MaxBenefit(), upkeep, tracks=2, free=(1,)) == ()  # the last free track is kept for work
    assert [start.table for start in decide(MaxBenefit(), upkeep, tracks=1)] == ["upkeep"]


def test_policies_have_names() -> None:
    assert find_policy("max-benefit") is not None and find_policy("fifo") is not None
    with pytest.raises(ValueError, match="'best' is not a policy; expected"):
        find_policy("best")
