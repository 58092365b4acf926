"""Better estimates from what a run measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.flows.graph import FlowGraph, Node, NodeKind
from penstock.flows.report import FlowReport


def learned(graph: FlowGraph, report: FlowReport, rows: Mapping[str, float] | None = None) -> FlowGraph:
    """The graph with the selectivities of a run of the same flow. Sources have the rows that are known now, else those
    of the run. Activities that the run did not have, or that got no rows, stay as they are."""
    runs = {run.name: run for run in report.activities}
    known = rows or {}

    def better(node: Node) -> Node:
        run = runs.get(node.name)
        if node.kind is NodeKind.SOURCE:
            if node.name in known:
                return replace(node, rows=known[node.name])
            # What a consumer with this one input took in is what the source gave.
            alone = (runs.get(name) for name in graph.consumers[node.name] if len(graph.providers[name]) == 1)
            given = next((consumer.rows_in for consumer in alone if consumer is not None), None)
            return node if given is None else replace(node, rows=float(given))
        if node.kind is NodeKind.ACTIVITY and run is not None and run.selectivity is not None:
            return replace(node, selectivity=run.selectivity)
        return node

    return FlowGraph(tuple(better(node) for node in graph.nodes), graph.edges, graph.name)
