"""Subflows that pipeline, the strata that they form, and the policy for each.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3.2 and 5: BreakIntoSubflows, DeriveSISSets, ExecuteSISS. As printed,
BreakIntoSubflows loops "while no merge happens"; it must be "until". Sec. 3.2.1 wants a single sink in each subflow, Sec.
5.1 does not say so: here a node with several consumers is a boundary, from which a single sink follows (every node inside
a subflow has one consumer, so a subflow is a tree towards its sink), and that subflows do not form circles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.flows.graph import FlowGraph, NodeKind, topological


@dataclass(frozen=True)
class Subflow:
    """Nodes that pass rows on without storing them, in topological order. Known by the last one, its sink."""

    nodes: tuple[str, ...]

    @property
    def sink(self) -> str:
        return self.nodes[-1]


@dataclass(frozen=True)
class Fragmentation:
    """A flow cut into subflows, and the graph that these form."""

    graph: FlowGraph
    subflows: tuple[Subflow, ...]

    @cached_property
    def of(self) -> dict[str, Subflow]:
        """The subflow of each node."""
        return {name: subflow for subflow in self.subflows for name in subflow.nodes}

    @cached_property
    def edges(self) -> tuple[tuple[Subflow, Subflow], ...]:
        """The zoomed-out graph."""
        pairs = ((self.of[provider], self.of[consumer]) for provider, consumer in self.graph.edges)
        return tuple(dict.fromkeys(pair for pair in pairs if pair[0] is not pair[1]))

    @cached_property
    def strata(self) -> tuple[tuple[Subflow, ...], ...]:
        """Stratified independent subflow sets: each subflow comes one stratum after the last of those it reads."""
        into: dict[str, list[str]] = {subflow.sink: [] for subflow in self.subflows}
        out: dict[str, list[str]] = {subflow.sink: [] for subflow in self.subflows}
        for provider, consumer in self.edges:
            into[consumer.sink].append(provider.sink)
            out[provider.sink].append(consumer.sink)
        providers = {name: tuple(names) for name, names in into.items()}
        consumers = {name: tuple(names) for name, names in out.items()}
        level: dict[str, int] = {}
        for sink in topological(providers, providers, consumers):
            level[sink] = 1 + max((level[provider] for provider in providers[sink]), default=-1)
        found: list[list[Subflow]] = [[] for _ in range(1 + max(level.values()))]
        for subflow in self.subflows:
            found[level[subflow.sink]].append(subflow)
        return tuple(tuple(stratum) for stratum in found)


def is_boundary(graph: FlowGraph, name: str) -> bool:
    """A recordset, an activity that needs all of its input first, or one with several consumers (a router)."""
    node = graph[name]
    return node.kind is not NodeKind.ACTIVITY or node.blocking or len(graph.consumers[name]) > 1


def is_memory_intensive(graph: FlowGraph, name: str) -> bool:
    """An activity that holds rows: it needs all of its input, or brings several inputs together."""
    node = graph[name]
    return node.kind is NodeKind.ACTIVITY and (node.blocking or len(graph.providers[name]) > 1)


def break_into_subflows(graph: FlowGraph) -> Fragmentation:
    """Merge neighbours of which none is a boundary, until no merge happens. One pass in topological order does it:
    what a node could merge with upstream is merged already."""
    inside: dict[str, list[str]] = {}
    for name in graph.order:
        mine = [name]
        if not is_boundary(graph, name):
            for provider in graph.providers[name]:
                if not is_boundary(graph, provider):
                    merged = inside[provider]
                    if len(merged) > len(mine):
                        merged, mine = mine, merged
                    mine += merged
                    for moved in merged:
                        inside[moved] = mine
        inside[name] = mine
    place = {name: number for number, name in enumerate(graph.order)}
    groups = {id(names): names for names in inside.values()}
    return Fragmentation(
        graph, tuple(Subflow(tuple(sorted(names, key=place.__getitem__))) for names in groups.values())
    )


def policy_for(graph: FlowGraph, subflow: Subflow, theta: int = 0) -> str:
    """Of ExecuteSISS: the operator policy that a subflow runs under. The paper tunes `theta` by the volume of data (4 to
    6 at TPC-H scale 1, 2 at scale 10). As blocking activities are subflows of their own, a `theta` above 0 can only tell
    apart subflows with pipelined look-ups and joins; with 0 every subflow that holds rows saves memory."""
    held = sum(is_memory_intensive(graph, name) for name in subflow.nodes)
    return "minimum-memory" if held > theta else "minimum-cost"
