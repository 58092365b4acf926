"""A flow as a graph: recordsets and activities, and who provides rows to whom.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3: a flow is an acyclic graph of activities and recordsets. The graph
knows nothing of Spark or of what an activity computes; it has what planning needs: the shape, which activities need all
of their input first, and estimates of rows, cost and width.

Rows that an activity rejects (quarantine) are no edge: they leave the flow beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from penstock.errors import PenstockError

DEFAULT_COLUMN_BYTES = 8.0


class FlowError(PenstockError):
    """A flow that cannot be."""


class NodeKind(Enum):
    SOURCE = "source"
    ACTIVITY = "activity"
    TARGET = "target"


@dataclass(frozen=True)
class Node:
    """A recordset or an activity. All estimates are optional: a plan is right without them, and better with them.

    `columns` are what comes out; `reads` what it looks at in its inputs (None: everything, as a black box does); `makes`
    what it computes, in contrast to what it passes through. From them follows which columns anyone needs later.
    """

    name: str
    kind: NodeKind = NodeKind.ACTIVITY
    blocking: bool = False  # gives its first row only after it has all of its input: sort, aggregate, sort-merge join
    rows: float = 1_000_000.0  # of a source
    selectivity: float = 1.0  # rows out over rows in, all inputs together
    looks_up: bool = False  # only the rows of its first input go on; the others are looked at
    cost_per_row_us: float = 1.0  # for each row in; for a source, to read it
    columns: frozenset[str] = frozenset()
    reads: frozenset[str] | None = None
    makes: frozenset[str] = frozenset()
    column_bytes: tuple[tuple[str, float], ...] = ()  # widths; a column that is not named has DEFAULT_COLUMN_BYTES
    bytes_per_row: float = 100.0  # of what comes out, where columns are not known

    def width(self, columns: Iterable[str] | None = None) -> float:
        """Bytes of one row, of some of the columns or of all."""
        if not self.columns:
            return self.bytes_per_row
        known = dict(self.column_bytes)
        kept = self.columns if columns is None else self.columns.intersection(columns)
        return sum(known.get(column, DEFAULT_COLUMN_BYTES) for column in kept)


def source(name: str, rows: float = 1_000_000.0, **estimates: object) -> Node:
    return Node(name, NodeKind.SOURCE, rows=rows, **estimates)  # type: ignore[arg-type]


def target(name: str, **estimates: object) -> Node:
    return Node(name, NodeKind.TARGET, **estimates)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FlowGraph:
    """Nodes and edges (provider, consumer), checked when made. A target has one provider and may be read by others."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]
    name: str = field(default="flow", compare=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise FlowError(f"{self.name} has no nodes: a flow has at least a source and a target")
        if len(self.by_name) < len(self.nodes):
            names = [node.name for node in self.nodes]
            twice = next(name for name in names if names.count(name) > 1)
            raise FlowError(f"{self.name} has two nodes named {twice!r}; give each its own name")
        seen: set[tuple[str, str]] = set()
        for edge in self.edges:
            for end in edge:
                if end not in self.by_name:
                    raise FlowError(f"{self.name}: the edge {edge[0]} -> {edge[1]} names {end!r}, which is no node")
            if edge in seen:
                raise FlowError(f"{self.name} has the edge {edge[0]} -> {edge[1]} twice; say it once")
            seen.add(edge)
        for node in self.nodes:
            self._check_node(node)
        _ = self.order

    def _check_node(self, node: Node) -> None:
        into, out = len(self.providers[node.name]), len(self.consumers[node.name])
        where = f"{self.name}: {node.kind.value} {node.name!r}"
        if node.kind is NodeKind.SOURCE and into:
            raise FlowError(f"{where} has the input {self.providers[node.name][0]!r}; a source has none")
        if node.kind is NodeKind.ACTIVITY and not into:
            raise FlowError(f"{where} has no input")
        if node.kind is NodeKind.TARGET and into != 1:
            raise FlowError(f"{where} has {into} providers; a target has one (put a union before it)")
        if node.kind is not NodeKind.TARGET and not out:
            raise FlowError(f"{where} has no consumer; its rows would go nowhere")
        if min(node.rows, node.selectivity, node.cost_per_row_us, node.bytes_per_row) < 0:
            raise FlowError(f"{where} has a negative estimate")

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    @cached_property
    def providers(self) -> dict[str, tuple[str, ...]]:
        """Of each node those that give it rows, in the order of the edges."""
        found: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for provider, consumer in self.edges:
            found[consumer].append(provider)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Of each node those that it gives rows to, in the order of the edges."""
        found: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for provider, consumer in self.edges:
            found[provider].append(consumer)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes, providers before consumers; among those that could come next, as declared."""
        return topological([node.name for node in self.nodes], self.providers, self.consumers, self.name)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.kind is NodeKind.SOURCE)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.kind is NodeKind.TARGET)

    @cached_property
    def rows_in(self) -> dict[str, float]:
        """Of each node the rows that it takes in; of a source, those that it has."""
        return {
            name: sum(self.rows_out[provider] for provider in self.providers[name])
            if self.providers[name]
            else self[name].rows
            for name in self.order
        }

    @cached_property
    def rows_out(self) -> dict[str, float]:
        """Of each node the rows that each of its consumers gets."""
        found: dict[str, float] = {}
        for name in self.order:
            node = self[name]
            taken = sum(found[provider] for provider in self.providers[name])
            going = found[self.providers[name][0]] if node.looks_up and self.providers[name] else taken
            found[name] = {
                NodeKind.SOURCE: node.rows,
                NodeKind.ACTIVITY: going * node.selectivity,
                NodeKind.TARGET: taken,
            }[node.kind]
        return found

    @cached_property
    def cost_us(self) -> dict[str, float]:
        """Of each node the work of one run over all of its rows."""
        return {name: self.rows_in[name] * self[name].cost_per_row_us for name in self.order}

    @cached_property
    def needed_columns(self) -> dict[str, frozenset[str]]:
        """Of each node those of its columns that some consumer looks at or passes on to one that does."""
        found: dict[str, frozenset[str]] = {}
        for name in reversed(self.order):
            found[name] = frozenset().union(*(self.asked(name, consumer, found) for consumer in self.consumers[name]))
        return found

    def asked(self, provider: str, consumer: str, needed: dict[str, frozenset[str]]) -> frozenset[str]:
        """The columns of a provider that one of its consumers wants, given what is needed of that consumer."""
        columns, reader = self[provider].columns, self[consumer]
        if reader.kind is NodeKind.TARGET:
            return columns & reader.columns if reader.columns else columns
        if reader.reads is None:
            return columns
        return columns & (reader.reads | (needed[consumer] - reader.makes))


def topological(
    names: Iterable[str],
    providers: dict[str, tuple[str, ...]],
    consumers: dict[str, tuple[str, ...]],
    what: str = "flow",
) -> tuple[str, ...]:
    """Providers before consumers, ties as given."""
    waiting = {name: len(providers[name]) for name in names}
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows while it is walked
        for consumer in consumers[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    if len(ready) < len(waiting):
        stuck = {name for name, count in waiting.items() if count}
        path = [min(stuck)]
        while path[-1] not in path[:-1]:
            path.append(min(provider for provider in providers[path[-1]] if provider in stuck))
        circle = path[path.index(path[-1]) :]
        raise FlowError(f"{what}: nodes provide each other in a circle: " + " -> ".join(reversed(circle)))
    return tuple(ready)
