"""When something comes again and again, as people write it: `Mon 02:00`, `Mon, Thu 02:00..02:45`, `02:00`, `1st 06:00`.

A time alone is every day; names of days are days of the week, numbers days of the month. The second time says by when it
is there at the latest; without one, a quarter of an hour later.

>>> from penstock.model.time import format_instant, parse_instant
>>> table = parse_timetable("Mon 02:00")
>>> format_instant(table.next_us(parse_instant("2024-03-01")))  # a Friday
'2024-03-04 02:00'
>>> print(table, "|", parse_timetable("mon, thu 02:00..02:45"), "|", parse_timetable("02:00"), "|", parse_timetable("1st 06:00"))
Mondays 02:00 | Mondays and Thursdays 02:00 | daily 02:00 | the 1st 06:00
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import lru_cache

from penstock.model.grain import zone_of
from penstock.model.time import LAST_US, MINUTE_US, instant, moment

WITHIN_US = 15 * MINUTE_US
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = r"([01]?\d|2[0-3]):([0-5]\d)"
_WRITTEN = re.compile(rf"(?:(.*?)\s+)?{_TIME}(?:\s*\.\.\s*{_TIME})?", re.ASCII)
_MONTH_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?", re.ASCII)
_FORMS = 'write for example "Mon 02:00", "Mon, Thu 02:00..02:45", "02:00" (every day) or "1st 06:00"'
# No day of a month is further away than this from itself in a later month.
_FURTHEST = 62


@dataclass(frozen=True, slots=True)
class Timetable:
    minute: int
    within_us: int = WITHIN_US
    # Days of the week (Monday is 0) and of the month; every day if there are none.
    weekdays: tuple[int, ...] = ()
    monthdays: tuple[int, ...] = ()
    zone: str = "UTC"

    def next_us(self, after_us: int) -> int:
        """The first time after one; by the clock of the zone."""
        return _next(self, after_us)

    def _on(self, day: datetime) -> bool:
        if not self.weekdays and not self.monthdays:
            return True
        return day.weekday() in self.weekdays or day.day in self.monthdays

    def __str__(self) -> str:
        days = [f"{_DAYS[day].title()}s" for day in self.weekdays] + [f"the {_nth(day)}" for day in self.monthdays]
        when = " and ".join([", ".join(days[:-1]), days[-1]] if len(days) > 1 else days) or "daily"
        return f"{when} {self.minute // 60:02}:{self.minute % 60:02}"


@lru_cache(maxsize=4096)
def _next(table: Timetable, after_us: int) -> int:
    zone = zone_of(table.zone)
    day = moment(after_us, zone)
    at = time(table.minute // 60, table.minute % 60)
    for number in range(_FURTHEST + 1):
        tried = day + timedelta(days=number)
        if table._on(tried):
            found = instant(datetime.combine(tried.date(), at, zone))
            if found > after_us:
                return found
    return LAST_US


@lru_cache(maxsize=4096)
def parse_timetable(text: str, zone: str = "UTC") -> Timetable:
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time that comes again; {_FORMS}")
    days, hour, minute, last_hour, last_minute = match.groups()
    begin = int(hour) * 60 + int(minute)
    within = WITHIN_US
    if last_hour is not None:
        minutes = (int(last_hour) * 60 + int(last_minute) - begin) % (24 * 60)  # 23:30..00:30 goes past midnight
        if not minutes:
            raise ValueError(f"{text!r} ends when it begins; {_FORMS}")
        within = minutes * MINUTE_US
    weekdays: set[int] = set()
    monthdays: set[int] = set()
    for word in re.split(r"\s*(?:,|\band\b)\s*|\s+", days.strip(" ,")) if days else ():
        if (number := _MONTH_DAY.fullmatch(word)) and 1 <= int(number[1]) <= 31:
            monthdays.add(int(number[1]))
        elif len(word) >= 2 and (found := [n for n, day in enumerate(_DAYS) if f"{day}s".startswith(word.lower())]):
            weekdays.add(found[0])
        elif word.lower() not in ("daily", "every", "the"):
            raise ValueError(f"{text!r}: {word!r} is no day of a week or month; {_FORMS}")
    return Timetable(begin, within, tuple(sorted(weekdays)), tuple(sorted(monthdays)), zone)


def _nth(day: int) -> str:
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"
