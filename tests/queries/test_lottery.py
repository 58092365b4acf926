"""Tickets and lots: frequencies match, and periods follow the corrected formulas."""

from __future__ import annotations

import json
from collections import Counter
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queries.policies.unit import Lottery, Periods, Tickets, UnitSettings
from penstock.queries.situation import Items

VALUES = st.lists(st.integers(-20, 20), min_size=1, max_size=33)


@given(VALUES, st.lists(st.tuples(st.integers(0, 32), st.integers(-30, 30)), max_size=20))
def test_frequencies_match_the_tickets(values: list[int], changes: list[tuple[int, int]]) -> None:
    """Lots at equal distances: each item is drawn as often as its tickets above the smallest, exactly."""
    lottery = Lottery(values)
    for item, value in changes:
        if item < len(values):
            values[item] = lottery[item] = value  # type: ignore[assignment]
    assert lottery.plain() == [float(value) for value in values]
    expected = {item: value - min(values) for item, value in enumerate(values)}
    total = sum(expected.values())
    if not total:
        assert lottery.draw(0.5) is None
        return
    drawn = Counter(lottery.draw((number + 0.5) / total) for number in range(total))
    assert drawn == Counter({item: count for item, count in expected.items() if count})


def test_a_draw_touches_few() -> None:
    """A million items: neither changes nor draws look at all of them."""
    lottery = Lottery([1.0] * 2**20)
    lottery[5] = 1.0 + 2**20
    touched = []

    class Watched(list[float]):
        def __getitem__(self, at):  # type: ignore[no-untyped-def, override]
            touched.append(at)
            return super().__getitem__(at)

    lottery._sum = Watched(lottery._sum)
    assert lottery.draw(0.3) == 5
    lottery[7] = 3.0
    assert len(touched) < 100


def test_tickets_by_hand() -> None:
    tickets = Tickets.of(Items.of([1.0, 3.0], [1.0, 1.0]))  # 2 s on average
    tickets.updated(1)
    # 1 / (1 + exp(-(3 - 2) / 2))
    assert tickets.lottery[1] == pytest.approx(1 / (1 + exp(-0.5)))
    tickets.read(1, 0.5, 10)
    assert tickets.lottery[1] == pytest.approx(0.9 / (1 + exp(-0.5)) - 0.05)
    tickets.read(0, 2, 4)
    tickets.read(0, 2, 4)
    assert tickets.lottery[0] == pytest.approx(0.9 * -0.5 - 0.5)


def test_old_reads_are_forgotten() -> None:
    tickets = Tickets.of(Items.of([1.0], [1.0]))
    for _ in range(100):
        tickets.read(0, 1, 2)
    assert tickets.lottery[0] == pytest.approx(-0.5 / 0.1, rel=0.01)  # the sum of 0.5 * 0.9^k
    for _ in range(100):
        tickets.updated(0)
    assert tickets.lottery[0] == pytest.approx(0.5 / 0.1, rel=0.01)


def test_periods_by_hand() -> None:
    periods = Periods([10.0, 20.0])
    periods.degrade(0)
    periods.degrade(0)
    assert periods.period_s(0) == pytest.approx(12.1)  # 10 * 1.1^2
    for _ in range(8):
        periods.degrade(0)
    assert periods.period_s(0) == pytest.approx(25.937, abs=0.001)  # 10 * 1.1^10
    periods.upgrade()
    assert periods.period_s(0) == pytest.approx(20.937, abs=0.001)
    for _ in range(3):
        periods.upgrade()
    assert periods.period_s(0) == 10  # never below the ideal
    assert periods.period_s(1) == 20 and not periods.changed


def test_periods_come_back() -> None:
    """They grow exponentially and shrink linearly: without a limit, an hour of misses (120 signals) would need 92,000 upgrades."""
    periods = Periods([10.0])
    for _ in range(120):
        periods.degrade(0)
    assert periods.period_s(0) == 200
    for _ in range(38):
        periods.upgrade()
    assert periods.period_s(0) == 10


def test_constants_can_be_set() -> None:
    periods = Periods([10.0], UnitSettings(c_du=1.0, c_uu=0.1, stretch=3.0))
    periods.degrade(0)
    assert periods.period_s(0) == 20
    periods.upgrade()
    assert periods.period_s(0) == 19
    periods.degrade(0)
    assert periods.period_s(0) == 30
    with pytest.raises(ValueError, match="c_du = 0; expected a number above 0"):
        UnitSettings(c_du=0)


def test_costs_that_are_known_later_count() -> None:
    items = Items.of([1.0, 1.0], [1.0, 1.0])
    tickets = Tickets.of(items)
    items.cost_s[1] = 3.0  # type: ignore[index]
    tickets.renew()
    tickets.updated(1)
    assert tickets.lottery[1] == pytest.approx(1 / (1 + exp(-0.5)))


@given(st.lists(st.one_of(st.integers(0, 3), st.none()), max_size=60))
def test_counted_upgrades_are_the_same_as_applied_ones(steps: list[int | None]) -> None:
    ideal = [1.0, 2.0, 5.0, 10.0]
    periods, plain = Periods(ideal), list(ideal)
    for step in steps:
        if step is None:
            periods.upgrade()
            plain = [max(i, p - 0.5 * i) for i, p in zip(ideal, plain, strict=True)]
        else:
            periods.degrade(step)
            plain[step] = min(plain[step] * 1.1, 20 * ideal[step])
    again = Periods.of_plain(ideal, json.loads(json.dumps(periods.plain())))
    for item in range(4):
        assert periods.period_s(item) == pytest.approx(plain[item]) == again.period_s(item)
