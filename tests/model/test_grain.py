from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.grain import WHOLE, Calendar, Fixed, Grain, nested, parse_grain
from penstock.model.time import BEGIN_US, DAY_US, END_US, FIRST_US, HOUR_US, LAST_US, moment, parse_instant

ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Kolkata",
    "America/St_Johns",
]
GRAINS = [parse_grain(name, zone) for zone in ZONES for name in ("day", "week", "month", "quarter", "year")] + [
    parse_grain(name) for name in ("1m", "5m", "90m", "hour", "360m")
]
grains = st.sampled_from(GRAINS)
# Where clocks change: Sao Paulo skips the midnight of 2017-10-15, Havana has two of 2017-11-05.
turns = [
    parse_instant(text)
    for text in ("2017-10-15 03:00", "2017-11-05 05:00", "2018-02-18 02:00", "2011-11-06 02:31", "2024-03-31 01:00")
]
instants = st.one_of(
    st.integers(parse_instant("1902-01-01"), parse_instant("2100-01-01")),
    st.sampled_from(turns).flatmap(lambda t: st.integers(t - 2 * DAY_US, t + 2 * DAY_US)),
    st.sampled_from([BEGIN_US, BEGIN_US + 1, END_US - 1, parse_instant("9999-12-31"), parse_instant("0001-01-01")]),
)


@given(grains, instants)
def test_partitions_cover_the_time_line_without_overlap(grain: Grain, t: int) -> None:
    n = grain.ordinal(t)
    assert grain.start(n) <= t < grain.start(n + 1)
    assert grain.ordinal(grain.start(n)) == n or grain.start(n) == BEGIN_US
    assert grain.ordinal(grain.start(n + 1) - 1) == n or grain.start(n + 1) == END_US
    assert grain.ordinal(min(t + 1, END_US - 1)) in (n, n + 1)


@given(grains, instants)
def test_floor_and_ceil_are_the_nearest_boundaries(grain: Grain, t: int) -> None:
    low, high = grain.floor(t), grain.ceil(t)
    assert low <= t <= high
    assert grain.floor(low) == low == grain.ceil(low)
    assert grain.floor(high) == high == grain.ceil(high)
    assert (low == high) == (low == t)
    assert low == t or grain.count(low, high) == 1


@given(grains, instants, st.integers(-500, 500), st.integers(-500, 500))
def test_shifts_add_up(grain: Grain, t: int, a: int, b: int) -> None:
    start = grain.floor(t)
    there = grain.shift(start, a)
    assert grain.floor(there) == there
    if BEGIN_US < there < END_US and start > BEGIN_US:
        assert grain.shift(there, b) == grain.shift(start, a + b)
        assert grain.shift(there, -a) == start
        assert grain.count(min(start, there), max(start, there)) == abs(a)


@given(grains, instants, st.integers(0, 40 * DAY_US))
def test_the_hull_is_the_smallest_run_of_partitions(grain: Grain, t: int, length: int) -> None:
    start, end = t, min(END_US, t + length + 1)
    low, high = grain.hull(start, end)
    assert low <= start and end <= high
    assert grain.ordinal(low) == grain.ordinal(start) and grain.ordinal(high - 1) == grain.ordinal(end - 1)


def test_a_day_of_a_zone_has_23_or_25_hours_twice_a_year() -> None:
    day = parse_grain("day", "America/New_York")
    lengths = {}
    at = day.floor(parse_instant("2024-01-01 12:00"))
    while at < parse_instant("2025-01-01"):
        lengths[day.shift(at, 1) - at] = lengths.get(day.shift(at, 1) - at, 0) + 1
        at = day.shift(at, 1)
    assert lengths == {24 * HOUR_US: 364, 23 * HOUR_US: 1, 25 * HOUR_US: 1}


def test_a_day_without_midnight_begins_when_the_gap_ends() -> None:
    day = Calendar("day", "America/Sao_Paulo")
    start = day.floor(parse_instant("2017-10-15 12:00"))
    assert start == parse_instant("2017-10-15 03:00")  # 01:00 there; 00:00 does not exist
    assert day.shift(start, 1) - start == 23 * HOUR_US
    assert day.ordinal(start - 1) == day.ordinal(start) - 1


def test_an_hour_that_comes_twice_stays_in_one_day() -> None:
    day = Calendar("day", "America/Havana")  # 2017-11-05: at 01:00 the clock is set back to 00:00
    start = day.floor(parse_instant("2017-11-05 12:00"))
    assert start == parse_instant("2017-11-05 04:00")
    assert day.shift(start, 1) - start == 25 * HOUR_US


