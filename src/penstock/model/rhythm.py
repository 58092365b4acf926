"""How a feed delivers, learned from when its files came: period, jitter, phase, and how old its records are on arrival.

These are what bounds on staleness assume of a feed (Leontyev, Johnson, Anderson 2010, Sec. II: p, J, kappa and the phase),
and what tells a feed that is late from one that is not. Everything here is medians and quantiles over the last few
deliveries, so that an outage, a burst after it, or a file that comes at an odd time changes little.

>>> minute = 60_000_000
>>> learned([0, minute, 2 * minute, 9 * minute, 10 * minute, 11 * minute, 12 * minute, 13 * minute, 14 * minute])
Rhythm(period_us=60000000, jitter_us=0, phase_us=0)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low

from penstock.model.time import SECOND_US

# Deliveries that are remembered, and gaps between them that it takes to know a rhythm.
REMEMBERED = 24
ENOUGH = 6
# Files that come within this part of the silence before them are one delivery: a set of files, or what an outage held back.
_TOGETHER = 16
# Deliveries closer than this are not told apart: so long it may take to notice a file.
_CLOSEST_US = SECOND_US
# Deliveries so far apart are compared.
_APART = 4
# Of deviations this part counts; what is beyond is taken as an accident.
_USUAL = 0.9


@dataclass(frozen=True, slots=True)
class Rhythm:
    period_us: int
    # By how much the time between two deliveries usually differs from the period, at most.
    jitter_us: int
    # When in a period they come.
    phase_us: int

    def next_us(self, after_us: int) -> int:
        """When the next delivery is due."""
        return after_us + self.period_us - (after_us - self.phase_us) % self.period_us


@dataclass(slots=True)
class Heard:
    """What is remembered of a feed's deliveries. Its size does not grow."""

    # When the last deliveries began, and when the last file came.
    beats: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    last_us: int | None = None
    # How much older than its arrival the newest record of a load was.
    ages: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def file(self, at_us: int) -> None:
        if self.last_us is not None and at_us <= self.last_us:
            return
        self.last_us = at_us
        beats = self.beats
        if beats:
            silence = (beats[-1] - beats[-2]) // _TOGETHER if len(beats) > 1 else 0
            if at_us - beats[-1] < max(_CLOSEST_US, silence):
                return
        beats.append(at_us)

    def record(self, age_us: int) -> None:
        self.ages.append(max(0, age_us))

    @property
    def stamp_us(self) -> int | None:
        """Timestamp jitter: how old the newest record usually is when it comes, at most; None if not known."""
        return quantile(self.ages, _USUAL) if len(self.ages) >= 3 else None

    def rhythm(self, period_us: int | None = None) -> Rhythm | None:
        return learned(self.beats, period_us)


def learned(beats: Iterable[int], period_us: int | None = None) -> Rhythm | None:
    """The rhythm of these deliveries, or None if they are too few; with `period_us` that is known already."""
    times = list(beats)
    gaps = [after - before for before, after in pairwise(times)]
    if len(gaps) < ENOUGH:
        return None
    usual = quantile(gaps, _USUAL)
    rough = period_us or median_low(gap for gap in gaps if gap * 10 > usual)
    counted = _counted(times, rough)
    period = period_us or _slope(counted)
    last = counted[-1][0]
    # The last deliveries, each carried over to the period of the very last.
    phase = median_low([at + (last - count) * period for count, at in counted[-2 * _APART - 1 :]])
    jitter = quantile([abs(gap - period) for gap in gaps if gap * 10 > usual], _USUAL)
    return Rhythm(period, jitter, phase % period)


def _counted(times: Sequence[int], period_us: int) -> list[tuple[int, int]]:
    """Deliveries with the number of the period in which they came; of several in one period the first."""
    count = 0
    found = [(0, times[0])]
    for at in times[1:]:
        passed = round((at - found[-1][1]) / period_us)
        if passed:
            count += passed
            found.append((count, at))
    return found


def _slope(counted: Sequence[tuple[int, int]]) -> int:
    """The time per period: the median over pairs a few deliveries apart. One that came at an odd time spoils few pairs."""
    pairs = zip(counted, counted[min(_APART, len(counted) - 1) :], strict=False)
    return max(1, median_low([(at - before) // (count - number) for (number, before), (count, at) in pairs]))


def quantile(values: Iterable[int], part: float) -> int:
    ordered = sorted(values)
    return ordered[int(part * (len(ordered) - 1))]
