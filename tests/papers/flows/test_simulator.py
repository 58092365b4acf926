"""The flow simulator: no row is lost or doubled, no queue overfilled, time and memory as computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.flows.archetypes import ARCHETYPES
from penstock.flows.graph import FlowGraph, Node, NodeKind, source, target
from penstock.papers.flows import FlowOutcome, Machine, simulate_flow
from penstock.papers.flows.policies import OPERATOR_POLICIES, find_operator_policy
from tests.flows.graphs import graphs


def rows_are_kept(graph: FlowGraph, found: FlowOutcome) -> None:
    for node in graph.nodes:
        providers = graph.providers[node.name]
        came = sum(found.rows_out[provider] for provider in providers) if providers else round(node.rows)
        assert found.rows_in[node.name] == came
        selectivity = node.selectivity if node.kind is NodeKind.ACTIVITY else 1.0
        assert found.rows_out[node.name] == round(came * selectivity)


@settings(max_examples=50)
@given(
    graphs(8),
    st.sampled_from(sorted(OPERATOR_POLICIES)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([70, 300]),
)
def test_no_row_is_lost_or_doubled_and_no_queue_overfilled(
    graph: FlowGraph, policy: str, processors: int, queue_packs: int, pack_rows: int
) -> None:
    machine = Machine(processors, pack_rows, queue_packs, switch_us=10.0, work_factor=1.0)
    found = simulate_flow(graph, find_operator_policy(policy), machine)
    rows_are_kept(graph, found)
    assert found.fullest_queue_packs <= queue_packs
    assert found.average_packs <= found.maximum_packs + 1e-9
    work_s = sum(graph[name].cost_per_row_us * rows for name, rows in found.rows_in.items()) / 1e6
    assert found.time_s >= work_s / processors - 1e-9
    assert found == simulate_flow(graph, find_operator_policy(policy), machine)


def test_a_line_by_hand() -> None:
    graph = FlowGraph(
        (source("s", 40, cost_per_row_us=1), Node("half", selectivity=0.5, cost_per_row_us=2), target("t")),
        (("s", "half"), ("half", "t")),
    )
    found = simulate_flow(
        graph, find_operator_policy("minimum-cost"), Machine(1, 10, 3, switch_us=100, work_factor=1.0)
    )
    # s reads 3 packs until the queue is full (30 us); half takes them (60 us) and passes on one full pack; then half's
    # queue is empty, s counts as one pack as does t: the first by name reads the last pack (10 us). half has 10, t has 10:
    # half (20 us), and at its end gives 5 + 5 = the second pack. t writes 20 rows (20 us).
    # Calls: s, half, s, half, t.
    assert found.calls == 5
    assert found.time_s == pytest.approx((5 * 100 + 40 * 1 + 40 * 2 + 20 * 1) / 1e6)
    assert found.maximum_packs == 3
    assert found.rows_in == {"s": 40, "half": 40, "t": 20} and found.rows_out["half"] == 20


@pytest.mark.parametrize("name", ARCHETYPES)
def test_the_archetypes_end_with_all_their_rows(name: str) -> None:
    graph = ARCHETYPES[name](scale=0.01)
    for policy in OPERATOR_POLICIES:
        rows_are_kept(graph, simulate_flow(graph, find_operator_policy(policy)))
