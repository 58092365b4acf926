"""What Spark computes for rows is what the model says: their partition, above all."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from penstock.engine.spark.session import SparkProblem, session_in
from penstock.engine.updates.rows import RowsProblem, check_partitions_of, partition_start
from penstock.model.grain import Calendar, parse_grain, zone_of
from penstock.model.time import FIRST_US, HOUR_US, LAST_US, SECOND_US, changes, parse_instant
from penstock.tables import ColumnStats, DataFile

# Clocks set at midnight, over midnight, by half an hour; a day left out; hours that begin at :30 or :45; offsets that changed.
ZONES = [
    "UTC", "Europe/Berlin", "America/St_Johns", "America/Goose_Bay", "America/Toronto", "America/Sao_Paulo", "Asia/Beirut",
    "Africa/Cairo", "America/Havana", "Pacific/Apia", "Europe/Lisbon", "Asia/Kolkata", "Asia/Kathmandu",
    "Australia/Lord_Howe", "Africa/Casablanca", "America/Juneau", "Asia/Gaza", "Pacific/Kwajalein", "America/Caracas",
]  # fmt: skip
FAR = [
    parse_instant(text) for text in ("0001-01-01", "0001-12-31", "0002-01-02", "1582-10-10", "9998-06-01", "9999-12-31")
]
GRAINS = ["5m", "30m", "hour", "day", "week", "month", "quarter", "year"]


def instants(zone: str, rng: Random) -> list[int]:
    """Some near each change of the clocks, some anywhere, some at the ends."""
    near = [
        change.at_us + step * HOUR_US // 2 + shift
        for change in changes(zone_of(zone))
        for step in (-50, -3, -2, -1, 0, 1, 2, 3, 49)
        for shift in (-1, 0, rng.randrange(HOUR_US))
    ]
    some = [rng.randrange(parse_instant("1850-01-01"), parse_instant("2150-01-01")) for _ in range(300)]
    ends = [FIRST_US - 1, FIRST_US, FIRST_US + 1, LAST_US - 1, LAST_US, LAST_US + SECOND_US]
    return [*rng.sample(near, min(len(near), 1500)), *some, *FAR, *ends]


@pytest.mark.parametrize("zone", ZONES)
def test_the_partition_of_a_row_is_that_of_the_model(spark: SparkSession, zone: str) -> None:
    own = session_in(spark, "Asia/Kolkata" if zone == "UTC" else "America/Havana")
    grains = [parse_grain(name, zone) for name in GRAINS]
    rows = own.createDataFrame([(at,) for at in instants(zone, Random(zone))], "at bigint")
    rows = rows.coalesce(1).selectExpr("at", "timestamp_micros(at) as ts")
    found = rows.selectExpr("at", *(partition_start("ts", grain) for grain in grains)).toArrow()
    for grain, column in zip(grains, found.columns[1:], strict=True):
        wrong = [
            (at, given, grain.floor(at))
            for at, given in zip(found["at"].to_pylist(), column.to_pylist(), strict=True)
            if given != grain.floor(at)
        ]
        assert not wrong, f"{grain} of {zone}: {wrong[:3]} and {len(wrong)} in all"


@pytest.mark.parametrize(
    ("first", "last", "fits"),
    [
        ("2024-03-01", "2024-03-01", True),
        ("2024-03-01 00:00:00", "2024-03-01 23:59:59.999999", True),
        ("2024-02-29 23:00:00+00", "2024-03-01 22:59:59.999999+00", True),
        ("2024-02-29 22:59:59.999999+00", "2024-03-01 10:00:00+00", False),
        ("2024-03-01 10:00:00+00", "2024-03-01 23:00:00+00", False),
    ],
)
def test_rows_of_another_partition_are_never_published(first: str, last: str, fits: bool) -> None:
    """Java and Python may know different rules of a zone."""
    day = Calendar("day", "Europe/Berlin")
    stats = {"ts": ColumnStats(min=first, max=last)}
    file = DataFile("x.parquet", parse_instant("2024-02-29T23:00Z"), 1, 1, 1, stats)
    if fits:
        check_partitions_of([file], "ts", day)
    else:
        with pytest.raises(RowsProblem, match="Java and Python disagree about the clocks of Europe/Berlin near 2024"):
            check_partitions_of([file], "ts", day)


def test_a_zone_that_java_does_not_know(spark: SparkSession) -> None:
    with pytest.raises(SparkProblem, match="does not know the zone Atlantis/Capital"):
        session_in(spark, "Atlantis/Capital")
