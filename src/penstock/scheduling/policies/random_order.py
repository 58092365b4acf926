"""Any ready job, all with the same chance: the baseline for an order. The generator (splitmix64; Steele, Lea, Flood 2014)
lives in the policy's memory, so that the same log gives the same choices."""

from __future__ import annotations

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
        left = sorted(
            (job for job in situation.ready.values() if not job.upkeep), key=lambda job: (job.release_us, job.table)
        )
        state = self._state(situation)
        while left:
            state = mixed(state)
            place = state % len(left)
            left[place], left[-1] = left[-1], left[place]
            yield 0.0, left.pop()
        yield from ((0.0, job) for job in situation.ready.values() if job.upkeep)

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        return {"random": mixed(self._state(situation) ^ 0x5DEECE66D)}

    def _state(self, situation: Situation) -> int:
        return int(situation.memory.get("random", mixed(self.seed)))

    def why(self, job: ReadyJob, value: float) -> str:
        return "drawn by lot"
