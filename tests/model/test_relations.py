from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.grain import WHOLE, Grain, parse_grain
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.relations import SAME, Everything, PartitionMap, Window, Windows, default_relation, parse_relation
from penstock.model.time import DAY_US, parse_instant

HOUR, DAY, WEEK, MONTH = (parse_grain(name) for name in ("hour", "day", "week", "month"))
NEW_YORK = parse_grain("day", "America/New_York")
GRAINS = [
    HOUR,
    parse_grain("360m"),
    DAY,
    NEW_YORK,
    WEEK,
    MONTH,
    parse_grain("month", "Europe/Berlin"),
    parse_grain("quarter"),
    parse_grain("year", "Europe/Berlin"),
    WHOLE,
]
grains = st.sampled_from(GRAINS)
windows = st.tuples(st.integers(-3, 2), st.integers(1, 4)).map(lambda w: Window(w[0], w[0] + w[1]))
# Counted in another grain, and with holes.
counted = st.builds(lambda w, unit: Window(w.low, w.high, unit), windows, st.sampled_from(GRAINS[:-1]))
several = st.lists(st.one_of(windows, counted), min_size=2, max_size=3).map(lambda parts: Windows(tuple(parts)))
relations = st.one_of(windows, counted, several, st.just(Everything()))
T0 = parse_instant("2024-02-25")
SPAN = 12 * DAY_US
instants = st.integers(T0, T0 + SPAN)


def partition(grain: Grain, t: int) -> PartitionSet:
    return PartitionSet.of(grain.hull(t, t + 1))


@given(relations, grains, grains, instants, instants)
def test_required_and_affected_are_adjoint(relation, source: Grain, table: Grain, s: int, t: int) -> None:
    """What p reads meets S if and only if p is affected by S."""
    way = PartitionMap(relation, source, table)
    p, q = partition(table, t), partition(source, s)
    assert bool(way.required(p) & q) == bool(p & way.affected(q))


@given(windows, st.sampled_from(GRAINS[:-1]), st.sampled_from(GRAINS[:-1]), instants)
def test_required_is_what_the_definition_says(window: Window, source: Grain, table: Grain, t: int) -> None:
    n = table.ordinal(t)
    low, high = table.start(n + window.low), table.start(n + window.high)
    expected, at = EMPTY, source.floor(low)
    while at < high:  # every partition of the source that overlaps
        expected |= partition(source, at)
        at = source.shift(at, 1)
    assert PartitionMap(window, source, table).required(partition(table, t)) == expected


@given(relations, grains, grains, st.lists(st.tuples(instants, instants), max_size=4))
def test_both_ways_are_those_of_the_single_partitions(relation, source: Grain, table: Grain, found) -> None:
    way = PartitionMap(relation, source, table)
    some = PartitionSet.of(*found).hull(table)
    each = [way.required(partition(table, start)) for start in some.starts(table)]
    assert way.required(some) == PartitionSet.of(*(i for part in each for i in part))
    some = PartitionSet.of(*found).hull(source)
    each = [way.affected(partition(source, start)) for start in some.starts(source)]
    assert way.affected(some) == PartitionSet.of(*(i for part in each for i in part))


@given(counted, st.sampled_from(GRAINS[:-1]), st.sampled_from(GRAINS[:-1]), instants)
def test_required_counted_in_another_grain(window: Window, source: Grain, table: Grain, t: int) -> None:
    """Of each unit that the partition touches, that which lies so many units away; and all between."""
    unit, (start, end) = window.unit, table.hull(t, t + 1)
    assert unit is not None
    expected = EMPTY
    for n in range(unit.ordinal(start), unit.ordinal(end - 1) + 1):
        expected |= PartitionSet.of(source.hull(unit.start(n + window.low), unit.start(n + window.high)))
    assert PartitionMap(window, source, table).required(partition(table, t)) == expected


