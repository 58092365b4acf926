"""A flow as it is declared: which activities, in which order, from which tables into which; and what follows from that:
the columns at every place, and the graph that planning works on.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

from penstock.flows.activities import UNKNOWN, Activity, Aggregate, BlackBox, Check, Gather, Shape, Sql, Wrong
from penstock.flows.frontier import ANYHOW, RunPreferences
from penstock.flows.graph import FlowGraph, Node, NodeKind
from penstock.model.schema import Schema


@dataclass(frozen=True)
class FlowSource:
    """Rows of a table of the warehouse, or of the feed that is being loaded."""

    table: str
    # The table keeps the rows of every snapshot; each comes with the number of its own.
    every: bool = False


@dataclass(frozen=True)
class Target:
    """A table that the flow makes. It can be read further down in the same flow."""

    table: str
    # Rows are added to what the table has; else they take its place, or that of its partitions.
    append: bool = False


@dataclass(frozen=True)
class FlowStep:
    """One node of a flow. Recordsets have the names of their tables."""

    name: str
    does: FlowSource | Target | Activity
    inputs: tuple[str, ...] = ()
    # The line of the project's file on which it stands.
    line: int = 0


@dataclass(frozen=True)
class Flow:
    """Steps in the order in which they were written, inputs first."""

    name: str
    steps: tuple[FlowStep, ...]
    # How it is to run; its rows are the same however it does.
    running: RunPreferences = ANYHOW

    @cached_property
    def by_name(self) -> dict[str, FlowStep]:
        return {step.name: step for step in self.steps}

    @cached_property
    def sources(self) -> dict[str, FlowStep]:
        return {step.does.table: step for step in self.steps if isinstance(step.does, FlowSource)}

    @cached_property
    def targets(self) -> dict[str, Target]:
        return {step.does.table: step.does for step in self.steps if isinstance(step.does, Target)}

    @cached_property
    def fingerprint(self) -> str:
        """Another one for anything that gives other rows."""
        spelled = [(step.name, repr(step.does), step.inputs) for step in self.steps]
        codes = [step.does.fingerprint if isinstance(step.does, BlackBox) else "" for step in self.steps]
        return sha256(repr((spelled, codes)).encode()).hexdigest()[:16]

    @property
    def keeps_history(self) -> bool:
        """Whether it looks at what it made before, so that its result depends on more than its sources."""
        return any(isinstance(step.does, Activity) and step.does.loaded is not None for step in self.steps)


@dataclass(frozen=True)
class TypedFlow:
    """A flow with the columns at every step; None where they cannot be known, as those of a source are not."""

    flow: Flow
    shapes: Mapping[str, Shape | None]

    def columns(self, name: str) -> Schema | None:
        shape = self.shapes[name]
        return shape.columns if shape is not None else None

    def graph(self, rows: Mapping[str, float] | None = None) -> FlowGraph:
        """What planning works on. `rows` are those of the sources, where they are known."""
        return _lowered(self, rows or {})


def typed(flow: Flow, schemas: Mapping[str, Schema | None], sql: Sql) -> tuple[TypedFlow, list[tuple[FlowStep, str]]]:
    """The columns at every step for those of the sources, and everything that is wrong with them. What is wrong with one
    step does not hide what is wrong with another: the columns behind it are unknown."""
    shapes: dict[str, Shape | None] = {}
    wrong: list[tuple[FlowStep, str]] = []
    for step in flow.steps:
        shapes[step.name] = None
        if isinstance(step.does, FlowSource):
            known = schemas.get(step.does.table)
            shapes[step.name] = Shape(known, frozenset()) if known is not None else None
            continue
        inputs = [shape.columns for name in step.inputs if (shape := shapes[name]) is not None]
        if len(inputs) < len(step.inputs):
            continue
        if isinstance(step.does, Target):
            shapes[step.name] = Shape(inputs[0], frozenset())
            continue
        try:
            shapes[step.name] = step.does.shape(inputs, sql)
            if step.does.loaded is not None and step.does.loaded not in flow.targets:
                raise Wrong(
                    f"`{step.does.loaded}` is no target of this flow; write .into({step.does.loaded!r}) behind it"
                )
        except Wrong as error:
            wrong += [(step, message) for message in error.messages]
    return TypedFlow(flow, shapes), wrong


_PARAMETER = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|:(partition_start|partition_end)\b""", re.I)


