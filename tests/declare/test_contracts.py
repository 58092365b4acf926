"""Contracts from what users write."""

from __future__ import annotations

import pytest

from penstock.declare.contracts import contract_of, parse_weights
from penstock.model.time import SECOND_US
from penstock.queries.contract import ANY, STRICT, Contract, Freshness, OutcomeWeights, WhenStale


def test_what_is_said_replaces_what_the_profile_says() -> None:
    base = Contract(5 * SECOND_US, STRICT, True, OutcomeWeights(1, 0, 2, 0))
    assert contract_of(base) == base
    said = contract_of(base, within="1m30s", fresh="30s", consistent=False, stale="withhold", weights={"stale": 0.5})
    assert said == Contract(
        90 * SECOND_US, Freshness(30 * SECOND_US), False, OutcomeWeights(1, 0, 2, 0.5), WhenStale.WITHHOLD
    )
    # A freshness that is said replaces the other as a whole.
    assert contract_of(Contract(freshness=ANY), lag=3).freshness == Freshness(lag=3)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"within": "soon"}, "is not a duration"),
        ({"within": "0s"}, "leaves no time"),
        ({"stale": "hide"}, "`mark`"),
        ({"weights": {"late": 1.0}}, "weights are of success, rejected, missed, stale"),
        ({"weights": {"missed": -1.0}}, "positive number"),
        ({"weights": {"success": 0.0}}, "worth something"),
    ],
)
def test_what_makes_no_sense(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        contract_of(Contract(), **wrong)  # type: ignore[arg-type]


def test_a_query_counts_no_more_than_its_profile() -> None:
    """Else ten queries with `success=1e9` push everyone else out."""
    base = Contract(weights=OutcomeWeights(1, 0, 1, 0))
    loud = contract_of(base, weights={"success": 1e9, "missed": 3e9}).weights
    assert loud.span == pytest.approx(base.weights.span)
    assert (loud.missed / loud.success, loud.rejected, loud.stale) == (pytest.approx(3), 0, 0)
    # It may count less.
    assert contract_of(base, weights={"success": 0.1, "missed": 0.1}).weights == OutcomeWeights(0.1, 0, 0.1, 0)


def test_weights_as_text() -> None:
    assert parse_weights("rejected=0.5, missed=2") == {"rejected": 0.5, "missed": 2.0}
    for wrong in ("", "missed", "missed=", "missed=two", "missed=nan", "missed=2;stale=1"):
        with pytest.raises(ValueError, match="write for example"):
            parse_weights(wrong)
