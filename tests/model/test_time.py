from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.time import (
    BEGIN_US,
    DAY_US,
    END_US,
    FIRST_US,
    HOUR_US,
    LAST_US,
    MINUTE_US,
    SECOND_US,
    format_duration,
    format_instant,
    instant,
    moment,
    parse_duration,
    parse_instant,
)

instants = st.integers(FIRST_US, LAST_US - 1)


@given(st.integers(0, 10**16))
def test_a_duration_reads_back_to_three_digits_or_two_units(duration_us: int) -> None:
    again = parse_duration(format_duration(duration_us))
    if duration_us < 10 * SECOND_US:
        assert again == pytest.approx(duration_us, rel=5e-3)
    else:  # the smaller of the two units that are shown
        unit = next(
            u for u in (HOUR_US, MINUTE_US, SECOND_US) if duration_us >= {HOUR_US: DAY_US, MINUTE_US: HOUR_US}.get(u, 0)
        )
        assert again == duration_us // unit * unit


@given(st.integers(0, 400), st.sampled_from(["d", "h", "m", "min", "s", "ms", "us", "w"]))
def test_one_unit_is_exact(count: int, unit: str) -> None:
    widths = {
        "w": 7 * DAY_US,
        "d": DAY_US,
        "h": HOUR_US,
        "m": MINUTE_US,
        "min": MINUTE_US,
        "s": SECOND_US,
        "ms": 1000,
        "us": 1,
    }
    assert parse_duration(f"{count}{unit}") == count * widths[unit]
    assert parse_duration(f" {count} {unit} ") == count * widths[unit]


def test_decimals_are_exact() -> None:
    assert parse_duration("0.1s") == 100_000
    assert parse_duration("1.1h") == 66 * MINUTE_US
    assert parse_duration("1d 2h 3m 4s") == DAY_US + 2 * HOUR_US + 3 * MINUTE_US + 4 * SECOND_US


@pytest.mark.parametrize("text", ["", "  ", "5", "m", "5x", "1h30", "-5m", "5m!", "1 month", "٣s"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration; write for example 30s, 5m, 1h30m or 2d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (999, "999us"),
        (1_000, "1ms"),
        (15_400, "15.4ms"),
        (999_499, "999ms"),
        (999_999, "1s"),
        (1_500_000, "1.5s"),
        (9_999_999, "10s"),
        (61 * SECOND_US, "1m 1s"),
        (DAY_US, "1d"),
        (-90 * SECOND_US, "-1m 30s"),
    ],
)
def test_durations_as_people_write_them(duration_us: int, text: str) -> None:
    assert format_duration(duration_us) == text


@given(instants)
def test_an_instant_reads_back(instant_us: int) -> None:
    assert parse_instant(format_instant(instant_us)) == instant_us
    assert instant(moment(instant_us)) == instant_us


@given(
    st.integers(0, 4_000_000_000 * SECOND_US), st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
)
def test_an_instant_reads_back_in_its_zone_unless_the_hour_comes_twice(instant_us: int, name: str) -> None:
    zone = ZoneInfo(name)
    assert instant(moment(instant_us, zone)) == instant_us
    again = parse_instant(format_instant(instant_us, zone), zone)
    assert again in (instant_us, instant_us - HOUR_US)
    if again != instant_us:
        assert moment(instant_us, zone).fold == 1


def test_instants_without_a_zone_are_utc() -> None:
    assert instant(datetime(1970, 1, 1)) == 0 == instant(datetime(1970, 1, 1, tzinfo=UTC))
    assert parse_instant("2024-03-01 10:05+02:00") == parse_instant("2024-03-01T08:05")


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01", "10:05"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write for example 2024-03-01"):
        parse_instant(text)


def test_the_ends_of_time_have_words() -> None:
    assert format_instant(END_US) == format_instant(LAST_US) == "the end of time"
    assert format_instant(BEGIN_US) == "the beginning of time"
