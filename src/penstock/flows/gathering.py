"""Aggregates of the same rows, computed in one pass.

Aggregates that compute the same measures of one recordset for different keys need its rows once: each row counts for a
group of every set of keys. Rows need not be staged for that, only groups, which are few. Where groups are hardly fewer
than rows, a copy of each row for every aggregate is more than staging it once: then the flow stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.flows.activities import Aggregate, Gather, GroupPart, Shape
from penstock.flows.activities.group import SET
from penstock.flows.description import FlowSource, FlowStep, TypedFlow
from penstock.flows.graph import FlowGraph, Node, NodeKind
from penstock.flows.report import FlowReport, StepRun
from penstock.model.schema import Column

# With fewer aggregates there is little to gain.
AT_LEAST = 3
# Until a run has told: the groups of an aggregate, as a share of its rows.
_GROUPS = 0.1


def gathered(typed: TypedFlow, selectivities: Mapping[str, float] | None = None) -> TypedFlow:
    """The flow in which aggregates that can share a pass do so. `selectivities` are those of an earlier run, by activity."""
    known = selectivities or {}
    steps = {step.name: step for step in typed.flow.steps}
    shapes = dict(typed.shapes)
    before: dict[str, FlowStep] = {}
    for provider, members in _alike(typed):
        name = f"{provider}: groups"
        share = known.get(name, sum(known.get(member.name, _GROUPS) for member in members))
        if name in steps or share > 1.0:
            continue
        step, shape = _gather(typed, name, provider, members)
        before[members[0].name], shapes[name] = step, shape
        for member in members:
            does, own = member.does, typed.shapes[member.name]
            assert isinstance(does, Aggregate) and own is not None and isinstance(step.does, Gather)
            part = GroupPart(step.does.number(does.by), does.by, tuple(measure for measure, _ in does.expressions))
            steps[member.name] = replace(member, does=part, inputs=(name,))
            read = frozenset(column.name for column in own.columns) | {SET}
            shapes[member.name] = Shape(own.columns, read)
    ordered = [
        each for step in typed.flow.steps for each in (before.get(step.name), steps[step.name]) if each is not None
    ]
    return TypedFlow(replace(typed.flow, steps=tuple(ordered)), shapes)


def _alike(typed: TypedFlow) -> Iterator[tuple[str, list[FlowStep]]]:
    """Aggregates of one provider with the same measures."""
    found: dict[tuple[str, object], list[FlowStep]] = {}
    snapshots: set[str] = set()
    for step in typed.flow.steps:
        # Where there are many snapshots, groups are those of each of them.
        if (isinstance(step.does, FlowSource) and step.does.every) or snapshots.intersection(step.inputs):
            snapshots.add(step.name)
    for step in typed.flow.steps:
        does = step.does
        if not isinstance(does, Aggregate) or not does.by or typed.shapes[step.name] is None or step.name in snapshots:
            continue
        # Distinct values of a measure would need a further copy of the rows.
        if not any("distinct" in expression.lower() for _, expression in does.expressions):
            found.setdefault((step.inputs[0], does.expressions), []).append(step)
    for (provider, _), members in found.items():
        if len(members) >= AT_LEAST:
            yield provider, members


def _gather(typed: TypedFlow, name: str, provider: str, members: list[FlowStep]) -> tuple[FlowStep, Shape]:
    keys: dict[str, Column] = {}
    measures: tuple[Column, ...] = ()
    sets: dict[frozenset[str], tuple[str, ...]] = {}
    reads: frozenset[str] = frozenset()
    for member in members:
        does, shape = member.does, typed.shapes[member.name]
        assert isinstance(does, Aggregate) and shape is not None and shape.reads is not None
        sets.setdefault(frozenset(key.lower() for key in does.by), does.by)
        for key in shape.columns[: len(does.by)]:
            keys.setdefault(key.name.lower(), key)
        measures, reads = shape.columns[len(does.by) :], reads | shape.reads
    first = members[0]
    assert isinstance(first.does, Aggregate)
    gather = Gather(tuple(sets.values()), first.does.expressions)
    columns = (*keys.values(), *measures, Column(SET, "int"))
    made = frozenset((SET, *(measure.name for measure in measures)))
    return FlowStep(name, gather, (provider,), first.line), Shape(columns, reads, made)


# Better estimates from what a run measured.


# With fewer, what a run takes is not that of the rows.
ENOUGH_ROWS = 20_000


def _measured(node: Node, step: StepRun) -> Node:
    """A node with the bytes that its staged columns took."""
    columns = frozenset(step.staged_columns) or node.columns
    expected = node.width(columns) * step.staged_rows
    if not expected:
        return node
    share = step.staged_bytes / expected
    if not node.columns:
        return replace(node, bytes_per_row=node.bytes_per_row * share)
    widths = tuple((name, node.width((name,)) * (share if name in columns else 1.0)) for name in sorted(node.columns))
    return replace(node, column_bytes=widths)


def learned(graph: FlowGraph, report: FlowReport, rows: Mapping[str, float] | None = None) -> FlowGraph:
    """The graph with what a run of the same flow measured: selectivities, and, where there were enough rows to tell, CPU and
    bytes for a row. Sources have the rows that are known now, else those
    of the run. Activities that the run did not have, or that got no rows, stay as they are."""
    runs = {run.name: run for run in report.activities}
    staged = {step.name: step for step in report.steps if step.staged_bytes}
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
            node = replace(node, selectivity=run.selectivity)
            one_input = len(graph.providers[node.name]) == 1
            if one_input and run.rows_in >= ENOUGH_ROWS and run.cpu_s > 0:
                node = replace(node, cost_per_row_us=run.cpu_s * 1e6 / run.rows_in)
        step = staged.get(node.name)
        if step is not None and step.staged_rows >= ENOUGH_ROWS:
            node = _measured(node, step)
        return node

    return FlowGraph(tuple(better(node) for node in graph.nodes), graph.edges, graph.name)
