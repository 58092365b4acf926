"""What `penstock bounds`, `check`, `status` and `/metrics` say: of the policy that is set, and in words that mean something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.views.recovery import assumed, guarantees
from penstock.model.cost import ENOUGH, CostModel
from penstock.model.graph import Graph
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from penstock.scheduling.recovery.guarantees import BoundsReport, Guarantee

FEEDS = (Feed("stats", 5 * MINUTE_US), Feed("alerts", MINUTE_US))
TABLES = (
    Table("stats", "hour", feed="stats", cost_us=20 * SECOND_US, target_us=30 * MINUTE_US, guarantee=True),
    Table("alerts", "hour", feed="alerts", cost_us=10 * SECOND_US, target_us=5 * MINUTE_US, guarantee=True),
    Table(
        "hourly", "hour", sources=(Source("stats", (0, 1)),), cost_us=45 * SECOND_US, target_us=HOUR_US, guarantee=True
    ),
    Table("report", "day", sources=(Source("hourly"),), cost_us=90 * SECOND_US),
)
GRAPH = Graph(FEEDS, TABLES)


def by_table(report: BoundsReport) -> dict[str, Guarantee]:
    return {found.table: found for found in report.guarantees}


def costs(updates: int, seconds: float = 20.0) -> CostModel:
    cost = CostModel()
    for number in range(updates):
        cost.observe(100.0 + number % 3, seconds + number % 2)
    return cost


def learned(updates: int) -> tuple[Graph, dict[str, CostModel]]:
    tables = [replace(table, cost_us=None) for table in TABLES]
    return Graph(FEEDS, tables), {table.name: costs(updates) for table in tables}


def test_another_policy_proves_nothing() -> None:
    report, _ = guarantees(GRAPH, {}, 2, "fifo")
    found = by_table(report)["stats"]
    assert found.verdict == "not proven" and 'policy = "fifo" keeps no track free' in found.breaks
    assert found.remedies == ('policy = "adaptive"',)


def test_the_arguments_of_the_policy_count() -> None:
    plain = guarantees(GRAPH, {}, 2, "adaptive(plain)", outage_us=2 * HOUR_US)[1]
    shared = guarantees(GRAPH, {}, 2, "adaptive(shared)", outage_us=2 * HOUR_US)
    single = guarantees(GRAPH, {}, 2, "adaptive", outage_us=2 * HOUR_US)
    assert not plain.background and single[1].background
    assert by_table(shared[0])["stats"].recovery_us > by_table(single[0])["stats"].recovery_us  # type: ignore[operator]
    graph, known = learned(8)
    wide, usual = (assumed(graph, known, 2, policy).model.known for policy in ("adaptive(margin=3)", "adaptive"))
    assert wide["stats"].cost_us > 1.4 * usual["stats"].cost_us


def test_proven_is_said_of_declared_costs_only() -> None:
    assert by_table(guarantees(GRAPH, {}, 2)[0])["stats"].verdict == "proven"
    graph, known = learned(1)
    report, _ = guarantees(graph, known, 2)
    assert by_table(report)["stats"].verdict == "assumed"
    assert any(f"{ENOUGH} are needed" in line for line in report.assumes)
    graph, known = learned(ENOUGH + 4)
    report, _ = guarantees(graph, known, 2)
    assert by_table(report)["stats"].verdict == "expected"
    # 1 - 0.05 ** (1 / 60) = 4.9 %
    assert any("at most one update in 20 takes longer" in line and "60 updates" in line for line in report.assumes)


def test_a_cost_that_was_seen_is_not_below_what_was_seen() -> None:
    cost = costs(70)
    cost.observe(100.0, 200.0)
    assert cost.longest_s >= 9 * cost.usual_s
    for _ in range(65):
        cost.observe(100.0, 20.0)
    assert cost.longest_s < 3 * cost.usual_s


def test_more_tracks_than_cores_prove_nothing() -> None:
    report, _ = guarantees(GRAPH, {}, 64, cores=2)
    assert by_table(report)["stats"].verdict == "assumed"
    assert any("64 updates at once on 2 cores" in line for line in report.assumes)
    few = replace(TABLES[0], target_us=17 * MINUTE_US)
    alone, _ = guarantees(Graph(FEEDS, (few, *TABLES[1:])), {}, 2)
    bound, _ = guarantees(Graph(FEEDS, (few, *TABLES[1:])), {}, 2, cores=2)
    assert any("tracks = " in remedy for remedy in by_table(alone)["stats"].remedies)
    assert not any("tracks = " in remedy for remedy in by_table(bound)["stats"].remedies)


@pytest.mark.parametrize("target", [13, 14, 15, 16, 17])
def test_a_remedy_that_is_written_down_gives_what_it_said(target: int) -> None:
    """Costs that are learned: with other tracks other files are merged, too."""
    graph, known = learned(70)
    tables = [replace(t, target_us=target * MINUTE_US) if t.name == "stats" else t for t in graph.tables.values()]
    graph = Graph(FEEDS, tables)
    found = by_table(guarantees(graph, known, 1)[0])["stats"]
    for remedy in found.remedies:
        if "tracks = " in remedy:
            tracks = int(remedy.rpartition(" ")[2])
            assert by_table(guarantees(graph, known, tracks)[0])["stats"].verdict == "expected"
        if "adaptive(shared)" in remedy:
            assert by_table(guarantees(graph, known, 1, "adaptive(shared)")[0])["stats"].verdict == "expected"


def test_a_source_that_holds_nobody_back_does_not_set_the_period() -> None:
    """A dimension that comes once a month, read as it is."""
    feeds = (*FEEDS, Feed("zones", 30 * DAY_US, mode="snapshot", timed=False))
    zones = Table("zones", feed="zones", cost_us=SECOND_US)
    joined = Table(
        "joined",
        "hour",
        sources=(Source("stats", (0, 1)), Source("zones")),
        cost_us=30 * SECOND_US,
        target_us=HOUR_US,
        guarantee=True,
    )
    graph = Graph(feeds, (TABLES[0], zones, joined))
    assert graph.periods_us["joined"] == 5 * MINUTE_US
    report, _ = guarantees(graph, {}, 2)
    bound = by_table(report)["joined"].bound
    assert bound is not None and bound.staleness_us < HOUR_US


def test_nothing_is_known_of_a_table_without_time_or_of_a_feed_of_which_nobody_said_how_often_it_delivers() -> None:
    feeds = (Feed("zones", DAY_US, mode="snapshot", timed=False), Feed("odd", MINUTE_US, guessed=True))
    tables = (
        Table("zones", feed="zones", cost_us=SECOND_US, target_us=3 * DAY_US),
        Table("odd", "hour", feed="odd", cost_us=SECOND_US, target_us=HOUR_US),
        Table("view", "hour", sources=(Source("odd", (0, 1)),), cost_us=SECOND_US, target_us=HOUR_US),
    )
    found = by_table(guarantees(Graph(feeds, tables), {}, 2)[0])
    assert {one.verdict for one in found.values()} == {"not proven"}
    assert "has no event times" in found["zones"].breaks and "write its period" in found["view"].breaks


def test_no_remedy_is_a_period_that_is_shorter_than_what_an_update_makes() -> None:
    closed = replace(TABLES[2], when="closed", period_us=HOUR_US, target_us=3 * HOUR_US)
    found = by_table(guarantees(Graph(FEEDS, (*TABLES[:2], closed)), {}, 2)[0])["hourly"]
    assert found.verdict == "not proven" and not any("shorter period" in remedy for remedy in found.remedies)
    parted = replace(closed, when="continuous", exact_time=True)
    found = by_table(guarantees(Graph(FEEDS, (*TABLES[:2], replace(parted, target_us=2 * HOUR_US))), {}, 2)[0])[
        "hourly"
    ]
    assert any("shorter period" in remedy for remedy in found.remedies)