@given(relations, st.sampled_from(GRAINS[:-1]), st.sampled_from(GRAINS[:-1]), instants, instants)
def test_a_partition_that_is_final_reads_nothing_new(relation, source: Grain, table: Grain, t: int, later: int) -> None:
    """`confined` is sound: a table that is complete past a partition uses for it only what its sources have."""
    way = PartitionMap(relation, source, table)
    edge = way.carried(later)
    start, end = table.hull(t, t + 1)
    if way.confined and end <= edge:
        used = way.required(PartitionSet.of((start, end)))
        assert used.intervals[-1][1] <= later


@given(windows, grains, grains)
def test_all_of_time_stays_all_of_time(window: Window, source: Grain, table: Grain) -> None:
    way = PartitionMap(window, source, table)
    assert way.required(EVERYTHING) == way.affected(EVERYTHING) == EVERYTHING
    assert way.required(EMPTY) == way.affected(EMPTY) == EMPTY


@given(windows, st.sampled_from(GRAINS), st.sampled_from(GRAINS), instants)
def test_a_table_goes_as_far_as_its_source_has_what_it_reads(
    window: Window, source: Grain, table: Grain, edge: int
) -> None:
    """`carried` is sound: up to there no partition uses a row that the source may still get."""
    way = PartitionMap(window, source, table)
    carried = way.carried(edge)
    if table is WHOLE or source is WHOLE:
        assert carried == edge
        return
    for start in PartitionSet.of(table.hull(T0 - DAY_US, carried)).starts(table) if carried > T0 else ():
        if start < carried:
            used = way.required(partition(table, start)).within(T0 - 40 * DAY_US, way.cut(carried))
            assert not used or used.intervals[-1][1] <= edge or window.high == 1 or way.cut(carried) <= edge


def test_windows_in_words() -> None:
    assert [str(Window(*w)) for w in [(0, 1), (-1, 0), (-3, 0), (-2, 1), (1, 2)]] == [
        "PARTITION",
        "PARTITION - 1",
        "PARTITION - 3 .. PARTITION - 1",
        "PARTITION - 2 .. PARTITION",
        "PARTITION + 1",
    ]


@given(windows, st.sampled_from(GRAINS[:-1]))
def test_words_read_back(window: Window, grain: Grain) -> None:
    assert parse_relation(str(window), grain, grain) == window


@pytest.mark.parametrize(
    ("text", "source", "table", "itself", "expected"),
    [
        ("same", DAY, DAY, False, SAME),
        ("previous", DAY, DAY, False, Window(-1, 0)),
        ("last 3", HOUR, HOUR, False, Window(-2, 1)),
        ("containing", DAY, HOUR, False, SAME),
        ("Everything", DAY, WHOLE, False, Everything()),
        ("everything", WHOLE, DAY, False, Everything()),
        ("DAY.hours()", HOUR, DAY, False, SAME),
        ("day . hours ( )", HOUR, DAY, False, SAME),
        ("MONTH.weeks()", WEEK, MONTH, False, SAME),
        ("HOUR.minutes()", parse_grain("5m"), HOUR, False, SAME),
        ("DAY", HOUR, DAY, False, SAME),
        ("DAY - 3 .. DAY - 1", HOUR, DAY, False, Window(-3, 0)),
        ("day-3..day", HOUR, DAY, False, Window(-3, 1)),
        ("DAY + 1", DAY, DAY, False, Window(1, 2)),
        ("5M - 1", parse_grain("5m"), parse_grain("5m"), False, Window(-1, 0)),
        ("SELF - 1", DAY, DAY, True, Window(-1, 0)),
        ("SELF - 7 .. SELF - 1", DAY, DAY, True, Window(-7, 0)),
        ("previous", DAY, DAY, True, Window(-1, 0)),
        ("DAY, DAY - 7", HOUR, DAY, False, Windows((Window(-7, -6), Window(0, 1)))),
        ("DAY - 2, DAY - 1", DAY, DAY, False, Window(-2, 0)),
        ("DAY - 2 .. DAY, PARTITION + 2", DAY, DAY, False, Windows((Window(-2, 1), Window(2, 3)))),
        ("SELF - 7, SELF - 1", DAY, DAY, True, Windows((Window(-7, -6), Window(-1, 0)))),
        ("DAY - 1", HOUR, HOUR, False, Window(-1, 0, DAY)),
        ("DAY - 7 .. DAY - 1, MONTH", DAY, MONTH, False, Windows((Window(-7, 0, DAY), SAME))),
    ],
)
def test_relations_as_people_write_them(text: str, source: Grain, table: Grain, itself: bool, expected) -> None:
    assert parse_relation(text, source, table, itself=itself) == expected


