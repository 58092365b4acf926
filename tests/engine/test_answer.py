"""Answers as Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa

from penstock.engine.desk.answer import python_rows


def test_instants_are_in_the_zone_wherever_they_stand() -> None:
    at, wall = datetime(2024, 1, 1, 15, tzinfo=UTC), datetime(2024, 1, 1, 15)
    instant = pa.timestamp("us", "UTC")
    both = {"at": at, "wall": wall, "some": [at, None]}
    table = pa.table(
        {
            "plain": pa.array([at, None], instant),
            "wall": pa.array([wall, None], pa.timestamp("us")),
            "within": pa.array(
                [both, None], pa.struct([("at", instant), ("wall", pa.timestamp("us")), ("some", pa.list_(instant))])
            ),
            "by": pa.array([[(at, [both])], None], pa.map_(instant, pa.list_(pa.struct([("at", instant)])))),
        }
    )
    first, nothing = python_rows(table, "America/New_York")
    here = "2024-01-01 10:00:00-05:00"
    assert str(first[0]) == here and first[0].tzinfo == ZoneInfo("America/New_York")
    assert first[1] == first[2]["wall"] == wall and first[1].tzinfo is None
    assert str(first[2]["at"]) == str(first[2]["some"][0]) == here and first[2]["some"][1] is None
    ((key, (value,)),) = first[3]
    assert str(key) == str(value["at"]) == here
    assert nothing == (None, None, None, None)


def test_years_that_python_does_not_have_are_text() -> None:
    """Spark has years from -290,308 to 294,247: one such row made the whole answer fail."""
    day, moment = pa.date32(), pa.timestamp("us", "UTC")
    far = {"day": 10**7, "some": [0, 9 * 10**18]}
    kind = pa.struct([("day", pa.int32()), ("some", pa.list_(pa.int64()))])
    table = pa.table(
        {
            "day": pa.chunked_array([pa.array([-(10**7), 0], pa.int32()).view(day), pa.array([None], day)]),
            "at": pa.array([-9 * 10**18, 0, None], pa.int64()).view(moment),
            "wall": pa.array([9 * 10**18, 0, None], pa.int64()).view(pa.timestamp("us")),
            "in": pa.array([far, None, None], kind).view(pa.struct([("day", day), ("some", pa.list_(moment))])),
            "edge": pa.array([253402300799999999, -62135596800000000, None], pa.int64()).view(moment),
        }
    )
    first, second, third = python_rows(table, "Asia/Tokyo")
    # The calendar is the same after 400 years, which have 146,097 days.
    near = date(1970, 1, 1) + timedelta(68 * 146097 - 10**7)
    assert first[0] == f"{near.year - 68 * 400}{near:-%m-%d}"
    assert first[1] == "-283229-05-10T08:00:00.000000Z" and first[2] == "+287168-08-24T16:00:00.000000"
    near = date(1970, 1, 1) + timedelta(10**7 - 68 * 146097)
    assert first[3]["day"] == f"+{near.year + 68 * 400}{near:-%m-%d}"
    assert first[3]["some"] == [datetime(1970, 1, 1, tzinfo=UTC), "+287168-08-24T16:00:00.000000Z"]
    # In the zone it would be the year 10000.
    assert first[4] == datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert str(second[0]) == "1970-01-01" and str(second[1]) == "1970-01-01 09:00:00+09:00"
    assert third == (None,) * 5
