"""How a flow follows its sources: for every activity, what becomes of new rows of what it reads.

New rows of a source are new rows behind most activities. Behind an aggregate they are groups, which can be merged with those
that are stored. If that holds on all ways to the targets, an update works on the new rows alone. Else the partitions that they
are in are made again, and it is known which activity forces that. Rows that are corrected or withdrawn, and changes of what is
looked up, always make partitions again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock.flows.activities import (
    Activity,
    Aggregate,
    AttachKey,
    BlackBox,
    Check,
    Deduplicate,
    Derive,
    Join,
    Lookup,
    NewKeys,
    Pivot,
    Select,
    Shape,
    Sort,
    Sql,
    Union,
    Wrong,
)
from penstock.flows.activities.base import Groups
from penstock.flows.description import FlowSource, FlowStep, Target, TypedFlow
from penstock.model.schema import Schema


class Passes(Enum):
    """What is behind a step when rows are added to the sources."""

    SAME = "the same rows"
    NEW = "new rows"
    GROUPS = "groups of new rows"
    OTHER = "other rows"


@dataclass(frozen=True)
class Forced:
    """A step behind which rows change, or go, when new rows come."""

    step: FlowStep
    why: str

    def __str__(self) -> str:
        line = f" (line {self.step.line})" if self.step.line else ""
        return f"`{self.step.name}`{line}: {self.why}"


@dataclass(frozen=True)
class Following:
    """How a flow follows new rows of some of its sources."""

    sources: tuple[str, ...]
    passes: Mapping[str, Passes]
    forced: tuple[Forced, ...]
    # Of targets that hold groups: how stored ones and those of new rows become one.
    groups: Mapping[str, Groups] = field(default_factory=dict)
    # The flow that gives what is stored, with what merging needs; and the one that gives what new rows add. Only where
    # nothing is forced.
    whole: TypedFlow | None = None
    new: TypedFlow | None = None

    def __bool__(self) -> bool:
        """Whether new rows are enough."""
        return bool(self.sources) and not self.forced

    @property
    def words(self) -> str:
        """For people, in a few words; who forces what, if anybody does."""
        if self:
            return f"incremental: new rows of {' and '.join(self.sources)} are enough"
        if not self.forced:
            return "full: none of its sources is read partition by partition as it grows"
        more = f" (and {len(self.forced) - 1} more)" if len(self.forced) > 1 else ""
        return f"full, as {self.forced[0]}{more}"

    def state(self, table: str) -> Schema:
        """Columns of a target that nobody sees: they are kept for merging."""
        return self.groups[table].state if self and table in self.groups else ()


def follow(typed: TypedFlow, sql: Sql, new: Collection[str], others: Mapping[str, str]) -> Following:
    """How a flow follows rows that are added to the sources in `new`; `others` are sources that change otherwise as time goes
    on, and why."""
    passes: dict[str, Passes] = {}
    forced: list[Forced] = []
    merging: dict[str, Groups] = {}
    for step in typed.flow.steps:
        inputs = [passes[name] for name in step.inputs]
        why = ""
        if isinstance(step.does, FlowSource):
            found = Passes.NEW if step.does.table in new and not step.does.every else Passes.SAME
            why = others.get(step.does.table, "")
            found = Passes.OTHER if why else found
        elif Passes.OTHER in inputs:
            found = Passes.OTHER  # told of the first on the way
        elif all(each is Passes.SAME for each in inputs):
            found = Passes.SAME
        elif isinstance(step.does, Target):
            (found,) = inputs
        elif Passes.GROUPS in inputs:
            found, why = Passes.OTHER, "it works on groups, which new rows change"
        elif isinstance(step.does, Aggregate):
            found = Passes.GROUPS
            try:
                merging[step.name] = _groups(step.does, typed.columns(step.inputs[0]), sql)
            except Wrong as error:
                found, why = Passes.OTHER, str(error)
        else:
            why = _why_not(step.does, inputs, [typed.columns(name) for name in step.inputs], sql)
            found = Passes.OTHER if why else Passes.NEW
        if why:
            forced.append(Forced(step, why))
        passes[step.name] = found
    sources = tuple(name for name, step in typed.flow.sources.items() if passes[step.name] is Passes.NEW)
    following = Following(sources, passes, tuple(forced))
    if not following:
        return following
    targets = {
        step.name: merging[step.inputs[0]]
        for step in typed.flow.steps
        if isinstance(step.does, Target) and step.inputs[0] in merging
    }
    whole = _with_state(typed, merging)
    return replace(following, groups=targets, whole=whole, new=_only_new(whole, passes))


def _groups(does: Aggregate, rows: Schema | None, sql: Sql) -> Groups:
    if rows is None:
        raise Wrong("the columns that it reads are not known")
    return sql.groups(does.by, does.expressions, rows)


def _why_not(does: Activity, inputs: Sequence[Passes], columns: Sequence[Schema | None], sql: Sql) -> str:
    """Why new rows are not simply new rows behind an activity; empty if they are."""
    first, others = inputs[0], inputs[1:]
    if isinstance(does, Derive | Select):
        return _looks_around(does, columns[0], sql)
    if isinstance(does, Deduplicate):
        return "a new row may take the place of one that is there"
    if isinstance(does, BlackBox):
        return "what a function does with rows is not known"
    if isinstance(does, Pivot):
        return "new rows change groups; aggregates with FILTER (WHERE …) can be merged"
    if isinstance(does, Lookup):
        return "new rows of the reference may be found by rows that are there" if Passes.NEW in others else ""
    if isinstance(does, Join):
        one = "inner" if does.how in ("left", "semi", "anti") and first is Passes.NEW else does.how
        one = "inner" if does.how == "right" and first is Passes.SAME else one
        if Passes.SAME not in inputs:
            return "new rows of one side may meet rows of the other that are there"
        return "" if one == "inner" else f"with how={does.how!r} new rows change what is there of the other side"
    if isinstance(does, Union):
        return "some of its inputs have no new rows" if Passes.SAME in inputs else ""
    if isinstance(does, NewKeys | AttachKey | Sort) or does.by_row or isinstance(does, Check):
        return ""
    return "it looks at all rows that ever came"


def _looks_around(does: Derive | Select, rows: Schema | None, sql: Sql) -> str:
    for name, expression in does.expressions:
        try:
            if rows is None or sql.typed(expression, rows).window:
                return f"`{name}` looks at other rows"
        except Wrong:
            return f"`{name}` is not understood"
    return ""


def _with_state(typed: TypedFlow, merging: Mapping[str, Groups]) -> TypedFlow:
    """The flow whose aggregates also give what merging needs."""
    shapes, steps = dict(typed.shapes), []
    for step in typed.flow.steps:
        if step.name in merging and isinstance(step.does, Aggregate):
            groups, shape = merging[step.name], typed.shapes[step.name]
            assert shape is not None
            step = replace(step, does=replace(step.does, expressions=groups.partial))
            made = shape.makes | {column.name for column in groups.state}
            shapes[step.name] = Shape((*shape.columns, *groups.state), shape.reads, made)
        elif isinstance(step.does, Target):
            shapes[step.name] = shapes[step.inputs[0]]
        steps.append(step)
    return TypedFlow(replace(typed.flow, steps=tuple(steps)), shapes)


def _only_new(typed: TypedFlow, passes: Mapping[str, Passes]) -> TypedFlow:
    """What leads to targets with new rows. Bad rows of what is looked up are kept already."""
    used: set[str] = set()
    for step in reversed(typed.flow.steps):
        if step.name in used or (isinstance(step.does, Target) and passes[step.name] is not Passes.SAME):
            used |= {step.name, *step.inputs}
    steps = []
    for step in typed.flow.steps:
        if isinstance(step.does, Check) and step.does.bad == "quarantine" and passes[step.name] is Passes.SAME:
            step = replace(step, does=replace(step.does, bad="reject"))
        if step.name in used:
            steps.append(step)
    return TypedFlow(replace(typed.flow, steps=tuple(steps)), typed.shapes)
