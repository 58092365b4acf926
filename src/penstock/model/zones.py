"""What the clocks of a zone do: when they are set forward or back, and on which days that makes midnight special."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from penstock.model.time import SECOND_US, instant, moment

# Before, clocks showed the sun. After, every rule repeats.
_FIRST, _LAST = datetime(1840, 1, 1), datetime(2100, 1, 1)
# The shortest time in which a zone changed its clocks and changed them back was four days (Freetown, 1939).
_STEP, _SECOND = timedelta(days=3), timedelta(seconds=1)


class ClockChange(NamedTuple):
    """Clocks are set: from this instant on the offset from UTC is another one."""

    at_us: int
    before_us: int
    after_us: int


@lru_cache(maxsize=64)
def changes(zone: tzinfo) -> tuple[ClockChange, ...]:
    """All changes of a zone's clocks from 1840 to 2100."""
    found = []
    at = _FIRST.replace(tzinfo=zone)
    before = zone.fromutc(at).utcoffset()
    while at.year < _LAST.year:
        if zone.fromutc(at + _STEP).utcoffset() == before:
            at += _STEP
            continue
        low, high = at, at + _STEP
        while high - low > _SECOND:
            middle = low + (high - low) // _SECOND // 2 * _SECOND
            low, high = (middle, high) if zone.fromutc(middle).utcoffset() == before else (low, middle)
        at, after = high, zone.fromutc(high).utcoffset()
        found.append(ClockChange(instant(at.replace(tzinfo=UTC)), _us(before), _us(after)))
        before = after
    return tuple(found)


def _us(offset: timedelta | None) -> int:
    return (offset or timedelta(0)) // timedelta(microseconds=1)


def local_instant(written: datetime, zone: tzinfo) -> int:
    """The instant of a time that a clock of the zone shows. Of one that comes twice it is the first; one that is left out
    because clocks are set forward is read as if they were not yet. Spark reads such times alike."""
    return instant(written.replace(tzinfo=zone, fold=0))


def first_instant_of(day: datetime, zone: tzinfo) -> int:
    """When a day begins, given its midnight: the first instant at which the date is that day or later."""
    late, early = instant(day.replace(tzinfo=zone, fold=0)), instant(day.replace(tzinfo=zone, fold=1))
    if early >= late:
        return late
    # Clocks are set forward over midnight: the day begins at that instant.
    low, high = early // SECOND_US - 1, late // SECOND_US
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if moment(middle * SECOND_US, zone).date() >= day.date() else (middle, high)
    return high * SECOND_US
