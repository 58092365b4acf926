"""Flows composed of archetypes: the three of Fig. 12 of Karagiannis, Vassiliadis and Simitsis (2013), Sec. 7.4.

Lines of cheap activities before and after a core that holds rows. Where the paper gives ranges ("3 to 7 activities"), values
in the range are taken.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.flows.archetypes import AGGREGATE_US, CHECK_US, COMPUTE_US, JOIN_US, READ_US, WRITE_US
from penstock.flows.graph import FlowGraph, Node, NodeKind

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
