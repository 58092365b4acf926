"""Times at which a table is restated, learned from when it was."""

from __future__ import annotations

import pytest

from penstock.model.grain import zone_of
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_instant
from penstock.requests.cadence import Restated

MONDAY = parse_instant("2024-03-04")


def seen(*times_us: int) -> Restated:
    found = Restated()
    for at in times_us:
        found.note(at + 5 * SECOND_US, [at])
    return found


@pytest.mark.parametrize(
    ("times_us", "said"),
    [
        ([MONDAY + n * DAY_US + HOUR_US for n in range(4)], "daily 01:00"),
        # Some minutes earlier or later, also around midnight.
        ([MONDAY + n * DAY_US + (n % 3 - 1) * 5 * MINUTE_US for n in range(5)], "daily 23:55"),
        ([MONDAY + 7 * n * DAY_US + 2 * HOUR_US for n in range(5)], "Mondays 02:00"),
        ([MONDAY + (7 * n + k) * DAY_US + HOUR_US for n in range(3) for k in (0, 3)], "Mondays and Thursdays 01:00"),
        ([parse_instant(f"2024-{n:02}-01 06:00") for n in range(1, 6)], "the 1st 06:00"),
        # One was left out, one came besides, they come at other times, or every six hours.
        ([MONDAY + n * DAY_US for n in (0, 1, 3, 4, 5)], None),
        ([MONDAY + n * HOUR_US for n in (0, 24, 36, 48, 72)], None),
        ([MONDAY + n * 25 * HOUR_US for n in range(6)], None),
        ([MONDAY + n * 6 * HOUR_US for n in range(8)], None),
        ([MONDAY + n * DAY_US for n in range(3)], None),
        # Once on a day of two weeks each says nothing of the next.
        ([MONDAY + n * DAY_US for n in (0, 3, 8, 12)], None),
    ],
)
def test_what_comes_again(times_us: list[int], said: str | None) -> None:
    found = seen(*times_us).timetable("UTC")
    assert (str(found) if found is not None else None) == said


def test_by_the_clock_of_the_zone() -> None:
    """Two o'clock in Berlin, over the change of the clock; in UTC it is at one and at midnight."""
    days = [parse_instant(f"2024-03-{day} 03:30", zone_of("Europe/Berlin")) for day in (29, 30, 31)]
    days.append(parse_instant("2024-04-01 03:30", zone_of("Europe/Berlin")))
    assert str(seen(*days).timetable("Europe/Berlin")) == "daily 03:30"


def test_a_burst_is_one_restatement_and_its_rate_that_within() -> None:
    hours = [MONDAY + n * DAY_US + HOUR_US for n in range(4)]
    found = seen(*(hour + k * 20 * SECOND_US for hour in hours for k in range(10)))
    timetable = found.timetable("UTC")
    assert str(timetable) == "daily 01:00"
    assert found.rate_per_s == pytest.approx(1 / 20)
    # What one update brings is as many changes as came.
    merged = Restated()
    merged.note(MONDAY + HOUR_US, [MONDAY + k * 20 * SECOND_US for k in range(10)])
    assert merged.rate_per_s == pytest.approx(1 / 20)
    # Who goes on for hours has no time at which it is there.
    assert seen(*(hour + k * 30 * MINUTE_US for hour in hours for k in range(8))).timetable("UTC") is None
