"""What the core knows of one feed: its rhythm, whether it is out, whether someone paused it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.rhythm import REMEMBERED, Heard


@dataclass(slots=True)
class FeedState:
    heard: Heard = field(default_factory=Heard)
    # Since when it is out: when the first file was due that did not come. Only what is in the log counts.
    out_since_us: int | None = None
    paused_us: int | None = None
    paused_why: str = ""
    # Silence counts from here on: before, nobody expected anything.
    expected_us: int | None = None

    def dump(self) -> dict[str, Any]:
        return {
            "beats": list(self.heard.beats),
            "last_us": self.heard.last_us,
            "ages": list(self.heard.ages),
            "out_since_us": self.out_since_us,
            "paused_us": self.paused_us,
            "paused_why": self.paused_why,
            "expected_us": self.expected_us,
        }

    @staticmethod
    def load(data: dict[str, Any]) -> FeedState:
        heard = Heard(_last(data["beats"]), data["last_us"], _last(data["ages"]))
        return FeedState(heard, data["out_since_us"], data["paused_us"], data["paused_why"], data["expected_us"])


def _last(values: Sequence[int]) -> deque[int]:
    return deque(values, maxlen=REMEMBERED)


@dataclass(frozen=True, slots=True)
class Recovering:
    """A table that catches up on what an outage or a pause held back."""

    feed: str
    cause: str
    # The time without data, and when it was over.
    from_us: int
    since_us: int

    @property
    def outage_us(self) -> int:
        return self.since_us - self.from_us
