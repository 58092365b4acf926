"""Staging plans: the archetypes exactly; on any graph nothing is read before it is made or after it is released."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.flows.archetypes import ARCHETYPES, butterfly, fork
from penstock.flows.choice import Rates, choose_stages
from penstock.flows.graph import FlowGraph, Node, NodeKind, source, target
from penstock.flows.ordering import ORDERS
from penstock.flows.staging import StagingPlace, StagingPlan, Walk, plan_staging
from tests.flows.graphs import graphs

# Staging costs nothing: everything that has several consumers is staged.
FREE = Rates(0.0, 0.0, 0.001)


def test_the_fork_stages_its_shared_part_once_with_the_columns_that_the_aggregations_read() -> None:
    plan = plan_staging(fork())
    first, *others = plan.steps
    assert first.nodes == ("lineitem", "not_null", "total_cost")
    (staged,) = first.stages
    assert staged.place is StagingPlace.MEMORY and len(staged.readers) == 6
    assert set(staged.columns) == {
        *(
            "l_orderkey",
            "l_partkey",
            "l_suppkey",
            "l_shipdate",
            "l_shipmode",
            "l_returnflag",
            "l_quantity",
            "total_cost",
        )
    }  # not the comment, nor what total_cost was computed from
    # 6 M lines, 90 % pass; 5 x 8 + 4 + 6 + 1 bytes.
    assert staged.bytes_ == plan.peak_bytes == pytest.approx(6_000_000 * 0.9 * 51)
    assert all(step.reads == ("total_cost",) and not step.stages for step in others)
    assert [step.release_after for step in others] == [()] * 5 + [("total_cost",)]


@pytest.mark.parametrize("recordsets", [True, False])
def test_the_butterfly_needs_no_memory_as_its_tables_are_written_anyway(recordsets: bool) -> None:
    plan = plan_staging(butterfly(recordsets=recordsets))
    assert {staged.place for staged in plan.staged.values()} == {StagingPlace.TARGET}
    assert plan.peak_bytes == 0 and plan.exact
    join = plan.staged["join"]
    assert join.step == "join_table"
    assert set(join.columns) == {"ps_partkey", "ps_suppkey", "s_nationkey", "total_cost"}
    assert plan.by_name["view_1"].after == ("join_table",)
    # Each view and table is one step, every activity is computed once.
    assert {step.name for step in plan.steps} == {
        *("dw_partsupp", "dw_supplier", "join_table", "view_1", "view_2", "view_3", "view_4")
    }
    nodes = [node for step in plan.steps for node in step.nodes]
    assert len(nodes) == len(set(nodes))


def test_what_is_cheap_to_compute_again_is_not_staged() -> None:
    def flow(cost: float) -> FlowGraph:
        nodes = (
            source("s", rows=1000, cost_per_row_us=0.01),
            Node("shared", cost_per_row_us=cost, bytes_per_row=100),
            Node("a"),
            Node("b"),
            target("t"),
            target("u"),
        )
        edges = (("s", "shared"), ("shared", "a"), ("shared", "b"), ("a", "t"), ("b", "u"))
        return FlowGraph(nodes, edges)

    # Staging: 1000 rows x 100 bytes x (0.004 + 2 x 0.001) = 600 us; computing again: 1000 x (0.01 + cost).
    assert not plan_staging(flow(0.58)).staged
    assert set(plan_staging(flow(0.6)).staged) == {"shared"}
    assert plan_staging(flow(0.58)).cost_us == plan_staging(flow(0.58)).plain_cost_us


def test_what_does_not_fit_goes_to_disk() -> None:
    plan = plan_staging(fork(), memory_bytes=100e6)
    assert plan.staged["total_cost"].place is StagingPlace.DISK
    assert plan.peak_bytes == 0 and plan.disk_bytes == pytest.approx(6_000_000 * 0.9 * 51)


@pytest.mark.parametrize("name", ARCHETYPES)
def test_a_plan_never_costs_more_than_plain(name: str) -> None:
    plan = plan_staging(ARCHETYPES[name]())
    assert plan.cost_us <= plan.plain_cost_us
    assert sum(step.cost_us for step in plan.steps) == pytest.approx(plan.cost_us)


@settings(max_examples=40)
@given(graphs(8), st.sampled_from([Rates(), Rates(0.05, 0.01, 0.02)]))
def test_rounds_come_near_to_all_combinations(graph: FlowGraph, rates: Rates) -> None:
    every = choose_stages(graph, rates, effort=1_000_000)
    rounds = choose_stages(graph, rates, effort=0)
    assert every.cost_us <= rounds.cost_us + 1e-6
    assert rounds.cost_us <= rounds.plain_cost_us == every.plain_cost_us
    assert rounds.cost_us <= 1.2 * every.cost_us + 1e-6


def checked(graph: FlowGraph, plan: StagingPlan) -> None:
    """Every target is written once, every step reads only what is there, everything staged is released exactly once."""
    assert sorted(step.name for step in plan.steps if graph[step.name].kind is NodeKind.TARGET) == sorted(graph.targets)
    there: dict[str, set[str]] = {}
    released: list[str] = []
    live = peak = 0.0
    for step in plan.steps:
        inside = set(step.nodes)
        assert step.nodes[-1] == step.name
        for node in step.nodes:
            for provider in graph.providers[node]:
                if provider in inside:
                    continue
                assert provider in step.reads and provider in there
                # The columns that the reader looks at were kept.
                assert graph.asked(provider, node, graph.needed_columns) <= there[provider]
        assert set(step.after) == {plan.staged[node].step for node in step.reads}
        for staged in step.stages:
            there[staged.node] = set(staged.columns)
            live += staged.bytes_ if staged.place is StagingPlace.MEMORY else 0.0
        peak = max(peak, live)
        for node in step.release_after:
            del there[node]
            released.append(node)
            live -= plan.staged[node].bytes_ if plan.staged[node].place is StagingPlace.MEMORY else 0.0
    assert not there and sorted(released) == sorted(plan.staged)
    assert peak == pytest.approx(plan.peak_bytes)


@settings(max_examples=80)
@given(graphs(), st.sampled_from([Rates(), FREE]), st.sampled_from(ORDERS))
def test_any_plan_reads_only_what_is_there_and_releases_once(graph: FlowGraph, rates: Rates, order: str) -> None:
    checked(graph, plan_staging(graph, rates=rates, order=order))
    plan = plan_staging(graph, rates=rates)
    checked(graph, plan)
    assert plan.peak_bytes <= plan.strata_peak_bytes
    assert plan.peak_bytes <= plan_staging(graph, rates=rates, order=order).peak_bytes or not plan.exact
    assert plan.cost_us <= plan.plain_cost_us + 1e-6
    assert sum(step.cost_us for step in plan.steps) == pytest.approx(plan.cost_us)
    assert plan == plan_staging(graph, rates=rates)
    limited = plan_staging(graph, plan.peak_bytes / 2, rates)
    checked(graph, limited)
    assert limited.peak_bytes <= plan.peak_bytes / 2


@settings(max_examples=80)
@given(graphs(), st.integers(1, 4), st.sampled_from([0.0, 1.0, 1.5]), st.randoms(use_true_random=False))
def test_any_walk_ends_within_the_limit_and_never_reads_what_is_gone(
    graph: FlowGraph, slots: int, room: float, chance: object
) -> None:
    plan = plan_staging(graph, rates=FREE)
    walk = Walk(plan, plan.peak_bytes * room, slots)
    there: set[str] = set()
    ended: set[str] = set()
    while not walk.done:
        for step in walk.start():
            assert ended.issuperset(step.after) and there.issuperset(step.reads)
            there.update(staged.node for staged in step.stages)
        assert 0 < len(walk.running) <= slots
        assert walk.held_bytes <= plan.peak_bytes * max(room, 1.0) * (1 + 1e-9)
        name = chance.choice(sorted(walk.running))  # type: ignore[attr-defined]
        ended.add(name)
        for staged in walk.finish(name):
            there.remove(staged.node)  # fails if released twice
            assert ended.issuperset(staged.readers)
    assert not there and ended == {step.name for step in plan.steps}
