from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.freshness import SourceEdge, Staleness, out_of_reach, trailing_edge, uncut
from penstock.model.grain import WHOLE, Grain, parse_grain
from penstock.model.partitions import PartitionSet
from penstock.model.relations import SAME, Everything, Window
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_instant

HOUR, SIX, DAY, WEEK, MONTH = (parse_grain(name) for name in ("hour", "360m", "day", "week", "month"))
T0 = parse_instant("2024-02-28")
grains = st.sampled_from([HOUR, SIX, DAY, WEEK, MONTH, parse_grain("day", "America/New_York"), WHOLE])
edges = st.integers(0, 6 * 24 * 4).map(lambda n: T0 + n * 15 * MINUTE_US)
windows = st.tuples(st.integers(-2, 1), st.integers(1, 3)).map(lambda w: Window(w[0], w[0] + w[1]))


@st.composite
def sources(draw, table: Grain) -> SourceEdge:
    grain = draw(grains)
    relation = (
        Everything() if WHOLE in (grain, table) else draw(st.one_of(st.just(SAME), windows, st.just(Everything())))
    )
    return SourceEdge(draw(edges), grain, relation, draw(st.booleans()))


@st.composite
def readers(draw):
    table = draw(grains)
    found = draw(st.lists(sources(table), min_size=1, max_size=3))
    rolled_up = [source.grain for source in found if not source.exact_time]
    return table, [replace(s, uncut=uncut(s.grain, table, rolled_up)) for s in found], draw(st.booleans())


def possible(table: Grain, found: list[SourceEdge], edge: int, closed: bool) -> bool:
    """Whether a table can be made up to an edge, by definition: partition by partition, source by source."""
    if closed and table is not WHOLE and table.floor(edge) != edge:
        return False
    begun = [edge - 1] if table is WHOLE else [s for s in table_starts(table, edge) if s < edge]
    for source in found:
        way = source.map_to(table)
        cut = way.cut(edge)
        for start in begun:
            for low, high in way.required(PartitionSet.of(table.hull(start, start + 1))):
                if source.edge_us < min(high, cut):
                    return False  # rows are missing
                ahead = source.edge_us > cut and low < cut < high and not source.exact_time
                if ahead and not source.uncut and source.grain.floor(cut) != cut:
                    return False  # rows beyond the edge cannot be told apart
    return True


def table_starts(table: Grain, edge: int) -> list[int]:
    last = table.floor(edge)
    return [table.shift(last, -n) for n in range(4)]


@given(readers())
def test_a_table_can_be_made_up_to_its_trailing_edge(reader) -> None:
    table, found, closed = reader
    edge = trailing_edge(found, table, closed=closed)
    assert edge is not None
    assert possible(table, found, edge, closed)
    assert not out_of_reach(found, table, edge)


@given(readers(), st.integers(1, 96))
def test_it_cannot_be_made_any_further(reader, quarters: int) -> None:
    """No later quarter of an hour would do, as long as rows with times of their own are all there is to cut; and where
    roll-ups are ahead, not up to the slowest source either."""
    table, found, closed = reader
    edge = trailing_edge(found, table, closed=closed)
    assert edge is not None
    simple = all(source.relation == SAME or isinstance(source.relation, Everything) for source in found)
    if simple and not closed:
        later = edge + quarters * 15 * MINUTE_US
        assert not possible(table, found, later, closed) or later > min(source.edge_us for source in found)


def test_the_slowest_source_decides() -> None:
    fast, slow = T0 + 10 * HOUR_US, T0 + 9 * HOUR_US + 7
    assert trailing_edge([SourceEdge(fast, DAY, SAME, True), SourceEdge(slow, HOUR, SAME, True)], DAY) == slow
    assert trailing_edge([], DAY) is None


def test_a_roll_up_that_is_ahead_is_cut_between_its_partitions() -> None:
    ahead, behind = T0 + 10 * HOUR_US + 30 * MINUTE_US, T0 + 9 * HOUR_US + 20 * MINUTE_US
    found = [SourceEdge(ahead, HOUR, SAME, False), SourceEdge(behind, HOUR, SAME, True)]
    assert trailing_edge(found, DAY) == T0 + 9 * HOUR_US
    # One that is not ahead need not be cut.
    assert trailing_edge([SourceEdge(behind, HOUR, SAME, False), SourceEdge(ahead, HOUR, SAME, True)], DAY) == behind


def test_two_roll_ups_go_down_to_a_common_boundary() -> None:
    found = [
        SourceEdge(T0 + 8 * HOUR_US, SIX, SAME, False),
        SourceEdge(T0 + 9 * HOUR_US, HOUR, SAME, False),
        SourceEdge(T0 + 7 * HOUR_US + 1, HOUR, SAME, True),
    ]
    assert trailing_edge(found, DAY) == T0 + 6 * HOUR_US


def test_a_closed_table_goes_from_partition_to_partition() -> None:
    assert trailing_edge([SourceEdge(T0 + 30 * HOUR_US, HOUR, SAME, True)], DAY, closed=True) == T0 + DAY_US
    # One that is not partitioned is never closed; it goes on.
    assert (
        trailing_edge([SourceEdge(T0 + 30 * HOUR_US, HOUR, Everything(), True)], WHOLE, closed=True)
        == T0 + 30 * HOUR_US
    )


