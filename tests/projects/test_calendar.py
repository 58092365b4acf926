"""The oracle's own calendar, by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.projects import calendar


def us(text: str) -> int:
    return calendar.micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("at", "grain", "zone", "start", "following"),
    [
        ("2024-03-31T12:00", "day", "Europe/Berlin", "2024-03-30T23:00", "2024-03-31T22:00"),
        ("2024-10-27T12:00", "day", "Europe/Berlin", "2024-10-26T22:00", "2024-10-27T23:00"),
        ("2024-03-10T12:00", "week", "America/New_York", "2024-03-04T05:00", "2024-03-11T04:00"),
        ("2024-03-01T00:00", "month", "Asia/Kolkata", "2024-02-29T18:30", "2024-03-31T18:30"),
        ("2024-05-01T00:00", "quarter", "Europe/Berlin", "2024-03-31T22:00", "2024-06-30T22:00"),
        ("2024-12-31T23:30", "quarter", "UTC", "2024-10-01T00:00", "2025-01-01T00:00"),
        ("2024-12-31T23:30", "year", "Europe/Berlin", "2024-12-31T23:00", "2025-12-31T23:00"),
        ("2024-03-01T00:44", "15m", "Asia/Kolkata", "2024-03-01T00:30", "2024-03-01T00:45"),
        ("2024-03-01T00:44", "hour", "Asia/Kolkata", "2024-03-01T00:30", "2024-03-01T01:30"),
        # midnight is skipped
        ("2018-11-04T03:30", "day", "America/Sao_Paulo", "2018-11-04T03:00", "2018-11-05T02:00"),
        # 00:01 on the seventh is followed by 23:01 on the sixth: that hour stays with the seventh
        ("2010-11-07T02:40", "day", "America/St_Johns", "2010-11-07T02:30", "2010-11-08T03:30"),
    ],
)
def test_partitions(at: str, grain: str, zone: str, start: str, following: str) -> None:
    assert calendar.floor(us(at), grain, zone) == us(start)
    assert calendar.shift(us(start), 1, grain, zone) == us(following)
    assert calendar.shift(us(following), -1, grain, zone) == us(start)
    assert calendar.ceil(us(at), grain, zone) == us(following)
