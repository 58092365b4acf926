"""Subflows and strata: Fig. 1 exactly, and on any graph what must always hold."""

from __future__ import annotations

from hypothesis import given, settings

from penstock.flows.archetypes import ARCHETYPES, butterfly, primary_flow
from penstock.flows.composites import break_into_subflows, is_boundary, policy_for
from penstock.flows.graph import FlowGraph
from tests.flows.graphs import graphs


def sets(graph: FlowGraph) -> list[set[tuple[str, ...]]]:
    return [{subflow.nodes for subflow in stratum} for stratum in break_into_subflows(graph).strata]


def test_fig_1_as_drawn_with_recordsets() -> None:
    # Recordsets and blocking activities stand alone; in each line of the left wing check and transformation pipeline.
    # The join has three consumers and is blocking, too. Views 1 and 3 lie between the aggregations.
    assert sets(butterfly()) == [
        {("partsupp",), ("supplier",)},
        {("not_null_partsupp", "total_cost"), ("not_null_supplier", "phone_format")},
        {("dw_partsupp",), ("dw_supplier",)},
        {("join",)},
        {("join_table",), ("aggregate_1",), ("aggregate_3",)},
        {("view_1",), ("view_3",)},
        {("aggregate_2",), ("aggregate_4",)},
        {("view_2",), ("view_4",)},
    ]


def test_fig_1_with_fan_out_as_boundary() -> None:
    # The transformations feed the target and the join, so each is a boundary, and the lines fall apart.
    assert sets(butterfly(recordsets=False)) == [
        {("partsupp",), ("supplier",)},
        {("not_null_partsupp",), ("not_null_supplier",)},
        {("total_cost",), ("phone_format",)},
        {("dw_partsupp",), ("dw_supplier",), ("join",)},
        {("join_table",), ("aggregate_1",), ("aggregate_3",)},
        {("view_1",), ("view_3",), ("aggregate_2",), ("aggregate_4",)},
        {("view_2",), ("view_4",)},
    ]


def test_subflows_of_the_other_archetypes() -> None:
    found = {
        name: sorted((s.nodes for s in break_into_subflows(make()).subflows if len(s.nodes) > 1), key=str)
        for name, make in ARCHETYPES.items()
    }
    assert found == {
        "line": [("not_null", "in_domain", "total_cost")],
        "wishbone": [("not_null_partsupp", "total_cost"), ("not_null_supplier", "phone_format")],
        "primary_flow": [("not_null", "part_key", "supplier_key", "order_key")],
        "tree": [],
        "fork": [],  # the transformation fans out
        "butterfly": [("not_null_partsupp", "total_cost"), ("not_null_supplier", "phone_format")],
    }


def test_theta_counts_the_activities_that_hold_rows() -> None:
    graph = primary_flow()
    of = break_into_subflows(graph).of
    look_ups = of["part_key"]  # three of them
    assert [policy_for(graph, look_ups, theta) for theta in (0, 2, 3)] == [
        "minimum-memory",
        "minimum-memory",
        "minimum-cost",
    ]
    graph = butterfly()
    of = break_into_subflows(graph).of
    assert policy_for(graph, of["total_cost"]) == "minimum-cost"
    assert policy_for(graph, of["join"]) == "minimum-memory"
    # Blocking activities stand alone: no subflow has more than one, so 1 is never exceeded here.
    assert policy_for(graph, of["join"], theta=1) == "minimum-cost"


@settings(max_examples=60)
@given(graphs())
def test_subflows_partition_the_graph_and_pipeline_inside(graph: FlowGraph) -> None:
    found = break_into_subflows(graph)
    assert sorted(name for subflow in found.subflows for name in subflow.nodes) == sorted(graph.by_name)
    for subflow in found.subflows:
        inside = set(subflow.nodes)
        # One sink: every other node gives its rows to one consumer, inside.
        for name in subflow.nodes[:-1]:
            assert len(graph.consumers[name]) == 1 and set(graph.consumers[name]) <= inside
        assert not set(graph.consumers[subflow.sink]) & inside
        if len(inside) > 1:
            assert not any(is_boundary(graph, name) for name in inside)
    # Nothing mergeable is left.
    for provider, consumer in graph.edges:
        if not is_boundary(graph, provider) and not is_boundary(graph, consumer):
            assert found.of[provider] is found.of[consumer]


@settings(max_examples=60)
@given(graphs())
def test_strata_respect_dependencies_and_are_as_low_as_can_be(graph: FlowGraph) -> None:
    found = break_into_subflows(graph)
    level = {subflow: number for number, stratum in enumerate(found.strata) for subflow in stratum}
    assert sorted(map(str, level)) == sorted(map(str, found.subflows))
    for subflow in found.subflows:
        above = [level[provider] for provider, consumer in found.edges if consumer is subflow]
        assert level[subflow] == 1 + max(above, default=-1)
