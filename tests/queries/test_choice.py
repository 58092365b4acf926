"""The choice for one query, against brute force: try every option and look how it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queries.choice import HOPELESS, Option, Way, choose, prospect, queued
from penstock.queries.contract import ANY, STRICT, Contract, Freshness, OutcomeWeights, WhenStale
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Cause, Stale, ending, judged, value

S = 1_000_000
NOW = 1000 * S
# Newest state, an update that is nearly done, a chain of refreshes, an older state that is quick to read, a torn one.
OPTIONS = (
    Option(Way.NOW, Estimate(2), NOW - 60 * S, 2),
    Option(Way.WAIT, Estimate(2), NOW - 10 * S, 1, wait=Estimate(3), tables=("hourly",)),
    Option(Way.REFRESH, Estimate(2), NOW, 0, wait=Estimate(6), work_s=5, tables=("orders", "hourly")),
    Option(Way.OLDER, Estimate(1), NOW - 300 * S, 5),
    Option(Way.NOW, Estimate(2), NOW - 5 * S, 1, consistent=False, key="torn"),
)
NEEDS = (ANY, STRICT, Freshness(lag=1), Freshness(age_us=64 * S), Freshness(age_us=20 * S), Freshness(30 * S, 0))
WEIGHTS = (
    OutcomeWeights(),
    OutcomeWeights(1, 0.5, 0.1, 0.1),
    OutcomeWeights(1, 0.1, 0.5, 0.1),
    OutcomeWeights(1, 0.1, 0.1, 0.5),
    OutcomeWeights(1, 5, 1, 1),
    OutcomeWeights(1, 1, 5, 1),
    OutcomeWeights(1, 1, 1, 5),
)


def tried(option: Option, contract: Contract, price: float) -> tuple[float, bool]:
    """What an option without spread turns out to be worth, and whether the user gets something."""
    ends = NOW + round((option.wait.mean_s + option.run.mean_s) * S)
    outcome = judged(contract, NOW, ends, option.complete_us, option.lag)
    answered = value(ending(outcome), contract.weights) >= contract.weights.success or (
        isinstance(outcome, Stale) and not outcome.withheld
    )
    return value(ending(outcome), contract.weights) - price * (option.run.mean_s + option.work_s), answered


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_every_small_case(weights: OutcomeWeights) -> None:
    cases = 0
    for within, need, consistent, stale, price in product(
        (None, 1, 2, 4, 6, 9), NEEDS, (True, False), WhenStale, (0.0, 0.1)
    ):
        contract = Contract(None if within is None else within * S, need, consistent, weights, stale)
        for size in (0, 1, 2, 5):
            for some in combinations(OPTIONS, size):
                allowed = [option for option in some if option.consistent or not consistent]
                worth = [tried(option, contract, price) for option in allowed]
                best = max((w for w, answered in worth if answered), default=float("-inf"))
                choice = choose(contract, some, NOW, price_per_s=price)
                cases += 1
                if best >= -weights.rejected - 1e-9:
                    assert choice.option in allowed and choice.prospect is not None
                    assert tried(choice.option, contract, price) == (pytest.approx(best), True)
                    assert choice.prospect.expected == pytest.approx(best)
                else:
                    assert choice.way is Way.REJECT and choice.rejected is not None
                    if size != 2 and consistent:
                        check_what_is_told(contract, some, price)
    assert cases == 6 * 6 * 2 * 2 * 2 * (1 + 5 + 10 + 1)


def check_what_is_told(contract: Contract, some: tuple[Option, ...], price: float) -> None:
    """With the time or the freshness that is told, the same query is accepted; with less time, by brute force, not."""
    rejected = choose(contract, some, NOW, price_per_s=price).rejected
    assert rejected is not None
    grid = (1, 2, 3, 4, 5, 6, 7, 8, 9, 30)

    def accepted(other: Contract) -> bool:
        return choose(other, some, NOW, price_per_s=price).way is not Way.REJECT

    possible = [d for d in grid if accepted(replace(contract, within_us=d * S))]
    if rejected.acceptable_within_us is None:
        assert not possible
    else:
        assert accepted(replace(contract, within_us=rejected.acceptable_within_us))
        assert possible and possible[0] * S <= rejected.acceptable_within_us <= possible[0] * S + 10
    need = rejected.acceptable_freshness
    if need is not None:
        assert accepted(replace(contract, freshness=need))
        stricter = Freshness(
            None if need.age_us is None else max(0, need.age_us - S), None if not need.lag else need.lag - 1
        )
        if need.lag is None or need.age_us is None:
            assert not accepted(replace(contract, freshness=stricter))


def test_ties_go_to_what_disturbs_least() -> None:
    contract = Contract(10 * S, ANY)
    assert choose(contract, OPTIONS, NOW).option == OPTIONS[0]
    # Nothing but a stale answer is left, and successes only count: better a marked answer than none.
    assert choose(Contract(2 * S), OPTIONS, NOW).option == OPTIONS[0]
    assert choose(Contract(2 * S, when_stale=WhenStale.WITHHOLD), OPTIONS, NOW).way is Way.REJECT


@pytest.mark.parametrize(
    ("contract", "price", "cause"),
    [
        (Contract(1 * S, ANY), 0.0, Cause.IMPOSSIBLE),
        (Contract(4 * S, STRICT, when_stale=WhenStale.WITHHOLD), 0.0, Cause.FRESHNESS),
        (Contract(10 * S, STRICT), 0.2, Cause.OTHERS),
    ],
)
def test_why_it_is_rejected(contract: Contract, price: float, cause: Cause) -> None:
    rejected = choose(contract, OPTIONS[:3], NOW, price_per_s=price).rejected
    assert rejected is not None and rejected.cause is cause


def test_behind_others_it_is_late() -> None:
    behind = [queued(option, Estimate(9)) for option in OPTIONS[:3]]
    rejected = choose(Contract(10 * S, ANY), behind, NOW).rejected
    assert rejected is not None and rejected.cause is Cause.DEADLINE
    assert rejected.acceptable_within_us == pytest.approx(11 * S, abs=10)


def test_a_query_that_has_waited_has_less_left() -> None:
    contract = Contract(8 * S, STRICT, when_stale=WhenStale.WITHHOLD)
    assert choose(contract, OPTIONS, NOW, NOW).way is Way.REFRESH
    late = choose(contract, OPTIONS, NOW, NOW - S)
    assert late.rejected is not None and late.rejected.acceptable_within_us == pytest.approx(9 * S, abs=10)


TIMES = st.floats(0.1, 20)


@given(
    TIMES,
    st.floats(0.01, 10),
    st.floats(0, 20),
    st.floats(0, 5),
    st.sampled_from(NEEDS),
    st.sampled_from(WEIGHTS),
    st.integers(1, 40),
    st.integers(0, 2),
    st.integers(0, 90),
)
def test_chances_against_many_tries(
    mean: float,
    spread: float,
    wait: float,
    wait_spread: float,
    need: Freshness,
    weights: OutcomeWeights,
    within: int,
    lag: int,
    age: int,
) -> None:
    option = Option(Way.WAIT, Estimate(mean, spread), NOW - age * S, lag, wait=Estimate(wait, wait_spread))
    contract = Contract(within * S, need, weights=weights)
    found = prospect(option, contract, NOW, NOW)
    assert found.success + found.stale + found.missed == pytest.approx(1)
    total = option.wait.then(option.run)
    tries = 2000
    worth = 0.0
    for number in range(tries):
        took = total.quantile((number + 0.5) / tries)
        worth += value(ending(judged(contract, NOW, NOW + round(took * S), option.complete_us, lag)), weights)
    assert found.expected == pytest.approx(worth / tries, abs=0.02)
    choice = choose(contract, [option], NOW)
    if choice.rejected is None:
        assert found.expected >= -weights.rejected - 1e-6 and found.in_time >= HOPELESS - 1e-6
    elif choice.rejected.acceptable_within_us is not None:
        told = replace(contract, within_us=choice.rejected.acceptable_within_us)
        assert choose(told, [option], NOW).way is not Way.REJECT


@given(TIMES, st.floats(0, 10), st.floats(0.001, 0.999))
def test_quantiles_and_chances_are_inverse(mean: float, spread: float, chance: float) -> None:
    estimate = Estimate(mean, spread)
    if spread > 0.001 * mean:
        assert estimate.chance(estimate.quantile(chance)) == pytest.approx(chance, abs=1e-6)
    else:
        assert estimate.quantile(chance) == pytest.approx(mean, rel=0.01)
