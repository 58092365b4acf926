"""Sets of partitions, and maps from partitions to values, held as intervals.

A `PartitionSet` is a set of instants that is made of whole partitions. It never lists them: ten years of hours are
one interval. All operators give canonical sets (sorted, disjoint, not touching), so equality is set equality.

>>> a, b = PartitionSet.of((0, 10)), PartitionSet.of((5, 20))
>>> (a | b).intervals, (a & b).intervals, (a - b).intervals
(((0, 20),), ((5, 10),), ((0, 5),))
>>> a & b <= a <= a | b
True
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.model.grain import Grain
from penstock.model.time import BEGIN_US, END_US

Interval = tuple[int, int]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class PartitionSet:
    intervals: tuple[Interval, ...] = ()

    @staticmethod
    def of(*intervals: Interval) -> PartitionSet:
        """The union of half-open intervals, in any order, overlapping or empty."""
        if len(intervals) == 1 and intervals[0][0] < intervals[0][1]:
            return PartitionSet(intervals)
        merged: list[Interval] = []
        for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
            if merged and start <= merged[-1][1]:
                if end > merged[-1][1]:
                    merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return PartitionSet(tuple(merged))

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __iter__(self) -> Iterator[Interval]:
        return iter(self.intervals)

    def __contains__(self, instant_us: int) -> bool:
        at = bisect_right(self.intervals, (instant_us, END_US)) - 1
        return at >= 0 and self.intervals[at][0] <= instant_us < self.intervals[at][1]

    def __or__(self, other: PartitionSet) -> PartitionSet:
        if not other.intervals:
            return self
        if not self.intervals:
            return other
        return PartitionSet.of(*self.intervals, *other.intervals)

    def __and__(self, other: PartitionSet) -> PartitionSet:
        left, right = self.intervals, other.intervals
        if len(left) == 1 == len(right):  # by far the most common
            start, end = max(left[0][0], right[0][0]), min(left[0][1], right[0][1])
            return PartitionSet(((start, end),)) if start < end else EMPTY
        met: list[Interval] = []
        i = j = 0
        while i < len(left) and j < len(right):
            start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
            if start < end:
                met.append((start, end))
            if left[i][1] < right[j][1]:
                i += 1
            else:
                j += 1
        return PartitionSet(tuple(met))

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        return self & other.complement() if other.intervals else self

    def __le__(self, other: PartitionSet) -> bool:
        return not self - other

    def complement(self) -> PartitionSet:
        rest: list[Interval] = []
        at = BEGIN_US
        for start, end in self.intervals:
            if at < start:
                rest.append((at, start))
            at = end
        if at < END_US:
            rest.append((at, END_US))
        return PartitionSet(tuple(rest))

    def within(self, start_us: int, end_us: int) -> PartitionSet:
        found = self.intervals
        if not found or (found[0][0] >= start_us and found[-1][1] <= end_us):
            return self
        if start_us >= end_us or found[0][0] >= end_us or found[-1][1] <= start_us:
            return EMPTY
        return self & PartitionSet(((start_us, end_us),))

    def hull(self, grain: Grain) -> PartitionSet:
        """The smallest set of whole partitions of a grain that covers this one."""
        return PartitionSet.of(*(grain.hull(start, end) for start, end in self.intervals))

    def count(self, grain: Grain) -> int:
        return sum(grain.count(start, end) for start, end in self.intervals)

    def starts(self, grain: Grain, limit: int | None = None) -> list[int]:
        """The first instants of its partitions, oldest first, at most `limit` of them: the one place that enumerates."""
        found: list[int] = []
        for start, end in self.intervals:
            at = start
            while at < end and (limit is None or len(found) < limit):
                found.append(at)
                at = grain.start(grain.ordinal(at) + 1)
        return found

    def first(self, grain: Grain, partitions: int) -> PartitionSet:
        """The oldest so many of its partitions."""
        taken: list[Interval] = []
        left = partitions
        for start, end in self.intervals:
            if left <= 0:
                break
            have = grain.count(start, end)
            taken.append((start, end if have <= left else grain.start(grain.ordinal(start) + left)))
            left -= have
        return PartitionSet(tuple(taken))


EMPTY = PartitionSet()
EVERYTHING = PartitionSet(((BEGIN_US, END_US),))


class IntervalMap(Generic[V]):
    """A piecewise constant map from instants to values, with a rule that merges two values. Mutable: it is the
    working memory of the fold; an update costs the pieces that it touches and a binary search."""

    __slots__ = ("_ends", "_merge", "_starts", "_values")

    def __init__(self, merge: Callable[[V, V], V]) -> None:
        self._merge = merge
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[V] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def pieces(self) -> Iterator[tuple[int, int, V]]:
        return zip(self._starts, self._ends, self._values, strict=True)

    def domain(self) -> PartitionSet:
        return PartitionSet.of(*zip(self._starts, self._ends, strict=True))

    def add(self, keys: PartitionSet, value: V) -> None:
        """Merge a value into every instant of the set."""
        for start, end in keys.intervals:
            self._add(start, end, value)

    def remove(self, keys: PartitionSet) -> list[tuple[int, int, V]]:
        """Take the set out and return what was there."""
        removed: list[tuple[int, int, V]] = []
        for start, end in keys.intervals:
            low, high = self._touching(start, end)
            kept: list[tuple[int, int, V]] = []
            for at in range(low, high):
                old_start, old_end, value = self._starts[at], self._ends[at], self._values[at]
                removed.append((max(start, old_start), min(end, old_end), value))
                if old_start < start:
                    kept.append((old_start, start, value))
                if old_end > end:
                    kept.append((end, old_end, value))
            self._replace(low, high, kept)
        return removed

    def within(self, keys: PartitionSet) -> list[tuple[int, int, V]]:
        found: list[tuple[int, int, V]] = []
        for start, end in keys.intervals:
            low, high = self._touching(start, end)
            found.extend(
                (max(start, self._starts[at]), min(end, self._ends[at]), self._values[at]) for at in range(low, high)
            )
        return found

    def _touching(self, start: int, end: int) -> tuple[int, int]:
        return bisect_right(self._ends, start), bisect_left(self._starts, end)

    def _replace(self, low: int, high: int, pieces: list[tuple[int, int, V]]) -> None:
        # Neighbours on both sides may have become equal: with them the map has one form whatever happened before.
        if low and pieces and self._ends[low - 1] == pieces[0][0] and self._values[low - 1] == pieces[0][2]:
            low -= 1
            pieces[0] = (self._starts[low], pieces[0][1], pieces[0][2])
        if (
            high < len(self._starts)
            and pieces
            and self._starts[high] == pieces[-1][1]
            and self._values[high] == pieces[-1][2]
        ):
            pieces[-1] = (pieces[-1][0], self._ends[high], pieces[-1][2])
            high += 1
        self._starts[low:high] = [piece[0] for piece in pieces]
        self._ends[low:high] = [piece[1] for piece in pieces]
        self._values[low:high] = [piece[2] for piece in pieces]

    def _add(self, start: int, end: int, value: V) -> None:
        low, high = self._touching(start, end)
        pieces: list[tuple[int, int, V]] = []
        at = start
        for index in range(low, high):
            old_start, old_end, old = self._starts[index], self._ends[index], self._values[index]
            if old_start < start:
                pieces.append((old_start, start, old))
            if at < old_start:
                pieces.append((at, old_start, value))
            inner_start, inner_end = max(old_start, start), min(old_end, end)
            pieces.append((inner_start, inner_end, self._merge(old, value)))
            if old_end > end:
                pieces.append((end, old_end, old))
            at = inner_end
        if at < end:
            pieces.append((at, end, value))
        self._replace(low, high, _coalesced(pieces))


def _coalesced(pieces: Iterable[tuple[int, int, V]]) -> list[tuple[int, int, V]]:
    """Touching pieces with equal values become one, so that the map stays as small as its content."""
    out: list[tuple[int, int, V]] = []
    for piece in pieces:
        if out and out[-1][1] == piece[0] and out[-1][2] == piece[2]:
            out[-1] = (out[-1][0], piece[1], piece[2])
        else:
            out.append(piece)
    return out
