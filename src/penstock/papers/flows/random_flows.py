"""Flows of random shape, for experiments and benchmarks of planning."""

from __future__ import annotations

from random import Random

from penstock.flows.graph import FlowGraph, Node, NodeKind

# An activity reads from so many of the latest: flows are long rather than wide.
_NEAR = 30


def random_flow(activities: int, seed: int) -> FlowGraph:
    """A source for every dozen activities; one in four activities has two inputs; what nobody reads is a target."""
    chance = Random(seed)
    nodes = [
        Node(f"source_{n}", NodeKind.SOURCE, rows=chance.choice([1e4, 1e5, 1e6]))
        for n in range(max(1, activities // 12))
    ]
    edges: list[tuple[str, str]] = []
    for n in range(activities):
        near = nodes[-_NEAR:]
        inputs = chance.sample(near, min(len(near), chance.choice([1, 1, 1, 2])))
        node = Node(
            f"activity_{n}",
            blocking=chance.random() < 0.3,
            selectivity=chance.choice([0.05, 0.2, 0.5, 0.9, 1.0]),
            cost_per_row_us=chance.uniform(0.5, 5.0),
            bytes_per_row=chance.choice([20.0, 50.0, 100.0, 200.0]),
        )
        edges += [(provider.name, node.name) for provider in inputs]
        nodes.append(node)
    read = {provider for provider, _ in edges}
    nodes = [node for node in nodes if node.kind is NodeKind.ACTIVITY or node.name in read]
    for node in list(nodes):
        if node.name not in read:
            nodes.append(Node(f"target_{node.name}", NodeKind.TARGET))
            edges.append((node.name, f"target_{node.name}"))
    return FlowGraph(tuple(nodes), tuple(edges), f"{activities} activities, seed {seed}")
