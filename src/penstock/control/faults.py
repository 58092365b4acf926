"""What of the world is not available: the disk of the tables, Spark. While it is not, nothing is started, and after growing pauses one try is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.control.events import FaultEnded, FaultMet
from penstock.model.time import BEGIN_US, SECOND_US

PAUSE_US = 1 * SECOND_US
LONGEST_PAUSE_US = 30 * SECOND_US

WorldPart = Literal["store", "storage", "spark"]
# For people.
WHAT = {"store": "the store", "storage": "the disk", "spark": "Spark"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of the world that is not available."""

    part: WorldPart
    reason: str
    since_us: int
    # How often it was met, and until when nobody tries again.
    times: int
    retry_at_us: int


class Faults:
    """The open faults, by part."""

    def __init__(self) -> None:
        self.open: dict[str, Fault] = {}

    def met(self, event: FaultMet) -> None:
        known = self.open.get(event.part)
        times, since_us = (known.times, known.since_us) if known is not None else (0, event.at_us)
        if known is not None and event.at_us < known.retry_at_us:
            # Updates that had begun before: the same fault, met by each of them.
            self.open[event.part] = Fault(event.part, event.reason, since_us, times, known.retry_at_us)
            return
        pause_us = min(LONGEST_PAUSE_US, PAUSE_US << min(times, 20))
        self.open[event.part] = Fault(event.part, event.reason, since_us, times + 1, event.at_us + pause_us)

    def ended(self, event: FaultEnded) -> None:
        self.open.pop(event.part, None)

    @property
    def pauses_until_us(self) -> int:
        """Until then nothing is started."""
        return max((fault.retry_at_us for fault in self.open.values()), default=BEGIN_US)
