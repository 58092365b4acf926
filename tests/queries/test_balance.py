"""The controller and the admission checks: by hand, and against loads that would lock it up or make it swing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies.base import checked, refreshing
from penstock.queries.policies.unit import LOOSEST, TIGHTEST, Balance, Signal
from penstock.queries.situation import Items, Query, QuerySituation


def counted(
    weights: OutcomeWeights, success: int = 0, missed: int = 0, stale: int = 0, rejected: dict[Cause, int] | None = None
) -> Balance:
    balance = Balance(100)
    for ending, number in ((Ending.SUCCESS, success), (Ending.MISSED, missed), (Ending.STALE, stale)):
        for _ in range(number):
            balance.count(ending, None, weights)
    for cause, number in (rejected or {}).items():
        for _ in range(number):
            balance.count(Ending.REJECTED, cause, weights)
    return balance


@pytest.mark.parametrize(
    ("weights", "found", "signal", "flex"),
    [
        (NAIVE, {"missed": 5, "stale": 4}, Signal.DEGRADE, 1.1),
        (NAIVE, {"missed": 4, "stale": 5}, Signal.UPGRADE, 1.0),
        (NAIVE, {"missed": 4, "rejected": {Cause.OTHERS: 5}}, Signal.LOOSEN, 0.9),
        # Rejected because updates leave no time: loosening would change nothing, nor does tightening help.
        (NAIVE, {"stale": 3, "rejected": {Cause.OVERLOAD: 5}}, Signal.DEGRADE, 1.0),
        # Missed deadlines cost what missed deadlines cost (Fig. 2), not what rejections do: 9 * 5 > 8 * 1.
        (OutcomeWeights(1, 5, 1, 1), {"missed": 8, "rejected": {Cause.OTHERS: 9}}, Signal.LOOSEN, 0.9),
        (OutcomeWeights(1, 5, 1, 1), {"missed": 8, "stale": 9}, Signal.UPGRADE, 1.0),
        # 4 * 5 > 9 * 1 and 9 * 1
        (OutcomeWeights(1, 1, 5, 1), {"missed": 4, "stale": 9, "rejected": {Cause.DEADLINE: 9}}, Signal.DEGRADE, 1.1),
        (OutcomeWeights(1, 1, 1, 5), {"missed": 4, "stale": 1, "rejected": {Cause.DEADLINE: 3}}, Signal.UPGRADE, 1.0),
        (NAIVE, {"success": 9}, None, 1.0),
    ],
)
def test_the_dominant_cost_decides(
    weights: OutcomeWeights, found: dict[str, int], signal: Signal | None, flex: float
) -> None:
    balance = counted(weights, **found)  # type: ignore[arg-type]
    assert balance.signal(100, 0.0) is signal
    assert balance.flex == pytest.approx(flex)
    assert balance.queries == 0  # counts anew


def test_each_query_counts_by_its_own_weights() -> None:
    """The same 39 queries in any order: the controller does the same."""
    dear, cheap = OutcomeWeights(1, 0.1, 5, 0.1), OutcomeWeights(1, 0.5, 0.1, 0.1)
    found = [(Ending.MISSED, None, dear)] * 9 + [(Ending.REJECTED, Cause.DEADLINE, cheap)] * 30
    for order in (found, found[::-1], found[::2] + found[1::2]):
        balance = Balance(100)
        for ending, cause, weights in order:
            balance.count(ending, cause, weights)
        assert balance.signal(100, 0.0) is Signal.DEGRADE  # 9 * 5 > 30 * 0.5


def test_ties_go_by_lot() -> None:
    signals = {counted(NAIVE, missed=3, stale=3).signal(0, lot / 10) for lot in range(10)}
    assert signals == {Signal.DEGRADE, Signal.UPGRADE}


def test_when_it_acts() -> None:
    balance = counted(NAIVE, success=50)
    assert not balance.due(99) and balance.due(100)
    balance.signal(100, 0)
    for _ in range(29):
        balance.count(Ending.MISSED, None, NAIVE)
    assert not balance.due(101)  # too few to believe it
    balance.count(Ending.MISSED, None, NAIVE)
    assert balance.due(101)  # from 1 to 0, more than a hundredth
    assert Balance.of_plain(json.loads(json.dumps(balance.plain()))) == balance


@pytest.mark.parametrize("cause", [Cause.OVERLOAD, Cause.DEADLINE, Cause.OTHERS])
def test_it_does_not_lock_up(cause: Cause) -> None:
    """Everything is rejected, again and again: something must change, and it must not end in doing the same for ever."""
    balance = Balance(100)
    signals = []
    for step in range(200):
        for _ in range(10):
            balance.count(Ending.REJECTED, cause, NAIVE)
        signals.append(balance.signal(step * 100, 0.5))
    if cause is Cause.OVERLOAD:
        assert set(signals) == {Signal.DEGRADE} and balance.flex == 1.0
    else:
        assert signals[0] is Signal.LOOSEN and balance.flex == LOOSEST and signals[-1] is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*((e, None) for e in (Ending.MISSED, Ending.STALE, Ending.SUCCESS))])
            | st.tuples(st.just(Ending.REJECTED), st.sampled_from(Cause)),
            st.integers(1, 20),
        ),
        max_size=60,
    ),
    st.sampled_from([NAIVE, OutcomeWeights(1, 5, 1, 1), OutcomeWeights(1, 0.1, 0.5, 0.1)]),
)
def test_flex_stays_in_its_bounds(
    found: list[tuple[tuple[Ending, Cause | None], int]], weights: OutcomeWeights
) -> None:
    balance = Balance(100)
    for number, ((ending, cause), count) in enumerate(found):
        for _ in range(count):
            balance.count(ending, cause, weights)
        balance.signal(number * 100, 0.3)
        assert LOOSEST <= balance.flex <= TIGHTEST


# Admission


def situation(weights: OutcomeWeights = NAIVE, *waiting: tuple[float, float], updates_s: float = 0) -> QuerySituation:
    """Queries with (deadline, work), each of an item of its own; item 9 is stale and costs 4."""
    found = QuerySituation(Items.of([4.0] * 10, [100.0] * 10))
    found.items.arrived[9] = 1
    found.waiting = [(d, n, Query(n, n, 0, d, w, weights=weights)) for n, (d, w) in enumerate(sorted(waiting))]
    found.update_work_s = updates_s
    return found


def test_the_deadline_check_by_hand() -> None:
    # Before it: 2 + 3; then it needs 4: done at 9.
    now = situation(NAIVE, (5, 2), (8, 3), (20, 1))
    assert checked(now, Query(9, 5, 0, 9, 4)) is None
    assert checked(now, Query(9, 5, 0, 8.9, 4)) is Cause.DEADLINE
    assert checked(now, Query(9, 5, 0, 3.9, 4)) is Cause.IMPOSSIBLE
    # C_flex = 1.2: 1.2 * 5 + 4 = 10
    assert checked(now, Query(9, 5, 0, 9.9, 4), 1.2) is Cause.DEADLINE
    assert checked(now, Query(9, 5, 0, 10, 4), 1.2) is None
    # Updates of 3 s before all: 12 s, but 9 s without them.
    late = situation(NAIVE, (5, 2), (8, 3), updates_s=3)
    assert checked(late, Query(9, 5, 0, 11, 4)) is Cause.OVERLOAD
    # A stale item: 5 + 4 + 4
    assert checked(now, Query(9, 9, 0, 12.9, 4), need=refreshing(now)) is Cause.DEADLINE
    assert checked(now, Query(9, 9, 0, 13, 4), need=refreshing(now)) is None


def test_lanes_share_the_work_before() -> None:
    # Two lanes: 2.5 s before it.
    now = situation(NAIVE, (5, 2), (6, 3), (20, 1))
    now.lanes_s = (0.0, 0.0)
    assert checked(now, Query(9, 5, 0, 6.5, 4)) is None
    assert checked(now, Query(9, 5, 0, 6.4, 4)) is Cause.DEADLINE


def test_the_satisfaction_check_by_hand() -> None:
    """Two queries end at 9 and 10 of 10 and 11: another 2 s before them makes both late."""

    def verdict(weights: OutcomeWeights, *waiting: tuple[float, float]) -> Cause | None:
        return checked(situation(weights, *waiting), Query(9, 5, 0, 5, 2, weights=weights))

    two = ((10.0, 9.0), (11.0, 1.0))
    assert verdict(NAIVE, *two) is Cause.OTHERS  # 2 (1 + 0) > 1 + 0: as printed it would be 0 > 0
    assert verdict(NAIVE, (10.0, 9.0), (12.0, 1.0)) is None  # only one is endangered: 1 > 1 is false
    assert verdict(OutcomeWeights(1, 5, 1, 1), *two) is None  # 2 (1 + 1) > 1 + 5 is false
    assert verdict(OutcomeWeights(1, 1, 5, 1), (10.0, 9.0)) is Cause.OTHERS  # 1 + 5 > 1 + 1
    # One that is late anyway is not endangered by it.
    assert verdict(OutcomeWeights(1, 1, 5, 1), (10.0, 10.5)) is None
