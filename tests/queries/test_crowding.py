"""What one more query costs those who wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queries.estimate import Estimate, WaitingQuery, loss


def asked(deadline_s: float, run_s: float, worth: float = 1.0, spread_s: float = 0.0) -> WaitingQuery:
    return WaitingQuery(deadline_s, Estimate(run_s, spread_s), worth)


def test_worked_example() -> None:
    """One lane, free at once. Two wait: a (deadline 3, runs 2) and b (deadline 7, runs 2), which end at 2 and at 4 and are in time.

    A new one with deadline 5 that runs 2 goes between them: b would end at 6, still in time. One that runs 4 makes b end at 8: its worth is lost.
    One with deadline 2 that runs 2 goes before both: a would end at 4, b at 6, so a is lost."""
    waiting = [WaitingQuery(7, Estimate(2), 1.0), WaitingQuery(3, Estimate(2), 5.0)]
    # How uncertain the start is spreads the chances a little; with a start at 0 nothing is uncertain.
    assert loss(waiting, asked(5, 2), [0.0]) == pytest.approx(0.0, abs=0.25)
    assert loss(waiting, asked(5, 4), [0.0]) == pytest.approx(1.0, abs=0.35)
    assert loss(waiting, asked(2, 2), [0.0]) == pytest.approx(5.0, abs=0.6)
    # With a second lane there is room for all.
    assert loss(waiting, asked(2, 2), [0.0, 0.0]) < 0.01
    # Who is behind all costs nobody anything; who would be late anyway loses nothing.
    assert loss(waiting, asked(9, 100), [0.0]) == 0.0
    assert loss([asked(1, 3)], asked(0.5, 3), [0.0]) == 0.0


questions = st.builds(
    asked,
    st.floats(0.01, 50),
    st.floats(0.01, 20),
    st.floats(0, 5),
    st.floats(0, 5),
)


@given(st.lists(questions, max_size=8), questions, st.lists(st.floats(0, 10), min_size=1, max_size=3))
def test_bounds(waiting: list[WaitingQuery], new: WaitingQuery, free: list[float]) -> None:
    """Nobody loses more than there is to lose, and nothing by a query that needs no time."""
    lost = loss(waiting, new, free)
    assert 0 <= lost <= sum(one.worth for one in waiting if one.deadline_s > new.deadline_s) + 1e-9
    assert loss(waiting, WaitingQuery(new.deadline_s, Estimate(0.0), 1.0), free) == pytest.approx(0.0, abs=1e-9)


@given(st.lists(questions, max_size=6), questions, st.floats(0, 10))
def test_on_one_lane_longer_work_never_costs_less(waiting: list[WaitingQuery], new: WaitingQuery, more: float) -> None:
    """Queries without spread, as the chances of a log-normal are not monotone in its mean alone."""
    plain = [WaitingQuery(one.deadline_s, Estimate(one.run.mean_s), one.worth) for one in waiting]
    longer = WaitingQuery(new.deadline_s, Estimate(new.run.mean_s + more), 1.0)
    shorter = WaitingQuery(new.deadline_s, Estimate(new.run.mean_s), 1.0)
    assert loss(plain, longer, [0.0]) >= loss(plain, shorter, [0.0]) - 1e-6
