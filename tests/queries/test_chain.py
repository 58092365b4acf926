"""Chains of refreshes: exactly what is stale and touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US
from penstock.queries.estimate import RefreshStep, refresh_chain

H = HOUR_US
D = 24 * H


def hours(start: int, end: int) -> PartitionSet:
    return PartitionSet.of((start * H, end * H))


GRAPH = Graph(
    [Feed("in"), Feed("other")],
    [
        Table("orders", "hour", feed="in"),
        Table("customers", feed="other"),
        Table("hourly", "hour", sources=(Source("orders", (0, 1)),)),
        Table("daily", "day", sources=(Source("hourly", (0, 1)),)),
        Table("named", "day", sources=(Source("daily", (0, 1)), Source("customers"))),
        Table("running_total", "day", sources=(Source("daily", (0, 1)), Source("running_total", (-1, 0)))),
    ],
)


def chain(touched: dict[str, PartitionSet], **stale: PartitionSet) -> tuple[RefreshStep, ...]:
    return refresh_chain(GRAPH, touched, lambda name: stale.get(name, EMPTY))


def test_only_what_is_stale_and_touched() -> None:
    # Hours 3 to 5 and 30 of the orders have news; the query reads the first day of `daily`.
    news = hours(3, 5) | hours(30, 31)
    assert chain({"daily": hours(0, 24)}, orders=news) == (
        RefreshStep("orders", hours(3, 5)),
        RefreshStep("hourly", hours(3, 5)),
        RefreshStep("daily", hours(0, 24)),
    )
    assert chain({"daily": hours(48, 72)}, orders=news) == ()
    assert chain({"hourly": hours(30, 31)}, orders=news) == (
        RefreshStep("orders", hours(30, 31)),
        RefreshStep("hourly", hours(30, 31)),
    )


def test_the_chain_begins_where_staleness_begins() -> None:
    assert chain({"daily": hours(0, 24)}, hourly=hours(2, 3)) == (
        RefreshStep("hourly", hours(2, 3)),
        RefreshStep("daily", hours(0, 24)),
    )
    assert chain({"daily": hours(0, 24)}, daily=hours(0, 48)) == (RefreshStep("daily", hours(0, 24)),)


def test_a_dimension_touches_everything() -> None:
    steps = chain({"named": hours(24, 48)}, customers=EVERYTHING, orders=hours(3, 4))
    assert steps == (RefreshStep("customers", EVERYTHING), RefreshStep("named", hours(24, 48)))


def test_a_table_that_reads_itself_is_made_from_the_first_change_on() -> None:
    steps = chain({"running_total": hours(72, 96)}, hourly=hours(25, 26))
    assert steps == (
        RefreshStep("hourly", hours(25, 26)),
        RefreshStep("daily", hours(24, 48)),
        RefreshStep("running_total", hours(24, 96)),
    )


def test_several_tables_share_their_ancestors() -> None:
    steps = chain({"hourly": hours(0, 2), "daily": hours(0, 24)}, orders=hours(0, 48))
    assert steps == (
        RefreshStep("orders", hours(0, 24)),
        RefreshStep("hourly", hours(0, 24)),
        RefreshStep("daily", hours(0, 24)),
    )


TABLES = st.sampled_from(sorted(GRAPH.tables))
RANGES = st.tuples(st.integers(0, 4), st.integers(1, 3)).map(lambda d: PartitionSet.of((d[0] * D, (d[0] + d[1]) * D)))


@given(st.dictionaries(TABLES, RANGES, min_size=1, max_size=3), st.dictionaries(TABLES, RANGES, max_size=4))
def test_after_the_chain_all_is_fresh(touched: dict[str, PartitionSet], stale: dict[str, PartitionSet]) -> None:
    """Simulate: refresh step by step, let changes travel, and look at what the query reads."""
    steps = chain(touched, **stale)
    left = {name: stale.get(name, EMPTY) for name in GRAPH.tables}
    for step in steps:
        reads = [(e, e.map.required(step.partitions)) for e in GRAPH.into[step.table]]
        assert all(not left[e.source] & read for e, read in reads if e.source != step.table)  # its inputs are fresh
        left[step.table] -= step.partitions
        for edge in GRAPH.out[step.table]:
            if edge.table != step.table:
                left[edge.table] |= edge.map.affected(step.partitions)
    assert all(not left[name] & partitions for name, partitions in touched.items())
    # Nothing is refreshed that has no reason: it was stale, or a source of it was refreshed.
    made = {step.table: step.partitions for step in steps}
    for step in steps:
        reason = stale.get(step.table, EMPTY)
        for edge in GRAPH.into[step.table]:
            if edge.source in made and edge.source != step.table:
                reason |= edge.map.affected(made[edge.source])
        if step.table not in GRAPH.chained:
            assert step.partitions <= reason
