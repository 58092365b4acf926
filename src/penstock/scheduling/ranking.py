"""Many values that change linearly with time, a + b * now, always in order.

A tournament: every inner node of a binary tree knows the best leaf below it and until when that is sure. When time
passes only the nodes whose time is over are played again, so the best of ten thousand costs a handful of comparisons,
not ten thousand (a kinetic tournament: Basch, Guibas, Hershberger 1999). As long as no value changes with time, a sorted
list is all that is needed; and of a few values it is cheaper to ask all.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Two values closer than this part of their size may swap by rounding alone: then nothing is sure.
_ROUNDING = 2e-15
_NOBODY = -1


# With no more keys than this all are asked when their values change with time.
_FEW = 64

_Entry = tuple[float, Any, str, float, T]


class Ranking(Generic[T]):
    """Items under keys, with an index (a, b) and a tie-break, ranked by the largest a + b * now, then by the smallest
    tie-break, then by key."""

    def __init__(self) -> None:
        # (-a, tie, key, b, item) of each key; in order while all b are 0; in a tournament if they are not, and many.
        self._entries: dict[str, _Entry[T]] = {}
        self._sorted: list[_Entry[T]] | None = []
        self._tournament: Tournament[T] | None = None
        self._changing: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_Entry[T]]:
        return iter(self._entries.values())

    def put(self, key: str, a: float, b: float, tie: Any, item: T) -> None:
        entries = self._entries
        before = entries.get(key)
        entry = entries[key] = (-a, tie, key, b, item)
        if b:
            self._changing.add(key)
            self._sorted = None
        elif self._changing:
            self._changing.discard(key)
        if self._sorted is not None:
            if before is not None:
                del self._sorted[bisect_left(self._sorted, before)]
            insort(self._sorted, entry)
        elif self._tournament is not None:
            self._tournament.put(key, a, b, (tie, key), item)
        elif len(entries) > _FEW:
            self._tournament = Tournament()
            for other, (negated, its_tie, _, its_b, its_item) in entries.items():
                self._tournament.put(other, -negated, its_b, (its_tie, other), its_item)

    def discard(self, key: str) -> _Entry[T] | None:
        """What was there, as it is iterated over."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, entry)]
            return entry
        self._changing.discard(key)
        if self._tournament is not None:
            self._tournament.discard(key)
        if len(self._entries) <= _FEW // 2:
            self._tournament = None
            if not self._changing:
                self._sorted = sorted(self._entries.values())
        return entry

    def best(self, now_s: float) -> tuple[float, T] | None:
        """The first of `ranked`, if there is one."""
        if self._sorted:
            entry = self._sorted[0]
            return -entry[0], entry[4]
        return next(self.ranked(now_s), None)

    def ranked(self, now_s: float) -> Iterator[tuple[float, T]]:
        """Values and items, best first."""
        if self._sorted is not None:
            return ((-negated, item) for negated, _, _, _, item in self._sorted)
        if self._tournament is not None:
            return self._tournament.ranked(now_s)
        return self._asked(now_s)

    def entries(self, now_s: float) -> Iterator[tuple[float, Any, str, T]]:
        """The same as (-value, tie-break, key, item), so that several rankings can be merged."""
        if self._sorted is not None:
            return ((negated, tie, key, item) for negated, tie, key, _, item in self._sorted)
        return ((-value, self._entries[key][1], key, item) for value, key, item in self._keyed(now_s))

    def in_order(self) -> Sequence[tuple[Any, ...]]:
        """Entries whose first value is the negated index and whose last is the item, if no index changes with time."""
        return self._sorted if self._sorted is not None else sorted(self._entries.values())

    def _keyed(self, now_s: float) -> Iterator[tuple[float, str, T]]:
        if self._tournament is not None:
            yield from self._tournament.keyed(now_s)
            return
        found = self._values(now_s)
        while found:
            value, _, key, item = heapq.heappop(found)
            yield -value, key, item

    def _values(self, now_s: float) -> list[tuple[float, Any, str, T]]:
        found = [(-(b * now_s - negated), tie, key, item) for negated, tie, key, b, item in self._entries.values()]
        heapq.heapify(found)
        return found

    def _asked(self, now_s: float) -> Iterator[tuple[float, T]]:
        found = self._values(now_s)
        while found:
            value, _, _, item = heapq.heappop(found)
            yield -value, item


