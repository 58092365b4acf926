"""Lottery scheduling over many items (Waldspurger 1995): draw one with probability proportional to its tickets.

Tickets may be negative; the smallest counts as none, so the chance of an item is proportional to T_j - T_min, as Qu,
Labrinidis, Mossé 2006 have it (Sec. 3.4.1). A tree over the items holds sum and minimum of each subtree, so that neither a change nor a
draw looks at more than log n of them, also when the minimum moves and with it the chances of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf


class Lottery:
    def __init__(self, tickets: Iterable[float]) -> None:
        values = [float(value) for value in tickets]
        self.count = len(values)
        self._leaves = 1 << max(0, self.count - 1).bit_length()
        self._sum = [0.0] * (2 * self._leaves)
        self._least = [inf] * (2 * self._leaves)
        # How many items a subtree has.
        self._size = [0] * (2 * self._leaves)
        for item, value in enumerate(values):
            at = self._leaves + item
            self._sum[at] = self._least[at] = value
            self._size[at] = 1
        for at in range(self._leaves - 1, 0, -1):
            self._join(at)
            self._size[at] = self._size[2 * at] + self._size[2 * at + 1]

    def _join(self, at: int) -> None:
        left, right = 2 * at, 2 * at + 1
        self._sum[at] = self._sum[left] + self._sum[right]
        least, other = self._least[left], self._least[right]
        self._least[at] = least if least < other else other

    def __getitem__(self, item: int) -> float:
        return self._sum[self._leaves + item]

    def __len__(self) -> int:
        return self.count

    def __setitem__(self, item: int, value: float) -> None:
        at = self._leaves + item
        self._sum[at] = self._least[at] = value
        at >>= 1
        while at:
            self._join(at)
            at >>= 1

    def draw(self, lot: float) -> int | None:
        """The item that a lot in [0, 1) falls on; None if all have the same number of tickets, that is, none."""
        least = self._least[1]
        left = (self._sum[1] - least * self.count) * lot
        if not self.count or self._sum[1] - least * self.count <= 1e-12 * max(1.0, abs(self._sum[1])):
            return None
        at = 1
        while at < self._leaves:
            at *= 2
            weight = self._sum[at] - least * self._size[at]
            if left >= weight and self._size[at + 1]:
                left -= weight
                at += 1
        return at - self._leaves

    def plain(self) -> list[float]:
        return self._sum[self._leaves : self._leaves + self.count]
