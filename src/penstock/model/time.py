"""Time as whole microseconds since 1970-01-01 UTC, durations likewise. Integers make intervals exact, states
serialisable and simulations deterministic; people read and write them as `5m` and `2024-03-01 10:05`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

# The ends of the time line. Far beyond any calendar, yet safe to add and subtract durations to.
BEGIN_US = -(2**62)
END_US = 2**62

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Where calendars end, with room for any zone. Data beyond (a "9999-12-31" that means never) share one last partition.
FIRST_US = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND_US,
    "m": MINUTE_US,
    "min": MINUTE_US,
    "h": HOUR_US,
    "d": DAY_US,
    "w": 7 * DAY_US,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d|w)", re.ASCII)


def parse_duration(text: str) -> int:
    """Microseconds of a duration such as `90s`, `5m`, `1h30m`, `2d`.

    >>> parse_duration("1h30m") == 90 * MINUTE_US
    True
    """
    position, total = 0, Fraction(0)
    while position < len(text.rstrip()):
        match = _DURATION.match(text, position)
        if not match:
            raise ValueError(f"{text!r} is not a duration; write for example 30s, 5m, 1h30m or 2d")
        total += Fraction(match[1]) * _UNITS[match[2]]
        position = match.end()
    if position == 0:
        raise ValueError("an empty text is not a duration; write for example 30s, 5m, 1h30m or 2d")
    return round(total)


def format_duration(duration_us: int) -> str:
    """The two largest units of a duration, for people.

    >>> format_duration(90 * MINUTE_US + 5 * SECOND_US), format_duration(1_500_000), format_duration(0)
    ('1h 30m', '1.5s', '0s')
    """
    if duration_us < 0:
        return "-" + format_duration(-duration_us)
    if 0 < duration_us < 1000:
        return f"{duration_us}us"
    if 0 < duration_us < 999_500:
        return f"{duration_us / 1000:.3g}ms"
    if duration_us < 10 * SECOND_US:
        return f"{duration_us / SECOND_US:.3g}s"
    seconds = duration_us // SECOND_US
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    while parts and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{value}{unit}" for value, unit in parts[:2] if value) or "0s"


def instant(moment: datetime) -> int:
    """Microseconds of a datetime; one without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(instant_us: int, zone: tzinfo = UTC) -> datetime:
    return (_EPOCH + timedelta(microseconds=instant_us)).astimezone(zone)


def parse_instant(text: str, zone: tzinfo = UTC) -> int:
    """Microseconds of `2024-03-01`, `2024-03-01 10:05` or full ISO 8601, read in `zone` where none is written."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write for example 2024-03-01 or 2024-03-01T10:05") from None
    return instant(parsed if parsed.tzinfo else parsed.replace(tzinfo=zone))


def format_instant(instant_us: int | None, zone: tzinfo = UTC) -> str:
    """For people: seconds and fractions only where there are any.

    >>> format_instant(0), format_instant(61_500_000), format_instant(None)
    ('1970-01-01 00:00', '1970-01-01 00:01:01.5', '-')
    """
    if instant_us is None:
        return "-"
    if instant_us >= LAST_US:
        return "the end of time"
    if instant_us < FIRST_US:
        return "the beginning of time"
    there = moment(instant_us, zone).replace(tzinfo=None)
    if there.microsecond:
        return there.isoformat(" ").rstrip("0")
    return there.isoformat(" ", "seconds" if there.second else "minutes")


# What the clocks of a zone do: when they are set forward or back, and on which days that makes midnight special


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
