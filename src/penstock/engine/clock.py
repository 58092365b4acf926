"""The wall clock in microseconds. A demo may run it faster: then an hour of the warehouse passes in a minute."""

from __future__ import annotations

import time


class WallClock:
    def __init__(self, speed: float = 1.0, origin_us: int | None = None) -> None:
        self.speed = speed
        self._wall = time.time_ns() // 1000
        self._origin = self._wall if origin_us is None else origin_us

    def now_us(self) -> int:
        return self._origin + int((time.time_ns() // 1000 - self._wall) * self.speed)

    def wall_s(self, duration_us: int) -> float:
        """How long to wait for so much of this clock's time to pass."""
        return duration_us / 1_000_000 / self.speed
