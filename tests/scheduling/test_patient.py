"""The index that knows when waiting pays, against the arithmetic that it comes from."""

from __future__ import annotations

from random import Random

import pytest

from penstock.scheduling.jobs import ReadyJob, ReadyJobs, Situation
from penstock.scheduling.policies import find_policy
from penstock.scheduling.policies.index import MaxBenefit
from penstock.scheduling.policies.patient import Patient, _came_us, _Worth
from penstock.scheduling.protocol import powers
from penstock.sim.scenario import Scenario, SimTable

S = 1_000_000
EDGE = MaxBenefit()


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
    price = _Worth.of(job("t", n=n, period_s=period_s, alpha=alpha, inherited=priority)).price(0)

    def cost(periods: int) -> float:
        return priority * period_s * periods / 2 + price * alpha / (period_s * periods)

    best = sorted(range(1, 30), key=cost)[:2]
    assert sorted(best) == [n, n + 1]


def value(policy: Patient, found: ReadyJob, busy_since_us: int | None, now_s: float) -> float:
    lines = policy.lines(found, busy_since_us)
    _, a, b = [line for line in lines if line is lines[0] or line[0] <= now_s * S][-1]
    return a + b * now_s


def test_worked_example() -> None:
    """One batch of 100 s that takes 1 s and 10 s; its price is 100^2 / 2 * (1 * (1 - x / 1.2) + 1/2)^2 after x periods."""
    policy = Patient(lasts=0.5, alone=0)
    found = job("t", release_s=1000)
    benefit = 100 / 11
    assert value(policy, found, None, 1000) == pytest.approx(benefit)
    # Busy for 200 s: track time is worth 100 times the benefit, 909; the price is 11,250. When the next batch is due they are
    # 1,364 and 2,222: it never waits.
    assert value(policy, found, 800 * S, 1000) == value(policy, found, 800 * S, 1099.9) == pytest.approx(benefit)
    # Busy for 1000 s: 4,545 and 11,250; when it is due 5,000 and 2,222. They are equal when x is 0.6209 ...
    price, worth = 5000 * (1.5 - 0.6209 / 1.2) ** 2, benefit * 0.5 * 1062.09
    assert price == pytest.approx(worth, rel=1e-4)
    assert value(policy, found, 0, 1062) == pytest.approx(benefit)
    assert value(policy, found, 0, 1062.2) < benefit
    # ... and from there it falls to 5000 * (1 - 1 / 1.2 + 1/2)^2 / 550.
    assert value(policy, found, 0, 1099.999) == pytest.approx(5000 * (1.5 - 1 / 1.2) ** 2 / 550, rel=1e-3)
    assert value(policy, found, 0, 1081.045) == pytest.approx(
        (benefit + 5000 * (1.5 - 1 / 1.2) ** 2 / 550) / 2, rel=1e-3
    )
    # It is due and did not come.
    assert value(policy, found, 0, 1100.001) == pytest.approx(benefit)
    # Busy for ever: only its start-up counts.
    assert value(policy, found, -(10**6) * S, 1000) == pytest.approx(11_250 / 500_500)


@pytest.mark.parametrize("seed", range(200))
def test_between_max_benefit_and_what_it_is_worth(seed: int) -> None:
    chance = Random(seed)
    policy = Patient(lasts=chance.choice((0.1, 0.5, 3.0)), alone=0)
    found = job(
        "t",
        release_s=chance.randrange(10_000),
        period_s=chance.choice((10, 100, 3600)),
        n=chance.choice((0.5, 1, 2, 7)),
        alpha=chance.choice((0, 0.5, 20)),
        beta=chance.choice((0, 0.01, 0.3)) or 1e-6,
        inherited=chance.choice((0.001, 1, 100)),
    )
    benefit, _ = EDGE.index(found)
    worth = _Worth.of(found)
    came_s = _came_us(found) / S
    since_s = came_s - chance.choice((-0.5, 0, 0.3, 2, 50, 1e5)) * worth.period_s
    for step in range(64):
        after_s = worth.period_s * step / 64
        seen = value(policy, found, int(since_s * S), came_s + after_s)
        busy_s = came_s + after_s - since_s
        least = min(benefit, worth.price(after_s) / (policy.lasts * busy_s)) if busy_s > 0 else benefit
        assert least * (1 - 1e-6) <= seen <= benefit * (1 + 1e-6)
        if least == benefit:
            assert seen == pytest.approx(benefit, rel=1e-6)
    assert policy.lines(found, None) == ((0, benefit, 0.0),)
    assert Patient(lasts=0, alone=0).lines(found, int(since_s * S)) == ((0, benefit, 0.0),)


def test_the_backlog_waits_where_it_is_dear_unless_the_overload_lasts() -> None:
    """A cheap table with one batch, a dear one with six: after a while it pays to let the cheap one wait for its second."""
    cheap, dear = job("cheap", release_s=1000, beta=0.01), job("dear", release_s=450, n=6)
    policy = find_policy("patient")
    for busy_since_s, first in ((900, "cheap"), (-5000, "dear")):
        ready = powers(policy).no_jobs()
        ready.put(cheap)
        ready.put(dear)
        assert next(ready.ranked(1000 * S, busy_since_s * S))[1].table == first


