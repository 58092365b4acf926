"""The clock of the simulation: a heap of (time, priority, sequence). It jumps from event to event; what is due at the same
time comes by priority, then in the order in which it was planned. Nothing else decides, so a run is repeatable."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], None]


class Kernel:
    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, int, Action]] = []
        self._sequence = 0

    def at(self, time_us: int, priority: int, action: Action) -> None:
        """Plan something. What lies in the past is due now."""
        self._sequence += 1
        heappush(self._heap, (max(time_us, self.now_us), priority, self._sequence, action))

    @property
    def next_us(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> int:
        """Go to the next time at which something is due and do all of it; how much that was."""
        self.now_us = self._heap[0][0]
        done = 0
        while self._heap and self._heap[0][0] == self.now_us:
            heappop(self._heap)[3](self.now_us)
            done += 1
        return done
