"""A stretch of time as people write it: `2024-03-01..2024-03-07`, `2024-03`, `2024-03-01T10..2024-03-01T15`.

Both ends are meant as they are written, the last one included: a day is the whole day, a month the whole month. So the
same text means the same, however the table is partitioned.

>>> from penstock.model.time import format_instant
>>> [format_instant(end) for end in parse_span("2024-02-28..2024-02-29")]
['2024-02-28 00:00', '2024-03-01 00:00']
>>> [format_instant(end) for end in parse_span("2024-02")]
['2024-02-01 00:00', '2024-03-01 00:00']
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from penstock.errors import PenstockError
from penstock.model.partitions import EVERYTHING, Interval
from penstock.model.time import SECOND_US, format_instant, instant, parse_duration, parse_instant

_POINT = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d))?)?)?)?)?", re.ASCII)
_FORMS = "write for example 2024-03-01..2024-03-07, 2024-03-01, 2024-03, 2024-03-01T10..2024-03-01T15, or all"


def parse_span(text: str, zone: tzinfo = UTC) -> Interval:
    """The half-open interval of what is written, read in a zone."""
    if text.strip().lower() == "all":
        return EVERYTHING.intervals[0]
    ends = [end.strip() for end in text.split("..")]
    if len(ends) > 2 or not all(ends):
        raise ValueError(f"{text!r} is not a stretch of time; {_FORMS}")
    first, last = _point(ends[0], text, zone), _point(ends[-1], text, zone)
    if first[0] >= last[1]:
        raise ValueError(f"{text!r} ends before it begins; write the earlier time first")
    return first[0], last[1]


def _point(written: str, text: str, zone: tzinfo) -> Interval:
    """From where to where one end goes, by how exactly it is written."""
    match = _POINT.fullmatch(written)
    if match is None:
        raise ValueError(f"{text!r} is not a stretch of time; {_FORMS}")
    parts = [int(part) for part in match.groups() if part is not None]
    try:
        year, month, day, hour, minute, second = parts + [1, 1, 1, 0, 0, 0][len(parts) :]
        begin = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"{written!r} is not a time: {error}") from None
    match len(parts):
        case 1:
            end = begin.replace(year=begin.year + 1)
        case 2:
            end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        case 3:
            end = begin + timedelta(days=1)  # by the calendar of the zone: 23 or 25 hours on two days of the year
        case _:
            width = {4: timedelta(hours=1), 5: timedelta(minutes=1), 6: timedelta(seconds=1)}[len(parts)]
            start = instant(begin)
            return start, start + width // timedelta(microseconds=1)
    return instant(begin), instant(end)


def parse_deadline(text: str | None, now_us: int, zone: tzinfo) -> int | None:
    """A duration from now, or a time by the clocks of a zone."""
    if text is None:
        return None
    try:
        return now_us + parse_duration(text)
    except ValueError:
        pass
    try:
        until = parse_instant(text, zone)
    except ValueError:
        raise PenstockError(
            f"{text!r} is not a deadline; write a duration such as 2h, or a time such as 2024-03-08T06:00"
        ) from None
    if until <= now_us:
        now = format_instant(now_us // SECOND_US * SECOND_US, zone)
        raise PenstockError(
            f"the deadline {text} is over: it is {now} now; write a later time, or a duration such as 2h"
        )
    return until