def test_windows_that_end_earlier_or_later_carry_further_or_less_far() -> None:
    edge = T0 + 30 * HOUR_US  # in the second day
    assert trailing_edge([SourceEdge(edge, HOUR, Window(-1, 0), True)], DAY) == T0 + 2 * DAY_US
    assert trailing_edge([SourceEdge(edge, HOUR, Window(0, 2), True)], DAY) == T0
    assert trailing_edge([SourceEdge(edge, HOUR, Window(-2, 1), True)], DAY) == edge


def test_a_closed_table_over_partitions_that_never_fit_still_moves() -> None:
    """Days of New York over days of UTC: no boundary is common, so the roll-up is read as it is."""
    new_york = parse_grain("day", "America/New_York")
    assert uncut(DAY, new_york, [DAY])
    edge = trailing_edge([SourceEdge(T0 + 30 * HOUR_US, DAY, SAME, False, uncut=True)], new_york, closed=True)
    assert edge == T0 + 29 * HOUR_US


def test_a_table_of_all_time_over_roll_ups_whose_boundaries_never_meet() -> None:
    """Days of two zones, from feeds that are never equally far: there is no edge at which both could be cut."""
    new_york = parse_grain("day", "America/New_York")
    assert uncut(DAY, WHOLE, [DAY, new_york]) and uncut(new_york, WHOLE, [DAY, new_york])
    assert not uncut(DAY, WHOLE, [DAY, HOUR, WHOLE]) and uncut(WEEK, WHOLE, [MONTH])
    found = [
        SourceEdge(T0 + 30 * HOUR_US, DAY, Everything(), False, uncut=True),
        SourceEdge(T0 + 31 * HOUR_US, new_york, Everything(), False, uncut=True),
    ]
    assert trailing_edge(found, WHOLE) == T0 + 30 * HOUR_US


def test_out_of_reach() -> None:
    """Complete up to 09:30 as of two roll-ups; then one goes ahead: its hour of 09:00 cannot be made again."""
    found = [SourceEdge(T0 + 10 * HOUR_US, HOUR, SAME, False), SourceEdge(T0 + 19 * HOUR_US // 2, HOUR, SAME, False)]
    assert out_of_reach(found, HOUR, T0 + 19 * HOUR_US // 2) == PartitionSet.of((T0 + 9 * HOUR_US, T0 + 10 * HOUR_US))
    assert out_of_reach(found, DAY, T0 + 19 * HOUR_US // 2) == PartitionSet.of((T0, T0 + DAY_US))
    # A source that was added and is behind: whatever reads what it does not have yet.
    late = [SourceEdge(T0 + 3 * HOUR_US, HOUR, SAME, True)]
    assert out_of_reach(late, HOUR, T0 + 6 * HOUR_US) == PartitionSet.of((T0 + 3 * HOUR_US, T0 + 6 * HOUR_US))


def test_staleness_of_figure_2() -> None:
    """Golab et al., Fig. 2, in seconds. Data up to 3 are loaded at 5, data up to 9 at 11. From 0 on nothing is in.

    staleness:  0 at 0, 5 at 5 | 2 at 5, 8 at 11 | 2 at 11
    area:       12.5             30
    """
    staleness = Staleness()
    staleness.moved(0, 0)
    assert staleness.mean_us(0) == 0
    staleness.moved(5 * SECOND_US, 3 * SECOND_US)
    assert staleness.area == 12.5
    assert staleness.peak_us == 5 * SECOND_US
    staleness.moved(11 * SECOND_US, 9 * SECOND_US)
    assert staleness.area == 12.5 + 6 * (2 + 8) / 2 == 42.5
    assert staleness.peak_us == 8 * SECOND_US
    assert staleness.mean_us(11 * SECOND_US) == round(42.5 / 11 * SECOND_US)
    assert staleness.mean_us(12 * SECOND_US) == round((42.5 + 2.5) / 12 * SECOND_US)


def test_merging_two_batches_gives_the_same_staleness() -> None:
    """Sec. 2.3: had the second batch never come and the third held all of it, nothing would look different."""
    one, two = Staleness(), Staleness()
    for staleness, moves in [(one, [(0, 0), (5, 3), (11, 9)]), (two, [(0, 0), (5, 3), (11, 9), (11, 9)])]:
        for now, edge in moves:
            staleness.moved(now * SECOND_US, edge * SECOND_US)
    assert one.mean_us(20 * SECOND_US) == two.mean_us(20 * SECOND_US)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12), st.integers(0, 30))
def test_the_integral_is_that_of_the_curve(moves: list[tuple[int, int]], more: int) -> None:
    staleness = Staleness()
    now = edge = 0
    area = 0.0
    began = None
    for wait, gain in moves:
        if began is not None:
            # The middle of each second: exact for a line. A table that is ahead of the clock is not stale.
            area += sum(max(0.0, now + step + 0.5 - edge) for step in range(wait))
        now += wait
        edge = min(now + 20, edge + gain)
        began = now if began is None else began
        staleness.moved(now * SECOND_US, edge * SECOND_US)
    area += sum(max(0.0, now + step + 0.5 - edge) for step in range(more))
    total = now + more - (began or 0)
    mean = staleness.mean_us((now + more) * SECOND_US)
    assert mean == (round(area / total * SECOND_US) if total else max(0, now - edge) * SECOND_US)