class Tournament(Generic[T]):
    """The same, for values that change."""

    def __init__(self) -> None:
        self._slot: dict[str, int] = {}
        self._free: list[int] = []
        self._now_s = 0.0
        self._grow(64)

    def _grow(self, size: int) -> None:
        before = [(key, self._items[slot], self._lines[slot]) for key, slot in self._slot.items()]
        self._size = size
        self._keys = [""] * size
        self._items: list[T] = [None] * size  # type: ignore[list-item]
        self._lines: list[tuple[float, float, Any]] = [(0.0, 0.0, ())] * size
        # Node i has the children 2i and 2i + 1; the leaves are nodes size .. 2 * size - 1.
        self._best = [_NOBODY] * (2 * size)
        self._until = [inf] * (2 * size)
        self._slot = {}
        self._free = list(range(size - 1, len(before) - 1, -1))
        for slot, (key, item, line) in enumerate(before):
            self._slot[key], self._keys[slot], self._items[slot], self._lines[slot] = slot, key, item, line
            self._best[size + slot] = slot
        self._play_all()

    def __len__(self) -> int:
        return len(self._slot)

    def put(self, key: str, a: float, b: float, tie: Any, item: T) -> None:
        slot = self._slot.get(key)
        if slot is None:
            if not self._free:
                self._grow(2 * self._size)
            slot = self._slot[key] = self._free.pop()
        self._keys[slot], self._items[slot] = key, item
        self._lines[slot] = (a, b, tie)
        self._best[self._size + slot] = slot
        self._replay(slot)

    def discard(self, key: str) -> None:
        slot = self._slot.pop(key, None)
        if slot is not None:
            self._free.append(slot)
            self._best[self._size + slot] = _NOBODY
            self._replay(slot)

    def ranked(self, now_s: float) -> Iterator[tuple[float, T]]:
        """Values and items, best first. Each further one costs the depth of the tree."""
        return ((value, item) for value, _, item in self.keyed(now_s))

    def keyed(self, now_s: float) -> Iterator[tuple[float, str, T]]:
        """The same with keys."""
        if now_s < self._now_s:
            self._now_s = now_s
            self._play_all()
        else:
            self._now_s = now_s
            self._advance(1)
        if self._best[1] == _NOBODY:
            return
        candidates = [self._candidate(1, now_s)]
        while candidates:
            value, _, node = heapq.heappop(candidates)
            slot = self._best[node]
            yield -value, self._keys[slot], self._items[slot]
            # Whoever lost against it on the way up may be next.
            leaf = self._size + slot
            while leaf > node:
                if self._best[leaf ^ 1] != _NOBODY:
                    heapq.heappush(candidates, self._candidate(leaf ^ 1, now_s))
                leaf >>= 1

    def _candidate(self, node: int, now_s: float) -> tuple[float, Any, int]:
        a, b, tie = self._lines[self._best[node]]
        return -(a + b * now_s), tie, node

    def _advance(self, node: int) -> None:
        if self._until[node] >= self._now_s:
            return
        if node < self._size:
            self._advance(2 * node)
            self._advance(2 * node + 1)
            self._play(node)

    def _replay(self, slot: int) -> None:
        """Later, when somebody asks: of many that change in between each node is played once."""
        node, until = (self._size + slot) >> 1, self._until
        while node and until[node] != -inf:
            until[node] = -inf
            node >>= 1

    def _play_all(self) -> None:
        for node in range(self._size - 1, 0, -1):
            self._play(node)

    def _play(self, node: int) -> None:
        left, right = 2 * node, 2 * node + 1
        one, other = self._best[left], self._best[right]
        until = self._until[left]
        if self._until[right] < until:
            until = self._until[right]
        if one == _NOBODY or other == _NOBODY:
            self._best[node] = other if one == _NOBODY else one
            self._until[node] = until
            return
        now = self._now_s
        a, b, tie = self._lines[one]
        c, d, other_tie = self._lines[other]
        first, second = a + b * now, c + d * now
        if first < second or (first == second and other_tie < tie):
            one, a, b, c, d = other, c, d, a, b
        self._best[node] = one
        if b == d and (a == c or b == 0):
            sure = inf  # never changes
        else:
            # The winner is ahead by lead + pull * now, beyond what rounding can do.
            lead = a - c - _ROUNDING * (abs(a) + abs(c))
            pull = b - d - _ROUNDING * (abs(b) + abs(d))
            if lead + pull * now <= 0:
                sure = now
            elif pull >= 0:
                sure = inf
            else:
                meets = lead / -pull
                sure = max(now, meets - 1e-12 * abs(meets))
        self._until[node] = min(sure, until)
