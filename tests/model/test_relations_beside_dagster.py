"""Partition maps against an implementation of someone else: Dagster's `TimeWindowPartitionMapping`, over random windows,
also where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from penstock.model.grain import parse_grain
from penstock.model.partitions import PartitionSet
from penstock.model.relations import PartitionMap, Window
from penstock.model.time import instant, moment, parse_instant

dagster = pytest.importorskip("dagster")

FIRST, LAST = datetime(2021, 1, 1), datetime(2026, 1, 1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
# The same stretch of time in both: the hours of the day, the weeks that overlap the month, the month around the day.
PAIRS = [
    ("hour", "day"), ("hour", "week"), ("hour", "month"), ("day", "week"), ("day", "month"), ("week", "month"),
    ("month", "week"), ("month", "day"), ("day", "hour"), ("week", "day"),
]  # fmt: skip


def theirs(partition: str, zone: str):
    if partition == "hour":
        return dagster.HourlyPartitionsDefinition(FIRST, end_date=LAST, timezone=zone)
    if partition == "day":
        return dagster.DailyPartitionsDefinition(FIRST, end_date=LAST, timezone=zone)
    if partition == "week":
        return dagster.WeeklyPartitionsDefinition(FIRST, end_date=LAST, timezone=zone, day_offset=1)
    return dagster.MonthlyPartitionsDefinition(FIRST, end_date=LAST, timezone=zone)


def random_run(rng: Random, partition: str, zone: str) -> PartitionSet:
    """Some whole partitions in a row, often around a change of the clocks, far from the ends of what Dagster knows."""
    grain = parse_grain(partition, zone)
    if rng.random() < 0.5:
        at = parse_instant(rng.choice(["2023-03-26", "2023-10-29", "2024-03-10", "2024-11-03", "2024-02-29"]))
    else:
        at = instant(datetime(2022, 6, 1, tzinfo=UTC) + timedelta(hours=rng.randrange(18_000)))
    start = grain.floor(at + rng.randrange(-2, 3) * 3_600_000_000)
    return PartitionSet.of((start, grain.shift(start, rng.choice([1, 1, 2, 5]))))


def subset(definition, partitions: PartitionSet):
    windows = [dagster.TimeWindow(moment(start), moment(end)) for start, end in partitions]
    keys = [key for window in windows for key in definition.get_partition_keys_in_time_window(window)]
    return definition.subset_with_partition_keys(keys)


def as_set(found) -> PartitionSet:
    return PartitionSet.of(*((instant(window.start), instant(window.end)) for window in found.included_time_windows))


def compare(rng: Random, source: str, table: str, zone: str, window: Window, mapping) -> None:
    own = PartitionMap(window, parse_grain(source, zone), parse_grain(table, zone))
    upstream, downstream = theirs(source, zone), theirs(table, zone)
    wanted = random_run(rng, table, zone)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        subset(downstream, wanted), downstream, upstream
    )
    assert wanted and own.required(wanted) == as_set(found.partitions_subset), (wanted, "required")
    changed = random_run(rng, source, zone)
    found = mapping.get_downstream_partitions_for_partitions(subset(upstream, changed), upstream, downstream)
    assert changed and own.affected(changed) == as_set(found), (changed, "affected")


@pytest.mark.parametrize(("source", "table"), PAIRS)
def test_the_same_stretch_of_time(source: str, table: str) -> None:
    for seed in range(30):
        rng = Random(f"{source} {table} {seed}")
        compare(rng, source, table, rng.choice(ZONES), Window(0, 1), dagster.TimeWindowPartitionMapping())


@pytest.mark.filterwarnings("ignore:Parameter `allow_nonexistent_upstream_partitions`")
@pytest.mark.parametrize("partition", ["hour", "day", "week", "month"])
def test_windows_of_earlier_and_later_partitions(partition: str) -> None:
    for seed in range(40):
        rng = Random(f"{partition} {seed}")
        low = rng.randrange(-5, 3)
        high = low + rng.randrange(1, 5)
        mapping = dagster.TimeWindowPartitionMapping(
            start_offset=low, end_offset=high - 1, allow_nonexistent_upstream_partitions=True
        )
        compare(rng, partition, partition, rng.choice(ZONES), Window(low, high), mapping)
