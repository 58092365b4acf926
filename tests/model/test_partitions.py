"""The algebra of partition sets and interval maps, against plain sets and dictionaries of integers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.grain import WHOLE, Fixed, Grain, parse_grain
from penstock.model.partitions import EMPTY, EVERYTHING, IntervalMap, PartitionSet
from penstock.model.time import BEGIN_US, END_US, HOUR_US, parse_instant

TOP = 24
intervals = st.lists(st.tuples(st.integers(0, TOP), st.integers(0, TOP)), max_size=6)
sets = intervals.map(lambda found: PartitionSet.of(*found))


def members(partitions: PartitionSet) -> set[int]:
    return {n for n in range(-2, TOP + 3) if n in partitions}


def canonical(partitions: PartitionSet) -> bool:
    flat = [end for interval in partitions for end in interval]
    return all(a < b for a, b in itertools.pairwise(flat))


@given(intervals)
def test_of_is_the_union(found: list[tuple[int, int]]) -> None:
    made = PartitionSet.of(*found)
    assert members(made) == {n for start, end in found for n in range(start, end)}
    assert canonical(made)


@given(sets, sets)
def test_operators_are_those_of_sets(a: PartitionSet, b: PartitionSet) -> None:
    for made, expected in [
        (a | b, members(a) | members(b)),
        (a & b, members(a) & members(b)),
        (a - b, members(a) - members(b)),
    ]:
        assert members(made) == expected
        assert canonical(made)
    assert (a <= b) == (members(a) <= members(b))
    assert bool(a) == bool(members(a))
    assert (a == b) == (members(a) == members(b))


@given(sets, sets, sets)
def test_laws(a: PartitionSet, b: PartitionSet, c: PartitionSet) -> None:
    assert a | b == b | a and a & b == b & a
    assert a | (b | c) == (a | b) | c and a & (b & c) == (a & b) & c
    assert a & (b | c) == (a & b) | (a & c)
    assert a - (b | c) == (a - b) & (a - c)
    assert a.complement().complement() == a
    assert a | a.complement() == EVERYTHING and a & a.complement() == EMPTY


@given(sets, st.integers(0, TOP), st.integers(0, TOP))
def test_within(a: PartitionSet, low: int, high: int) -> None:
    assert members(a.within(low, high)) == {n for n in members(a) if low <= n < high}


GRAINS = [parse_grain(name) for name in ("hour", "360m", "day", "week", "month")] + [
    parse_grain("day", "America/New_York"),
    WHOLE,
]
T0 = parse_instant("2024-02-20")
times = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), max_size=4).map(
    lambda found: PartitionSet.of(*((T0 + a * HOUR_US, T0 + b * HOUR_US + 7) for a, b in found))
)


@given(times, st.sampled_from(GRAINS), st.integers(0, 30))
def test_whole_partitions(some: PartitionSet, grain: Grain, limit: int) -> None:
    hull = some.hull(grain)
    assert some <= hull and hull.hull(grain) == hull and canonical(hull)
    starts = hull.starts(grain)
    assert len(starts) == hull.count(grain)
    assert hull.starts(grain, limit) == starts[:limit]
    assert PartitionSet.of(*(grain.hull(start, start + 1) for start in starts)) == hull
    first = hull.first(grain, limit)
    assert first.starts(grain) == starts[:limit] and first <= hull


def test_the_oldest_partitions_of_all_time_can_be_taken() -> None:
    for grain in GRAINS:
        first = EVERYTHING.first(grain, 2)
        assert first.count(grain) == min(2, EVERYTHING.count(grain))
        assert first.intervals[0][0] == BEGIN_US


class Naive:
    """The same map, instant by instant."""

    def __init__(self) -> None:
        self.values: dict[int, frozenset[int]] = {}

    def add(self, keys: PartitionSet, value: frozenset[int]) -> None:
        for key in members(keys):
            self.values[key] = self.values.get(key, frozenset()) | value

    def remove(self, keys: PartitionSet) -> None:
        for key in members(keys):
            self.values.pop(key, None)


steps = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "within"]), sets, st.integers(0, 3)), max_size=15)


@given(steps)
def test_an_interval_map_is_a_map(found: list[tuple[str, PartitionSet, int]]) -> None:
    naive = Naive()
    made: IntervalMap[frozenset[int]] = IntervalMap(frozenset.__or__)
    for what, keys, number in found:
        value = frozenset({number})
        there = {n: naive.values[n] for n in members(keys) if n in naive.values}
        if what == "add":
            naive.add(keys, value)
            made.add(keys, value)
        elif what == "remove":
            naive.remove(keys)
            assert spread(made.remove(keys)) == there
        else:
            assert spread(made.within(keys)) == there
        pieces = list(made.pieces())
        assert spread(pieces) == naive.values
        assert members(made.domain()) == set(naive.values)
        assert len(made) == len(pieces) and bool(made) == bool(naive.values)
        # Sorted, apart, and never cut where nothing changes, so that equal maps look equal.
        for (_, end, value_), (start, _, next_value) in itertools.pairwise(pieces):
            assert end < start or (end == start and value_ != next_value)


def spread(pieces: list[tuple[int, int, frozenset[int]]]) -> dict[int, frozenset[int]]:
    return {n: value for start, end, value in pieces for n in range(start, end)}


def test_ten_years_of_hours_are_one_interval() -> None:
    hour = Fixed("hour", HOUR_US)
    years = PartitionSet.of((parse_instant("2014-01-01"), parse_instant("2024-01-01")))
    assert years.count(hour) == 87_648
    assert len((years - PartitionSet.of((T0, END_US))).intervals) == 1
