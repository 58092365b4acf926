"""Every form in which a user says which partitions are read: parsed, forward and backward, in UTC and where days have 23 or
25 hours. What is expected is said in the calendar's words."""

from __future__ import annotations

import pytest

from penstock.model.grain import WHOLE, parse_grain, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.relations import PartitionMap, parse_relation
from penstock.model.span import parse_span
from penstock.model.time import HOUR_US

BERLIN = "Europe/Berlin"


def span(text: str, zone: str = "UTC") -> PartitionSet:
    return PartitionSet.of(parse_span(text, zone_of(zone)))


FORMS = [
    # relation, source, table, partition of the table, what it reads of the source
    ("same", "day", "day", "2024-03-05", "2024-03-05"),
    ("DAY - 1", "day", "day", "2024-03-01", "2024-02-29"),
    ("DAY - 3 .. DAY - 1", "day", "day", "2024-03-02", "2024-02-28..2024-03-01"),
    ("DAY - 1", "hour", "day", "2024-03-01", "2024-02-29"),
    ("WEEK.days()", "day", "week", "2024-02-26..2024-03-03", "2024-02-26..2024-03-03"),
    ("DAY.hours()", "hour", "day", "2024-03-01", "2024-03-01T00..2024-03-01T23"),
    ("MONTH.days()", "day", "month", "2024-02", "2024-02"),
    ("QUARTER.months()", "month", "quarter", "2024-04..2024-06", "2024-04..2024-06"),
    ("YEAR.quarters()", "quarter", "year", "2024", "2024"),
    ("YEAR - 1", "month", "year", "2024", "2023"),
    ("QUARTER.weeks()", "week", "quarter", "2024-04..2024-06", "2024-04-01..2024-06-30"),
    # Weeks that overlap the month: from Monday, 29 January to Sunday, 3 March.
    ("MONTH.weeks()", "week", "month", "2024-02", "2024-01-29..2024-03-03"),
    ("last 7", "day", "day", "2024-03-03", "2024-02-26..2024-03-03"),
    ("previous", "month", "month", "2024-03", "2024-02"),
    ("containing", "day", "hour", "2024-03-01T10", "2024-03-01"),
]


@pytest.mark.parametrize("zone", ["UTC", BERLIN])
@pytest.mark.parametrize(("text", "source", "table", "partition", "reads"), FORMS)
def test_forms(text: str, source: str, table: str, partition: str, reads: str, zone: str) -> None:
    above, below = parse_grain(source, zone), parse_grain(table, zone)
    way = PartitionMap(parse_relation(text, above, below), above, below)
    mine, read = span(partition, zone), span(reads, zone)
    assert way.required(mine) == read
    # Whatever it reads affects it, and what lies just beside does not.
    (first, last), (start, _) = read.intervals[0], mine.intervals[0]
    for inside in (first, last - 1):
        assert start in way.affected(PartitionSet.of((inside, inside + 1)))
    for outside in (first - 1, last):
        assert start not in way.affected(PartitionSet.of((outside, outside + 1)))


@pytest.mark.parametrize(("day", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)])
def test_days_of_a_zone(day: str, hours: int) -> None:
    hour, there = parse_grain("hour"), parse_grain("day", BERLIN)
    way = PartitionMap(parse_relation("DAY.hours()", hour, there), hour, there)
    assert way.required(span(day, BERLIN)).count(hour) == hours
    assert span(day, BERLIN).count(there) == 1
    (start, end) = span(day, BERLIN).intervals[0]
    assert end - start == hours * HOUR_US
    # The day before, through the change of the clock.
    back = PartitionMap(parse_relation("DAY - 1", there, there), there, there)
    assert back.affected(span(day, BERLIN)) == PartitionSet.of(there.hull(end, end + 1))


def test_its_own_past_and_everything() -> None:
    day = parse_grain("day")
    own = PartitionMap(parse_relation("SELF - 1", day, day, itself=True), day, day)
    assert own.required(span("2024-03-01")) == span("2024-02-29")
    assert own.affected(span("2024-02-29")) == span("2024-03-01")
    for source in (day, WHOLE):
        every = PartitionMap(parse_relation("everything", source, day), source, day)
        assert every.required(span("2024-03-01")) == every.affected(span("2024-03-01")) == EVERYTHING


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2024-03-32", "is not a time: day is out of range"),
        ("yesterday", "is not a stretch of time; write for example 2024-03-01..2024-03-07"),
        ("2024-03-02..2024-03-01", "ends before it begins"),
        ("2024-03..", "is not a stretch of time"),
        ("2024-03-01..2024-03-02..2024-03-03", "is not a stretch of time"),
    ],
)
def test_spans_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_span(text)


def test_spans() -> None:
    assert (
        parse_span("2024-02-29") == parse_span("2024-02-29T00..2024-02-29T23") == parse_span("2024-02-29..2024-02-29")
    )
    assert parse_span("2024") == parse_span("2024-01..2024-12")
    assert parse_span("2024-03-01T10:15")[1] - parse_span("2024-03-01T10:15")[0] == HOUR_US // 60
    assert parse_span("all") == EVERYTHING.intervals[0]
