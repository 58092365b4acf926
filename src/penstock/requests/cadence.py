"""When old partitions of a table change by what comes from outside (late rows, corrections, requests): how often within a burst,
and whether that comes again at known times.

Changes with less than an hour between them are one restatement. Four of them at the same time of day, on each day, or on the
same days of the week or of the month, with none left out and none besides, are a timetable.

>>> from penstock.model.time import HOUR_US, DAY_US, parse_instant
>>> restated, monday = Restated(), parse_instant("2024-03-04 01:02")
>>> for week in range(4):
...     restated.note(monday + 7 * week * DAY_US)
>>> print(restated.timetable("UTC"))
Mondays 01:00
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from statistics import median_low

from penstock.model.grain import zone_of
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, moment
from penstock.model.timetable import WITHIN_US, Timetable

# Gaps between changes that are remembered, and restatements.
REMEMBERED = 16
BEGINNINGS = 8
ENOUGH = 4
# What comes so long after the one before is another restatement; and so long one lasts at most that is waited for.
APART_US = HOUR_US
LONGEST_US = 2 * HOUR_US
# Timetables are in steps of this; by so much the time of day may vary.
STEP_US = 5 * MINUTE_US
_VARIES = 6


@dataclass(slots=True)
class Restated:
    # When it last changed, and when what changed it came.
    last_us: int | None = None
    came_us: int | None = None
    # The gaps between the last changes that came.
    gaps_us: list[int] = field(default_factory=list)
    # When the last restatements began, and how long it took until they were there.
    began_us: list[int] = field(default_factory=list)
    lasted_us: list[int] = field(default_factory=list)

    def note(self, at_us: int, came_us: Iterable[int] = ()) -> None:
        """It changed at some time, by what came then or before: several that one update brings are several."""
        for each in sorted(set(came_us)) or [at_us]:
            if self.came_us is None or each > self.came_us:
                self._came(each)
        self.lasted_us[-1] = max(self.lasted_us[-1], at_us - self.began_us[-1])
        self.last_us = max(at_us, self.last_us or at_us)

    def _came(self, at_us: int) -> None:
        gap_us = APART_US if self.came_us is None else at_us - self.came_us
        if gap_us >= APART_US:
            self.began_us = [*self.began_us[1 - BEGINNINGS :], at_us]
            self.lasted_us = [*self.lasted_us[1 - BEGINNINGS :], 0]
        if self.came_us is not None:
            self.gaps_us = [*self.gaps_us[1 - REMEMBERED :], gap_us]
        self.came_us = at_us

    @property
    def rate_per_s(self) -> float:
        """How often within a burst: what matters to who waits for another change. The time between bursts is no gap."""
        return SECOND_US / median_low(self.gaps_us) if self.gaps_us else 0.0

    def timetable(self, zone: str) -> Timetable | None:
        if len(self.began_us) < ENOUGH:
            return None
        return learned(tuple(self.began_us), tuple(self.lasted_us), zone)


@lru_cache(maxsize=4096)
def learned(began_us: tuple[int, ...], lasted_us: tuple[int, ...], zone: str) -> Timetable | None:
    """The timetable by which restatements come; None if there is none."""
    if max(lasted_us) > LONGEST_US:
        return None
    times = [moment(at, zone_of(zone)) for at in began_us]
    minutes = sorted(_minute(at) for at in times)
    # The clock is a circle: the first is the one after the largest gap.
    gaps = [(after - before, after) for before, after in pairwise([*minutes, minutes[0] + 24 * 60])]
    first = max(gaps)[1] % (24 * 60)
    step = STEP_US // MINUTE_US
    if max((minute - first) % (24 * 60) for minute in minutes) > _VARIES * step:
        return None
    first -= first % step
    late_us = max((_minute(at) - first) % (24 * 60) for at in times) * MINUTE_US + max(lasted_us)
    within_us = max(WITHIN_US, -(-(late_us + STEP_US) // STEP_US) * STEP_US)
    weekdays, monthdays = {at.weekday() for at in times}, {at.day for at in times}
    tries = [
        Timetable(first, within_us, zone=zone),
        Timetable(first, within_us, weekdays=tuple(sorted(weekdays)), zone=zone),
        Timetable(first, within_us, monthdays=tuple(sorted(monthdays)), zone=zone),
    ]
    return next((one for one in tries if _fits(one, began_us)), None)


def _minute(at: datetime) -> int:
    return at.hour * 60 + at.minute


def _fits(table: Timetable, began_us: tuple[int, ...]) -> bool:
    """Whether exactly these came, each at least twice in what a timetable repeats (a week, a month)."""
    expected = list(_times(table, began_us[0] - table.within_us, began_us[-1], len(began_us)))
    often = len(began_us) >= 2 * max(len(table.weekdays), len(table.monthdays))
    return (
        often
        and len(expected) == len(began_us)
        and all(0 <= at - due < table.within_us for due, at in zip(expected, began_us, strict=True))
    )


def _times(table: Timetable, after_us: int, until_us: int, most: int) -> Iterator[int]:
    at = table.next_us(after_us - DAY_US)
    for _ in range(most + 3):
        if at > until_us:
            return
        if at > after_us:
            yield at
        at = table.next_us(at)