def test_between_equals_the_youngest() -> None:
    ready = powers(find_policy("patient")).no_jobs()
    for number in (2, 3, 1):
        ready.put(job(f"t{number}", release_s=number))
    assert [found.table for _, found in ready.ranked(10 * S)] == ["t3", "t2", "t1"]


def test_busy_is_when_more_wait_than_tracks_are_free() -> None:
    policy = Patient(alone=0)
    ready = ReadyJobs(policy.index, policy.tie, policy.lines)

    def remembered(now_s: int, memory: dict[str, int]) -> dict[str, int]:
        return dict(policy.remember(Situation(now_s * S, ready, {}, (0, 1), 2, memory)))

    ready.put(job("a"))
    ready.put(job("b"))
    assert remembered(10, {}) == {}
    # A backfill waits as long as others have something to do: it does not make the tracks busy.
    ready.put(job("old", n=0, late=3))
    assert remembered(20, {}) == {}
    # What is ready now found no track before: the tracks have been busy since then.
    for name in "abc":
        ready.put(job(name, release_s=25))
    assert remembered(30, {}) == {"busy_since_us": 25 * S}
    assert remembered(40, {"busy_since_us": 30 * S}) == {"busy_since_us": 30 * S}
    ready.discard("a")
    assert remembered(50, {"busy_since_us": 30 * S}) == {}
    ready.put(job("b", n=0, late=1))
    assert ready.fresher == {"c"}


def test_what_it_says() -> None:
    policy = Patient(alone=0)
    found = job("t", release_s=1000)
    assert "counted" not in policy.why(found, 100 / 11)
    assert "counted below its own 9.09" in policy.why(found, 5.0)
    assert "one start (1.00s) would also do for its next batch" in policy.why(found, 5.0)


@pytest.mark.parametrize("lasts", [-1, float("nan"), float("inf")])
def test_bad_parameters(lasts: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Patient(lasts=lasts)


def test_a_backfill_gains_weight_while_it_waits() -> None:
    ready = powers(find_policy("patient")).no_jobs()
    ready.put(job("backfill", n=0, late=50, late_since_us=0))
    ready.put(job("edge", n=2, inherited=2.0))
    assert next(ready.ranked(2 * S, 0))[1].table == "edge"
    assert next(ready.ranked(10 * S, 0))[1].table == "backfill"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("many", [20, 150])
def test_lines_that_bend_are_ranked_as_a_sort_would(seed: int, many: int) -> None:
    chance = Random(seed)
    policy = Patient(alone=0)
    ready, jobs, now, since = ReadyJobs(policy.index, policy.tie, policy.lines), {}, 0, None
    for _ in range(120):
        now += chance.choice((0, 1, 7 * S, 40 * S, 300 * S))
        for _ in range(chance.randint(0, many // 4)):
            name = f"t{chance.randrange(many)}"
            if chance.random() < 0.3:
                ready.discard(name)
                jobs.pop(name, None)
            else:
                jobs[name] = job(
                    name,
                    release_s=(now / S) - chance.randrange(500),
                    period_s=chance.choice((50, 100, 400)),
                    n=chance.choice((0, 1, 2, 5)),
                    alpha=chance.choice((0.5, 2)),
                    late=chance.choice((0, 0, 2)),
                    late_since_us=now // 2,
                )
                ready.put(jobs[name])
        if chance.random() < 0.1:
            since = chance.choice((None, now, now // 2, -(10**6) * S))
        values = {name: value(policy, found, since, now / S) for name, found in jobs.items()}
        found = [entry.table for _, entry in ready.ranked(now, since)]
        assert sorted(found) == sorted(jobs)
        assert [values[name] for name in found] == pytest.approx(sorted(values.values(), reverse=True))


def test_what_cannot_run_beside_itself_counts_more() -> None:
    """Half of its time a table is busy with its own data: what it has lost it makes good in the other half."""
    found = job("t", alpha=0, beta=0.5)
    assert Patient().index(found)[0] == pytest.approx(2 * EDGE.index(found)[0])
    assert Patient(alone=0.9).index(job("t", beta=5))[0] == pytest.approx(10 * EDGE.index(job("t", beta=5))[0])
    with pytest.raises(ValueError, match="less than 1"):
        Patient(alone=1)


def test_all_that_follows_counts_until_the_tracks_are_busy_for_long() -> None:
    graph = Scenario((SimTable("b"), SimTable("v", ("b",), priority=3), SimTable("w", ("v",), priority=2))).graph
    policy = Patient(alone=0).knowing(graph, {"b": 2.0, "v": 2.5, "w": 2.0})
    found = job("b", inherited=2.0)
    # b, v and w weigh 6 together, three times what b inherits; it takes 11 s, so that is over when they were busy for 22 s.
    alone = EDGE.index(found)[0]
    assert value(policy, found, None, 50) == pytest.approx(3 * alone)
    assert value(policy, found, 30 * S, 51.9) == pytest.approx(3 * alone)
    assert value(policy, found, 30 * S, 52.1) == pytest.approx(alone)
    assert "all that follows" in policy.why(found, 3 * alone)