def test_a_clock_set_back_across_midnight_does_not_go_back_a_day() -> None:
    day = Calendar("day", "America/St_Johns")  # 2010-11-07: at 00:01 the clock is set back to 23:01
    t = parse_instant("2010-11-07 02:45")
    assert moment(t, __import__("zoneinfo").ZoneInfo("America/St_Johns")).day == 6
    assert day.ordinal(t) >= day.ordinal(t - 20 * 60 * 1_000_000)
    assert day.start(day.ordinal(t)) <= t < day.start(day.ordinal(t) + 1)


def test_weeks_begin_on_monday_everywhere() -> None:
    for zone in ("UTC", "Europe/Berlin"):
        week = parse_grain("week", zone)
        start = moment(week.floor(parse_instant("2024-02-29 12:00")), __import__("zoneinfo").ZoneInfo(zone))
        assert (start.weekday(), start.day, start.hour) == (0, 26, 0)


@given(st.sampled_from(GRAINS), st.sampled_from(GRAINS), instants)
def test_nested_means_that_boundaries_are_boundaries(finer: Grain, coarser: Grain, t: int) -> None:
    if nested(finer, coarser) and parse_instant("1971-01-01") < t < parse_instant("2037-01-01"):
        start = coarser.floor(t)
        assert finer.floor(start) == start
        assert not nested(coarser, finer)


def test_hours_do_not_fit_a_day_of_india() -> None:
    assert nested(parse_grain("hour"), parse_grain("day", "Europe/Berlin"))
    assert not nested(parse_grain("hour"), parse_grain("day", "Asia/Kolkata"))
    assert nested(parse_grain("30m"), parse_grain("day", "Asia/Kolkata"))
    assert nested(parse_grain("hour", "Asia/Kolkata"), parse_grain("day", "Asia/Kolkata"))
    assert nested(parse_grain("360m", "Asia/Tokyo"), parse_grain("week", "Asia/Tokyo"))
    assert not nested(parse_grain("360m", "Europe/Berlin"), parse_grain("day", "Europe/Berlin"))
    assert not nested(parse_grain("hour", "Australia/Lord_Howe"), parse_grain("day", "Australia/Lord_Howe"))
    assert nested(parse_grain("720m"), parse_grain("month"))
    assert not nested(parse_grain("week"), parse_grain("month"))
    for finer, coarser in (("day", "quarter"), ("month", "quarter"), ("month", "year"), ("quarter", "year")):
        assert nested(parse_grain(finer), parse_grain(coarser)) and not nested(parse_grain(coarser), parse_grain(finer))
    assert not nested(parse_grain("week"), parse_grain("year")) and not nested(parse_grain("year"), parse_grain("year"))
    assert nested(parse_grain("day"), WHOLE) and not nested(WHOLE, WHOLE)


def test_names_of_grains() -> None:
    assert parse_grain(" 5 minutes ") == Fixed("5m", 300_000_000)
    assert parse_grain("60m") == parse_grain("hour")
    assert parse_grain("minute") == parse_grain("1m")
    assert parse_grain("none") is WHOLE
    assert parse_grain("day") != parse_grain("day", "Europe/Berlin")
    for text, message in [
        ("7m", "does not divide a day"),
        ("0m", "does not divide a day"),
        ("daily", "not a partitioning; expected minutes such as 5m, hour, day, week, month, quarter, year or none"),
    ]:
        with pytest.raises(ValueError, match=message):
            parse_grain(text)
    for name in ("localtime", "posix/Europe/Berlin", "Factory"):
        with pytest.raises(ValueError, match="not a time zone"):
            parse_grain("day", name)
    with pytest.raises(ValueError, match="not a time zone"):
        parse_grain("day", "Mars/Olympus")


@given(
    st.sampled_from(["minute", "5m", "hour", "day", "week"]),
    st.one_of(
        st.integers(FIRST_US - 10**15, FIRST_US + 10**15),
        st.integers(LAST_US - 10**15, LAST_US + 10**15),
        st.integers(-(10**16), 10**16),
        st.sampled_from([BEGIN_US, END_US, FIRST_US, LAST_US]),
    ),
    st.integers(-3, 3),
    st.integers(-10_000, 10_000),
)
def test_fast_ways_are_the_same_as_the_general_ones(text: str, instant_us: int, near: int, partitions: int) -> None:
    grain = parse_grain(text)
    for at in (instant_us, grain.floor(instant_us) + near):
        if BEGIN_US <= at <= END_US:
            assert grain.floor(at) == Grain.floor(grain, at)
            assert grain.ceil(at) == Grain.ceil(grain, at)
            assert grain.shift(at, partitions) == Grain.shift(grain, at, partitions)
