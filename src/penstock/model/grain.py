"""How a table is cut into partitions of time.

A grain numbers its partitions with consecutive integers. `ordinal(t)` is the partition that holds instant t,
`start(n)` the first instant of partition n. Everything else (rounding, counting, shifting) follows, and costs the same
for a minute and for ten years of minutes. The partitions cover the whole time line: the first one reaches back to
`BEGIN_US`, the last one to `END_US`.

>>> from penstock.model.time import parse_instant, format_instant
>>> month = parse_grain("month")
>>> format_instant(month.ceil(parse_instant("2024-02-10")))
'2024-03-01 00:00'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.model.time import (
    BEGIN_US,
    DAY_US,
    END_US,
    FIRST_US,
    HOUR_US,
    LAST_US,
    MINUTE_US,
    changes,
    first_instant_of,
    instant,
    moment,
)


class Grain:
    """Base of all grains: what follows from `ordinal` and `start` alone."""

    name: str

    def ordinal(self, instant_us: int) -> int:
        raise NotImplementedError

    def start(self, ordinal: int) -> int:
        raise NotImplementedError

    def floor(self, instant_us: int) -> int:
        """The start of the partition that holds the instant."""
        return END_US if instant_us >= END_US else self.start(self.ordinal(instant_us))

    def ceil(self, instant_us: int) -> int:
        """The first boundary that is not before the instant."""
        if instant_us >= END_US:
            return END_US
        ordinal = self.ordinal(instant_us)
        start = self.start(ordinal)
        return start if start == instant_us else self.start(ordinal + 1)

    def hull(self, start_us: int, end_us: int) -> tuple[int, int]:
        """The smallest run of whole partitions around a half-open interval."""
        return self.floor(start_us), self.ceil(end_us)

    def shift(self, start_us: int, partitions: int) -> int:
        """The boundary so many partitions later (or earlier, if negative). The ends of the time line stay where they are."""
        if not BEGIN_US < start_us < END_US:
            return start_us
        return self.start(self.ordinal(start_us) + partitions)

    def count(self, start_us: int, end_us: int) -> int:
        """How many partitions a run of whole partitions has."""
        return self.ordinal(end_us - 1) - self.ordinal(start_us) + 1 if start_us < end_us else 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Fixed(Grain):
    """Partitions of one length: minutes, hours, and in UTC days and weeks. In India hours begin at half past those of UTC."""

    name: str
    width_us: int
    offset_us: int = 0

    def ordinal(self, instant_us: int) -> int:
        if instant_us < FIRST_US:
            instant_us = FIRST_US
        elif instant_us > LAST_US:
            instant_us = LAST_US
        return (instant_us - self.offset_us) // self.width_us

    def start(self, ordinal: int) -> int:
        start = ordinal * self.width_us + self.offset_us
        return BEGIN_US if start <= FIRST_US else END_US if start > LAST_US else start

    # The same as in the base, by plain arithmetic where no end of the time line is near: maps spend their time here.

    def floor(self, instant_us: int) -> int:
        if FIRST_US < instant_us <= LAST_US:
            start = instant_us - (instant_us - self.offset_us) % self.width_us
            if start > FIRST_US:
                return start
        return Grain.floor(self, instant_us)

    def ceil(self, instant_us: int) -> int:
        if FIRST_US + self.width_us < instant_us <= LAST_US - self.width_us:
            return instant_us + (self.offset_us - instant_us) % self.width_us
        return Grain.ceil(self, instant_us)

    def shift(self, start_us: int, partitions: int) -> int:
        if FIRST_US < start_us <= LAST_US and not (start_us - self.offset_us) % self.width_us:
            moved = start_us + partitions * self.width_us
            if FIRST_US < moved <= LAST_US:
                return moved
        return Grain.shift(self, start_us, partitions)


# Partitions of months: how many.
MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class Calendar(Grain):
    """Days, weeks (from Monday), months, quarters and years by the calendar of a zone, where a day may have 23 or 25 hours."""

    name: str
    zone: str = "UTC"

    def ordinal(self, instant_us: int) -> int:
        local = moment(min(max(instant_us, FIRST_US), LAST_US), zone_of(self.zone)).date()
        if self.name in MONTHS:
            found = (local.year * 12 + local.month - 1) // MONTHS[self.name]
        else:
            found = local.toordinal() if self.name == "day" else (local.toordinal() - 1) // 7
        # Where a clock is set back across midnight, the hour that comes twice stays with the later day.
        return found + 1 if self.start(found + 1) <= instant_us else found

    def start(self, ordinal: int) -> int:
        return _start(self.name, self.zone, ordinal)

    def irregular(self) -> tuple[tuple[int, int], ...]:
        """The times whose partition is not the one of their date, or begins neither at the first midnight of a day nor where
        a missing midnight would be: clocks were set over midnight."""
        return _irregular(self)

    def sets_back_over_midnight(self) -> bool:
        return any(self.floor(start) != start for start, _ in self.irregular())


@dataclass(frozen=True, slots=True)
class Whole(Grain):
    """No partitioning: the table is one partition, all of time."""

    name: str = "none"

    def ordinal(self, instant_us: int) -> int:
        return 0

    def start(self, ordinal: int) -> int:
        return BEGIN_US if ordinal <= 0 else END_US

    def ceil(self, instant_us: int) -> int:
        return BEGIN_US if instant_us <= BEGIN_US else END_US

    def shift(self, start_us: int, partitions: int) -> int:
        return start_us


WHOLE = Whole()
_MINUTES = re.compile(r"(\d+)\s*(?:m|min|minutes?)", re.ASCII)
_FIXED = {
    "day": Fixed("day", DAY_US),
    # 1970-01-01 was a Thursday: weeks start on the Monday before.
    "week": Fixed("week", 7 * DAY_US, -3 * DAY_US),
}


def parse_grain(text: str, zone: str = "UTC") -> Grain:
    """The grain that a user names: `5m` (minutes that divide a day), `hour`, `day`, `week`, `month`, `quarter`, `year`, `none`."""
    word = text.strip().lower()
    minutes = _MINUTES.fullmatch(word)
    if word == "minute" or minutes:
        count = int(minutes[1]) if minutes else 1
        if count == 0 or 1440 % count or count == 1440:
            raise ValueError(f"{text!r} does not divide a day; use 1, 2, 3, 5, 10, 15, 20, 30 … minutes, or day")
        word = "hour" if count == 60 else f"{count}m"
        return Fixed(word, count * MINUTE_US, _fixed_offset(zone, count * MINUTE_US))
    if word == "none":
        return WHOLE
    if word == "hour":
        return Fixed("hour", HOUR_US, _fixed_offset(zone, HOUR_US))
    if word in ("day", "week", *MONTHS):
        zone_of(zone)
        if zone == "UTC" and word not in MONTHS:
            return _FIXED[word]
        return Calendar(word, zone)
    raise ValueError(
        f"{text!r} is not a partitioning; expected minutes such as 5m, hour, day, week, month, quarter, year or none"
    )


# Files beside those of zones: what they mean depends on the machine, or nobody else knows them.
_NO_ZONE = re.compile(r"(posix|right)/|(localtime|posixrules|Factory|ROC)$")


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        if _NO_ZONE.match(name):
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone; write for example Europe/Berlin") from error


def nested(finer: Grain, coarser: Grain) -> bool:
    """Whether each partition of `finer` lies in one partition of `coarser`, and is really finer."""
    if isinstance(coarser, Whole):
        return not isinstance(finer, Whole)
    if isinstance(finer, Fixed) and isinstance(coarser, Fixed):
        aligned = (coarser.offset_us - finer.offset_us) % finer.width_us == 0
        return aligned and finer.width_us < coarser.width_us and coarser.width_us % finer.width_us == 0
    if isinstance(finer, Fixed) and isinstance(coarser, Calendar):
        # Local midnights fall on boundaries of the finer grain: hours of UTC do not fit a day of India (+05:30).
        return DAY_US % finer.width_us == 0 and finer.offset_us == clock_offset_us(coarser.zone, finer.width_us)
    if isinstance(finer, Calendar) and isinstance(coarser, Calendar):
        if finer.zone != coarser.zone or finer.name == coarser.name:
            return False
        return finer.name == "day" or 0 < MONTHS.get(finer.name, 0) < MONTHS.get(coarser.name, 0)
    return False


@lru_cache(maxsize=256)
def clock_offset_us(zone: str, width_us: int) -> int | None:
    """Where steps of one length begin by the clock of a zone, counted from where they begin in UTC. None if that was not always
    the same since 1970: half a year Lord Howe Island is half an hour nearer to UTC."""
    there = zone_of(zone)
    offsets = [change.after_us for change in changes(there) if change.at_us > 0]
    found = {-offset % width_us for offset in (instant(moment(0, there).replace(tzinfo=UTC)), *offsets)}
    return found.pop() if len(found) == 1 else None


def _fixed_offset(zone: str, width_us: int) -> int:
    """Partitions begin with the clock of the zone where that is possible, and else with the hour."""
    for step_us in (width_us, HOUR_US):
        if width_us % step_us == 0 and (offset := clock_offset_us(zone, step_us)) is not None:
            return offset
    return 0


@lru_cache(maxsize=256)
def _irregular(grain: Calendar) -> tuple[tuple[int, int], ...]:
    found = []
    for at, before, after in changes(zone_of(grain.zone)):
        low, high = sorted((at + before, at + after))
        midnight = low - low % DAY_US + DAY_US
        if midnight < high:
            if after < before:
                found.append((at, at + midnight - low))
            elif grain.floor(at) == at:
                found.append((at, grain.shift(at, 1)))
    return tuple(found)


_FIRST_DAY, _LAST_DAY = date(1, 12, 1).toordinal(), date(9998, 12, 31).toordinal()


@lru_cache(maxsize=1 << 16)
def _start(name: str, zone: str, ordinal: int) -> int:
    if name in MONTHS:
        year, month = divmod(min(max(ordinal * MONTHS[name], 23), 9998 * 12 + 11), 12)
        first = date(year, month + 1, 1)
    else:
        first = date.fromordinal(min(max(ordinal if name == "day" else ordinal * 7 + 1, _FIRST_DAY), _LAST_DAY))
    # A midnight that does not exist (a gap) becomes the instant the gap ends, one that comes twice the first of both.
    start = first_instant_of(datetime.combine(first, time.min), zone_of(zone))
    return BEGIN_US if start <= FIRST_US else END_US if start > LAST_US else start