def _rewritten(typed: TypedFlow, value: Callable[[str], str]) -> TypedFlow:
    def change(text: str) -> str:
        return _PARAMETER.sub(lambda found: value(found[1].lower()) if found[1] else found[0], text)

    steps = (
        replace(step, does=step.does.rewritten(change)) if isinstance(step.does, Activity) else step
        for step in typed.flow.steps
    )
    return replace(typed, flow=replace(typed.flow, steps=tuple(steps)))


def bound(typed: TypedFlow, values: Mapping[str, str]) -> TypedFlow:
    """The flow for one partition: values, as SQL, in the place of :partition_start and :partition_end."""
    return _rewritten(typed, lambda name: values[name])


def parameters(typed: TypedFlow) -> list[str]:
    """Those of partition_start, partition_end that it uses, as often as it does."""
    found: list[str] = []
    _rewritten(typed, lambda name: found.append(name) or name)  # type: ignore[func-returns-value]
    return found


# Estimates until a run has been measured: (selectivity, microseconds for a row). They decide what is worth keeping, never
# what comes out.
_ESTIMATES: dict[str, tuple[float, float]] = {
    "not_null": (0.95, 0.1),
    "filter": (0.5, 0.1),
    "matches": (0.7, 0.4),
    "has_type": (0.98, 0.3),
    "in_domain": (0.95, 0.1),
    "derive": (1.0, 0.2),
    "reformat": (1.0, 0.5),
    "select": (1.0, 0.1),
    "look_up": (0.95, 0.6),
    "join": (0.8, 1.0),
    "aggregate": (0.1, 0.8),
    "part": (0.3, 0.1),
    "pivot": (0.1, 0.8),
    "unpivot": (3.0, 0.3),
    "deduplicate": (0.9, 1.5),
    "sort": (1.0, 1.5),
    "sorted_union": (1.0, 1.5),
    "route": (0.5, 0.1),
    "new_keys": (0.1, 1.5),
    "attach_key": (1.0, 1.0),
    "scd1": (1.0, 2.0),
    "scd2": (1.0, 2.5),
    "difference": (0.1, 2.0),
    "function": (1.0, 3.0),
}
_READ_US, _WRITE_US = 0.8, 1.0
_BYTES = {"boolean": 1.0, "tinyint": 1.0, "smallint": 2.0, "int": 4.0, "float": 4.0, "date": 4.0, "string": 20.0}


def _lowered(typed: TypedFlow, rows: Mapping[str, float]) -> FlowGraph:
    nodes = [_node(step, typed.shapes[step.name], rows) for step in typed.flow.steps]
    edges = dict.fromkeys((name, step.name) for step in typed.flow.steps for name in step.inputs)
    return FlowGraph(tuple(nodes), tuple(edges), typed.flow.name)


def _node(step: FlowStep, shape: Shape | None, rows: Mapping[str, float]) -> Node:
    columns: Schema = shape.columns if shape is not None else ()
    widths = tuple((column.name, _width(column.type)) for column in columns)
    given = frozenset(column.name for column in columns)
    if isinstance(step.does, FlowSource):
        count = rows.get(step.does.table, 1_000_000.0)
        return Node(
            step.name, NodeKind.SOURCE, rows=count, cost_per_row_us=_READ_US, columns=given, column_bytes=widths
        )
    if isinstance(step.does, Target):
        return Node(step.name, NodeKind.TARGET, cost_per_row_us=_WRITE_US, columns=given, column_bytes=widths)
    selectivity, cost = _ESTIMATES.get(step.does.kind, (1.0, 0.2))
    if isinstance(step.does, Aggregate) and not step.does.by:
        selectivity = 0.0
    if isinstance(step.does, Gather):
        selectivity, cost = (each * len(step.does.sets) for each in _ESTIMATES["aggregate"])
    reads = shape.reads if shape is not None else None
    if isinstance(step.does, Check) and step.does.bad == "quarantine":
        reads = None  # a row that is kept for people is kept whole
    return Node(
        step.name,
        NodeKind.ACTIVITY,
        step.does.blocking,
        selectivity=selectivity,
        looks_up=step.does.looks_up,
        cost_per_row_us=cost,
        columns=given,
        reads=reads,
        makes=shape.makes if shape is not None else frozenset(),
        column_bytes=widths,
    )


def _width(type_: str) -> float:
    if type_.startswith("decimal"):
        return 16.0
    return (
        40.0 if type_.startswith(("array", "map", "struct")) else _BYTES.get(type_, 20.0 if type_ == UNKNOWN else 8.0)
    )
