"""The index that knows when waiting pays, against the arithmetic that it comes from."""

from __future__ import annotations

from random import Random

import pytest

from penstock.scheduling.jobs import ReadyJob, ReadyJobs
from penstock.scheduling.policies import find_policy
from penstock.scheduling.policies.patient import Patient

S = 1_000_000


def job(
    table: str,
    *,
    release_s: float = 0,
    period_s: float = 100,
    n: float = 1,
    alpha: float = 1,
    beta: float = 0.1,
    **more,
) -> ReadyJob:
    release, period, gain = int(release_s * S), int(period_s * S), n * period_s
    values = {"late": 0, "late_since_us": 0, "history_weight": 0.1, "inherited": 1.0, **more}
    return ReadyJob(
        table,
        1.0,
        values["inherited"],
        release,
        release + period,
        int(gain * S),
        values["late"],
        values["late_since_us"],
        values["history_weight"],
        gain,
        alpha + beta * gain,
        start_up_s=alpha,
    )


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize(("priority", "period_s", "alpha"), [(1, 100, 1), (10, 60, 3), (0.5, 3600, 20)])
def test_at_its_own_price_now_and_one_period_later_are_the_best(
    n: int, priority: float, period_s: float, alpha: float
) -> None:
    found = job("t", n=n, period_s=period_s, alpha=alpha, inherited=priority)
    a, b = Patient(patience=1e12, upto=100).index(found)
    came_s = (n - 1) * period_s  # the n-th batch
    # The index is the root of the price per period.
    price = (a + b * came_s) ** 2 * period_s

    def cost(periods: int) -> float:
        return priority * period_s * periods / 2 + price * alpha / (period_s * periods)

    best = sorted(range(1, 30), key=cost)[:2]
    assert sorted(best) == [n, n + 1]


def test_the_next_batch_is_waited_for_and_not_longer() -> None:
    policy = Patient(patience=1e12)
    just_came, soon_due = job("just", release_s=1000), job("soon", release_s=910)

    def value(found: ReadyJob, now_s: float) -> float:
        ready = ReadyJobs(policy.index, None, policy.turn)
        ready.put(found)
        ready.put(job("other", release_s=now_s))
        return {j.table: v for v, j in ready.ranked(int(now_s * S))}[found.table]

    # n (1 - x / 1.2) + 1/2 with n = 1: 1.5 against 1 - 0.9 / 1.2 + 0.5 = 0.75
    assert value(soon_due, 1000) / value(just_came, 1000) == pytest.approx(0.75 / 1.5)
    # Its batch was due at 1010 and did not come.
    assert value(soon_due, 1010.001) == pytest.approx(value(just_came, 1000))


def test_from_some_age_on_the_cheaper_goes_first() -> None:
    policy = find_policy("patient(patience=8, upto=4)")
    ready = ReadyJobs.under(policy)
    ready.put(job("dear", n=40, release_s=0, beta=0.2))
    ready.put(job("cheap", n=20, release_s=2000, beta=0.01))
    assert [found.table for _, found in ready.ranked(10_000 * S)] == ["cheap", "dear"]
    ready = ReadyJobs.under(find_policy("patient(patience=8, upto=100)"))
    ready.put(job("dear", n=40, release_s=0, beta=0.2))
    ready.put(job("cheap", n=20, release_s=2000, beta=0.01))
    assert [found.table for _, found in ready.ranked(10_000 * S)] == ["dear", "cheap"]


def test_a_backfill_gains_weight_while_it_waits() -> None:
    ready = ReadyJobs.under(find_policy("balanced"))
    ready.put(job("backfill", n=0, late=50, late_since_us=0))
    ready.put(job("edge", n=2, inherited=2.0))
    assert next(ready.ranked(10 * S))[1].table == "edge"
    assert next(ready.ranked(3600 * S))[1].table == "backfill"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("many", [20, 150])
def test_lines_that_turn_are_ranked_as_a_sort_would(seed: int, many: int) -> None:
    chance = Random(seed)
    policy = Patient(patience=2, upto=3)
    ready, jobs, now = ReadyJobs(policy.index, None, policy.turn), {}, 0
    for _ in range(120):
        now += chance.choice((0, 1, 7 * S, 40 * S, 300 * S))
        for _ in range(chance.randint(0, many // 4)):
            name = f"t{chance.randrange(many)}"
            if chance.random() < 0.3:
                ready.discard(name)
                jobs.pop(name, None)
            else:
                late = chance.choice((0, 0, 2))
                jobs[name] = job(
                    name,
                    release_s=(now / S) - chance.randrange(500),
                    period_s=chance.choice((50, 100, 400)),
                    n=chance.choice((1, 2, 5)),
                    alpha=chance.choice((0.5, 2)),
                    late=late,
                    late_since_us=now // 2,
                )
                ready.put(jobs[name])

        def value(found: ReadyJob, now_us: int) -> float:
            turn = policy.turn(found)
            a, b = turn[1:] if turn is not None and turn[0] <= now_us else policy.index(found)
            return a + b * (now_us / S)

        expected = sorted(jobs.values(), key=lambda found: (-value(found, now), found.release_us, found.table))
        found = [entry for _, entry in ready.ranked(now)]
        assert [value(entry, now) for entry in found] == pytest.approx([value(entry, now) for entry in expected])
