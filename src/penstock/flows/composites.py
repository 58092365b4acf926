"""Flows composed of archetypes: the three of Fig. 12 of Karagiannis, Vassiliadis and Simitsis (2013), Sec. 7.4.

Lines of cheap activities before and after a core that holds rows. Where the paper gives ranges ("3 to 7 activities"), values
in the range are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from penstock.flows.archetypes import AGGREGATE_US, CHECK_US, COMPUTE_US, JOIN_US, READ_US, WRITE_US
from penstock.flows.graph import FlowGraph, Node, NodeKind, topological

ROWS = 800_000


class _Composer:
    def __init__(self, name: str, scale: float, selectivity: float) -> None:
        self.name, self.rows, self.selectivity = name, ROWS * scale, selectivity
        self.nodes: list[Node] = []
        self.edges: list[tuple[str, str]] = []

    def add(self, node: Node, *providers: str) -> str:
        self.nodes.append(node)
        self.edges += [(provider, node.name) for provider in providers]
        return node.name

    def source(self, name: str, share: float = 1.0) -> str:
        return self.add(Node(name, NodeKind.SOURCE, rows=round(self.rows * share), cost_per_row_us=READ_US))

    def line(self, name: str, last: str, length: int) -> str:
        """The first activity cleans, the others compute."""
        for n in range(length):
            selectivity, cost = (self.selectivity, CHECK_US) if n == 0 else (1.0, COMPUTE_US)
            last = self.add(Node(f"{name}_{n + 1:02}", selectivity=selectivity, cost_per_row_us=cost), last)
        return last

    def collect(self, name: str, *providers: str, selectivity: float, cost: float) -> str:
        return self.add(Node(name, blocking=True, selectivity=selectivity, cost_per_row_us=cost), *providers)

    def target(self, name: str, provider: str) -> str:
        return self.add(Node(name, NodeKind.TARGET, cost_per_row_us=WRITE_US), provider)

    def graph(self) -> FlowGraph:
        return FlowGraph(tuple(self.nodes), tuple(self.edges), self.name)


def tree_with_lines(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Extraction: five joins, three long and two short lines before them, a short one behind."""
    flow = _Composer("tree_with_lines", scale, selectivity)
    lines = [
        flow.line(f"line_{n}", flow.source(f"source_{n}", share), length)
        for n, (length, share) in enumerate(((12, 1.0), (10, 0.5), (8, 0.5), (5, 0.25), (4, 0.25)), start=1)
    ]
    lines.append(flow.source("source_6", 0.1))
    last = lines[0]
    for n, other in enumerate(lines[1:], start=1):
        last = flow.collect(f"join_{n}", last, other, selectivity=0.6, cost=JOIN_US)
    flow.target("target", flow.line("line_6", last, 4))
    return flow.graph()


def butterfly_with_lines(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Transformation and cleansing: a sorted union and two aggregations, four lines around them."""
    flow = _Composer("butterfly_with_lines", scale, selectivity)
    left = [flow.line(f"line_{n}", flow.source(f"source_{n}"), length) for n, length in ((1, 7), (2, 5))]
    body = flow.collect("sorted_union", *left, selectivity=1.0, cost=JOIN_US)
    for n, length in ((1, 3), (2, 6)):
        made = flow.collect(f"aggregate_{n}", body, selectivity=0.3, cost=AGGREGATE_US)
        flow.target(f"target_{n}", flow.line(f"line_{n + 2}", made, length))
    return flow.graph()


def forks_with_lines(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Loading: three forks into 2, 3 and 6 targets, fourteen lines before and behind them."""
    flow = _Composer("forks_with_lines", scale, selectivity)
    for fork, targets in enumerate((2, 3, 6), start=1):
        before = flow.line(f"line_{fork}", flow.source(f"source_{fork}"), 4)
        for n in range(1, targets + 1):
            made = flow.collect(f"aggregate_{fork}_{n}", before, selectivity=0.2, cost=AGGREGATE_US)
            flow.target(f"target_{fork}_{n}", flow.line(f"line_{fork}_{n}", made, 2))
    return flow.graph()


COMPOSITES: dict[str, Callable[..., FlowGraph]] = {
    make.__name__: make for make in (tree_with_lines, butterfly_with_lines, forks_with_lines)
}


# Subflows that pipeline, the strata that they form, and the policy for each.
#
# Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3.2 and 5: BreakIntoSubflows, DeriveSISSets, ExecuteSISS. As printed,
# BreakIntoSubflows loops "while no merge happens"; it must be "until". Sec. 3.2.1 wants a single sink in each subflow, Sec.
# 5.1 does not say so: here a node with several consumers is a boundary, from which a single sink follows (every node inside
# a subflow has one consumer, so a subflow is a tree towards its sink), and that subflows do not form circles.


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
