"""Contracts, outcomes and the satisfaction metric."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queries.contract import ANY, STRICT, Contract, Freshness, OutcomeWeights, Profile, WhenStale
from penstock.queries.outcome import (
    Cause,
    DeadlineMissed,
    Ending,
    Rejected,
    Satisfaction,
    Stale,
    Success,
    Tally,
    ending,
    judged,
    value,
)

S = 1_000_000


def test_the_freshness_of_the_paper() -> None:
    # 1 / (1 + lag) >= 0.9 only for lag 0; >= 1/3 for lag 2.
    assert Freshness.of_percent(90) == STRICT
    assert Freshness.of_percent(100 / 3) == Freshness(lag=2)
    for lag in range(20):
        assert Freshness.of_percent(100 / (1 + lag)).lag == lag


def test_needs() -> None:
    assert STRICT.met(None, 0) and not STRICT.met(0, 1) and not STRICT.met(0, None)
    assert Freshness(age_us=30 * S).met(30 * S, None) and not Freshness(age_us=30 * S).met(30 * S + 1, 0)
    assert not Freshness(age_us=30 * S, lag=1).met(0, 2)
    assert ANY.met(None, None)
    assert str(Freshness(30 * S, 0)) == "no older than 30s and nothing that arrived missing"


def test_judging_an_answer() -> None:
    contract = Contract(within_us=2 * S, freshness=Freshness(age_us=30 * S))
    assert judged(contract, 100 * S, 101 * S, 71 * S, None) == Success(S, 71 * S, None)
    # One microsecond older than allowed when it is given.
    assert judged(contract, 100 * S, 101 * S, 71 * S - 1, None) == Stale(S, 71 * S - 1, None)
    assert judged(contract, 100 * S, 102 * S + 1, 102 * S, None) == DeadlineMissed(2 * S, started=True)
    strict = Contract(when_stale=WhenStale.WITHHOLD)
    assert judged(strict, 0, 10**12, 0, 3) == Stale(10**12, 0, 3, withheld=True)
    assert isinstance(judged(strict, 0, 10**12, 0, 0), Success)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Freshness(age_us=-1),
        lambda: Freshness(lag=-1),
        lambda: Freshness.of_percent(0),
        lambda: OutcomeWeights(rejected=-1),
        lambda: OutcomeWeights(success=0),
        lambda: Contract(within_us=0),
        lambda: Profile(share=0),
    ],
)
def test_contracts_that_make_no_sense(wrong: object) -> None:
    with pytest.raises(ValueError):
        wrong()  # type: ignore[operator]


def test_usm_by_hand() -> None:
    # Table 2 of the paper, high C_fm with penalties > 1: 1, 1, 5, 1. Six successes, two rejections, one miss, one stale:
    # (6 * 1 - 2 * 1 - 1 * 5 - 1 * 1) / 10 = -0.2
    weights = OutcomeWeights(1, 1, 5, 1)
    kept = Satisfaction()
    for kind, count in ((Ending.SUCCESS, 6), (Ending.REJECTED, 2), (Ending.MISSED, 1), (Ending.STALE, 1)):
        for _ in range(count):
            kept.add("all", kind, weights)
    assert kept.overall.usm == pytest.approx(-0.2)
    assert kept.overall.ratio(Ending.REJECTED) == 0.2
    assert Tally().usm == 0


OUTCOMES = st.sampled_from(
    [Success(1), Rejected("full", Cause.OTHERS), DeadlineMissed(1), Stale(1), Stale(1, withheld=True)]
)
WEIGHTS = st.builds(
    OutcomeWeights,
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([0.0, 0.5, 5.0]),
    st.sampled_from([0.0, 0.5, 5.0]),
    st.sampled_from([0.0, 0.5, 5.0]),
)


@given(st.lists(st.tuples(st.sampled_from("abc"), OUTCOMES, WEIGHTS)))
def test_tallies_add_up(found: list[tuple[str, object, OutcomeWeights]]) -> None:
    kept = Satisfaction()
    for profile, outcome, weights in found:
        kept.add(profile, outcome, weights)  # type: ignore[arg-type]
    assert kept.overall.queries == len(found) == sum(tally.queries for tally in kept.values())
    worth = sum(value(ending(outcome), weights) for _, outcome, weights in found)  # type: ignore[arg-type]
    assert kept.overall.total == pytest.approx(worth)
    assert sum(kept.values(), Tally()).total == pytest.approx(worth)
    if found:
        worst = -max(max(w.rejected, w.missed, w.stale) for _, _, w in found)
        assert worst <= kept.overall.usm <= max(w.success for _, _, w in found)
    again = Satisfaction.of_plain(json.loads(json.dumps(kept.plain())))
    assert dict(again) == dict(kept)
