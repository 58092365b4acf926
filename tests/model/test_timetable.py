"""Times that come again: as they are written, and across changes of the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.grain import zone_of
from penstock.model.time import DAY_US, MINUTE_US, format_instant, moment, parse_instant
from penstock.model.timetable import Timetable, parse_timetable


@pytest.mark.parametrize(
    ("written", "after", "expected"),
    [
        ("Mon 02:00", "2024-03-04 01:59", "2024-03-04 02:00"),
        ("Mon 02:00", "2024-03-04 02:00", "2024-03-11 02:00"),
        ("mondays and thursdays 2:00", "2024-03-04 02:00", "2024-03-07 02:00"),
        ("tue, thu 02:00", "2024-03-04 02:00", "2024-03-05 02:00"),
        ("23:30..00:30", "2024-03-04 23:45", "2024-03-05 23:30"),
        ("daily 06:00", "2024-12-31 07:00", "2025-01-01 06:00"),
        ("31st 06:00", "2024-01-31 06:00", "2024-03-31 06:00"),
        ("the 1st and 15th 06:00", "2024-02-10", "2024-02-15 06:00"),
    ],
)
def test_the_next_time(written: str, after: str, expected: str) -> None:
    assert format_instant(parse_timetable(written).next_us(parse_instant(after))) == expected


def test_until_when() -> None:
    assert parse_timetable("23:30..00:30").within_us == 60 * MINUTE_US
    assert parse_timetable("23:30").within_us == 15 * MINUTE_US


@pytest.mark.parametrize("written", ["", "Mon", "Mon 24:00", "Mon 2", "0 2 * * 1", "Xday 02:00", "32 02:00", "02:00..02:00", "M 02:00"])  # fmt: skip
def test_what_is_not_a_time(written: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_timetable(written)


def test_by_the_clock_of_the_zone() -> None:
    """In Berlin the clock goes from 2:00 to 3:00 on 2024-03-31, a Sunday."""
    table = parse_timetable("Mon 02:00", "Europe/Berlin")
    assert format_instant(table.next_us(parse_instant("2024-03-20"))) == "2024-03-25 01:00"
    assert format_instant(table.next_us(parse_instant("2024-03-30"))) == "2024-04-01 00:00"


@given(
    st.integers(0, 1439),
    st.sets(st.integers(0, 6)),
    st.sets(st.integers(1, 31)),
    st.integers(0, 3000 * DAY_US),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_none_is_left_out(minute: int, weekdays: set[int], monthdays: set[int], after_us: int, zone: str) -> None:
    """Against trying every day between; times that the change of the clock skips aside."""
    table = Timetable(minute, weekdays=tuple(weekdays), monthdays=tuple(monthdays), zone=zone)
    found = table.next_us(after_us)
    assert found > after_us
    there = moment(found, zone_of(zone))
    every = not weekdays and not monthdays
    assert every or there.weekday() in weekdays or there.day in monthdays
    day = moment(after_us, zone_of(zone)).date()
    while (day := day.fromordinal(day.toordinal() + 1)) < there.date():
        assert not every and day.weekday() not in weekdays and day.day not in monthdays
