"""Partitions of time in plain Python, written from the docs: hours, days, weeks (from Monday), months, quarters and years begin with the clocks
of the zone. A day begins at its first instant; where a clock is set back over midnight, the hour that
comes twice stays with the later day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MONTHS = {"month": 1, "quarter": 3, "year": 12}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def local(us: int, zone: str) -> datetime:
    return moment(us).astimezone(ZoneInfo(zone))


@lru_cache(maxsize=100_000)
def midnight(day: date, zone: str) -> int:
    """The first instant of a calendar day. Where midnight does not exist, the clock jumps over it: the instant of the jump."""
    return wall(datetime(day.year, day.month, day.day), zone)


@lru_cache(maxsize=100_000)
def wall(naive: datetime, zone: str) -> int:
    """What a clock on the wall shows, as an instant: the earlier one where it comes twice, later by the gap where it is skipped."""
    return micros(naive.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC))


def _minutes(grain: str) -> int | None:
    if grain == "minute":
        return MINUTE
    if grain == "hour":
        return HOUR
    return int(grain[:-1]) * MINUTE if grain[0].isdigit() else None


def _first(day: date, grain: str) -> date:
    if grain == "week":
        return day - timedelta(days=day.weekday())
    months = MONTHS.get(grain)
    return day if months is None else day.replace(month=(day.month - 1) // months * months + 1, day=1)


def _next(day: date, grain: str) -> date:
    if grain in MONTHS:
        return _first(_first(day, grain) + timedelta(days=31 * MONTHS[grain] + 1), "month")
    return day + timedelta(days=7 if grain == "week" else 1)


@lru_cache(maxsize=100_000)
def floor(us: int, grain: str, zone: str) -> int:
    """The start of the partition in which an instant is."""
    width = _minutes(grain)
    if width is not None:
        # In India hours begin at half past those of UTC.
        offset = local(us, zone).utcoffset()
        assert offset is not None
        return us - (us + offset // timedelta(microseconds=1)) % width
    day = local(us, zone).date() + timedelta(days=1)
    while midnight(day, zone) > us:
        day -= timedelta(days=1)
    return midnight(_first(day, grain), zone)


def _day_of(start: int, zone: str) -> date:
    """The day that begins at this instant; its clock may show 01:00 where midnight was skipped."""
    return local(start, zone).date()


@lru_cache(maxsize=100_000)
def shift(start: int, by: int, grain: str, zone: str) -> int:
    """The start of the partition so many later."""
    width = _minutes(grain)
    if width is not None:
        return start + by * width
    day = _day_of(start, zone)
    for _ in range(by):
        day = _next(day, grain)
    for _ in range(-by):
        day = _first(day - timedelta(days=1), grain)
    return midnight(day, zone)


def ceil(us: int, grain: str, zone: str) -> int:
    start = floor(us, grain, zone)
    return start if start == us else shift(start, 1, grain, zone)