@pytest.mark.parametrize(
    ("text", "source", "table", "itself", "message"),
    [
        ("same", HOUR, DAY, False, "'same' needs equal partitioning, but the source has hour and the table day"),
        ("same", DAY, NEW_YORK, False, "the source has day and the table day of America/New_York"),
        ("containing", HOUR, DAY, False, "'containing' needs a coarser source, but it has hour and the table day"),
        ("previous", DAY, WHOLE, False, "the table is not partitioned, so it can only read 'everything'"),
        ("previous", WHOLE, DAY, False, "the source is not partitioned, so only 'everything' can be read of it"),
        ("last 0", DAY, DAY, False, "'last N' needs N of at least 1"),
        (
            "DAY.hours()",
            DAY,
            DAY,
            False,
            "'DAY.hours()' needs a source partitioned by hour, but it is partitioned by day",
        ),
        ("HOUR.minutes()", HOUR, HOUR, False, "needs a source partitioned by minutes, but it is partitioned by hour"),
        (
            "HOUR - 1",
            DAY,
            DAY,
            True,
            "'HOUR - 1' counts in HOUR, but the table is partitioned by day: write DAY or PARTITION or SELF",
        ),
        ("DAY, everything", DAY, DAY, False, "'everything' leaves nothing to say beside it"),
        ("DAY - 1 .. HOUR", DAY, DAY, False, "counts in two units; write both ends in one"),
        ("SELF - 7, SELF", DAY, DAY, True, "a table can only read its own earlier partitions"),
        ("SELF - 1", DAY, DAY, False, "counts in SELF, but the table is partitioned by day"),
        ("DAY - 1 .. DAY - 3", DAY, DAY, False, "is an empty range; write the earlier end first"),
        (
            "MONTH",
            WEEK,
            MONTH,
            False,
            "partitions by week do not fit into partitions by month; name them, as MONTH.weeks()",
        ),
        ("sometimes", DAY, DAY, False, "counts in SOMETIMES"),
        ("DAY - 1 .. DAY .. DAY", DAY, DAY, False, "is not a partition relation; expected same, previous, last N"),
        ("DAY -", DAY, DAY, False, "is not a partition relation; expected same, previous, last N"),
        ("SELF", DAY, DAY, True, "a table can only read its own earlier partitions, for example SELF - 1"),
        ("same", DAY, DAY, True, "a table can only read its own earlier partitions"),
        ("last 2", DAY, DAY, True, "a table can only read its own earlier partitions"),
        ("everything", DAY, DAY, True, "a table can only read its own earlier partitions"),
    ],
)
def test_what_is_no_relation_is_refused_in_words(
    text: str, source: Grain, table: Grain, itself: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_relation(text, source, table, itself=itself)


def test_what_is_read_when_nothing_is_said() -> None:
    assert default_relation(HOUR, DAY) == default_relation(DAY, DAY) == SAME
    assert default_relation(WHOLE, DAY) == default_relation(DAY, WHOLE) == Everything()
    india = parse_grain("day", "Asia/Kolkata")
    for source, table in [
        (DAY, HOUR),
        (WEEK, MONTH),
        (MONTH, WEEK),
        (HOUR, india),
        (parse_grain("10m"), parse_grain("15m")),
    ]:
        with pytest.raises(ValueError, match="say which of its partitions are read") as told:
            default_relation(source, table)
        advice = re.search(r"for example '([^']+)'", str(told.value))
        assert advice is not None
        parse_relation(advice[1], source, table)  # what it advises can be done
