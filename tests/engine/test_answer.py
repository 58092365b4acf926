"""Answers as Python values."""

from __future__ import annotations

from datetime import UTC, datetime
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
