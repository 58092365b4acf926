"""Any ready job, all with the same chance: the baseline for an order. The generator (splitmix64; Steele, Lea, Flood 2014)
lives in the policy's memory, so that the same log gives the same choices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.scheduling.jobs import ReadyJob, Situation
from penstock.scheduling.policies.index import IndexPolicy

_MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """64 bits that look random and depend on all bits of the number."""
    z = (number + 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


class Random(IndexPolicy):
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return 0.0, 0.0

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        entries = situation.ready.in_order(situation.now_us)
        # First what queries wait for, last the upkeep: only between them is drawn.
        first, last = bisect_left(entries, (0.0,)), bisect_left(entries, (1.0,))
        for entry in entries[:first]:
            yield 0.0, entry[-1]
        # The list as it would be if each one drawn were replaced by the last: only what differs is kept.
        moved: dict[int, int] = {}
        state = self._state(situation)
        for count in range(last - first, 0, -1):
            state = mixed(state)
            place, end = state % count, count - 1
            found = moved.get(place, place)
            moved[place] = moved.get(end, end)
            yield 0.0, entries[first + found][-1]
        for entry in entries[last:]:
            yield 0.0, entry[-1]

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        return {"random": mixed(self._state(situation) ^ 0x5DEECE66D)}

    def _state(self, situation: Situation) -> int:
        return int(situation.memory.get("random", mixed(self.seed)))

    def why(self, job: ReadyJob, value: float) -> str:
        return "was drawn by lot"
