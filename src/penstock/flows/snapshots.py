"""Dimensions and keys of a table that is delivered as snapshots: they follow from every snapshot, not from the newest one only.

A table of snapshots holds the newest. Another one beside it keeps the rows of all, each with the number of its snapshot. What
leads to a dimension reads that one, and everything on the way is done within each snapshot; all else sees the newest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.flows.activities import AttachKey, BlackBox, Check, Difference, Join, NewKeys, Overwrite, Union, Versions
from penstock.flows.description import Flow, FlowSource, FlowStep, Target

# What takes the rows of all snapshots, and gives rows of none in particular.
_GATHERS = (Overwrite, Versions, NewKeys)


class NoSnapshots(ValueError):
    """A step that cannot be done for every snapshot."""

    def __init__(self, step: FlowStep, message: str) -> None:
        super().__init__(message)
        self.step = step


def of_every_snapshot(flow: Flow, tables: Mapping[str, str]) -> Flow:
    """The flow in which dimensions and keys see every snapshot. `tables` names, for those that hold the newest snapshot, the
    one with all of them. Raises `NoSnapshots`."""
    many: dict[str, bool] = {}
    for step in flow.steps:
        many[step.name] = _many(step, many, tables)
    copies: dict[str, str] = {}
    steps = {step.name: step for step in flow.steps}

    def copied(name: str) -> str:
        """The step that does the same for every snapshot."""
        step = flow.by_name[name]
        if not many[name]:
            return name
        if isinstance(step.does, Target):
            return copied(step.inputs[0])
        if name not in copies:
            source = isinstance(step.does, FlowSource)
            copies[name] = tables[step.does.table] if isinstance(step.does, FlowSource) else f"{name} of every snapshot"
            _check(step, many)
            does = (
                replace(step.does, table=copies[name], every=True) if isinstance(step.does, FlowSource) else step.does
            )
            inputs = () if source else tuple(copied(each) for each in step.inputs)
            steps[copies[name]] = replace(step, name=copies[name], does=does, inputs=inputs)
        return copies[name]

    for step in flow.steps:
        if isinstance(step.does, _GATHERS) and any(many[name] for name in step.inputs):
            steps[step.name] = replace(step, inputs=tuple(copied(name) for name in step.inputs))
    if not copies:
        return flow
    # All read one table, so that they see the same: its newest snapshot is what the table of the newest holds.
    for step in flow.steps:
        if isinstance(step.does, FlowSource) and step.name in copies:
            steps[step.name] = replace(step, does=FlowSource(tables[step.does.table]))
    return replace(flow, steps=_ordered(flow, steps, copies))


def _many(step: FlowStep, many: Mapping[str, bool], tables: Mapping[str, str]) -> bool:
    """Whether the rows of a step are those of a snapshot."""
    if isinstance(step.does, FlowSource):
        return step.does.table in tables
    if isinstance(step.does, _GATHERS):
        return False
    if isinstance(step.does, Target | Union):
        return any(many[name] for name in step.inputs)
    # Pairs, and rows that look something up, are of the snapshot that the left row is of.
    return many[step.inputs[0]]


def _check(step: FlowStep, many: Mapping[str, bool]) -> None:
    does = step.does
    others = [name for name in step.inputs if not many[name]]
    if isinstance(does, BlackBox | Difference):
        raise NoSnapshots(
            step, f"{does.kind} cannot be done for every snapshot that a dimension behind it is made of; put it behind"
        )
    alone = isinstance(does, Union) or (isinstance(does, Join) and does.how in ("right", "full"))
    if others and alone and not isinstance(does, AttachKey):
        raise NoSnapshots(
            step,
            f"`{others[0]}` would be in every snapshot that a dimension behind it is made of; bring it in behind the dimension",
        )


def _ordered(flow: Flow, steps: Mapping[str, FlowStep], copies: Mapping[str, str]) -> tuple[FlowStep, ...]:
    """Without what nobody reads any more; a copy has the name of what it replaces."""
    used: set[str] = set()
    waiting = [step.name for step in flow.steps if isinstance(step.does, Target)]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += steps[name].inputs
    called = {
        copy: name if name not in used and not isinstance(flow.by_name[name].does, FlowSource) else copy
        for name, copy in copies.items()
    }
    found = []
    for step in flow.steps:
        for name in (step.name, copies.get(step.name, "")):
            if name in used:
                own = steps[name]
                inputs = tuple(called.get(each, each) for each in own.inputs)
                if (
                    name != step.name
                    and step.name in used
                    and isinstance(own.does, Check)
                    and own.does.bad == "quarantine"
                ):
                    # The bad rows of the newest snapshot are kept already; older ones are counted.
                    own = replace(own, does=replace(own.does, bad="reject"))
                found.append(replace(own, name=called.get(name, name), inputs=inputs))
    return tuple(found)
