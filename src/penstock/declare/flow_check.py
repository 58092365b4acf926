"""Checking flows: the columns at every step, with what is known of Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.declare.api import TableDeclaration
from penstock.declare.problems import Location, Problem
from penstock.declare.sqlview import SqlProblem, analyse
from penstock.flows.activities import UNKNOWN, Activity, Typed, Wrong
from penstock.flows.description import Flow, TypedFlow, typed
from penstock.model.schema import Column, Schema

_ROWS = "rows"


class SparkSql:
    """Types of expressions, as the views in SQL have them."""

    def typed(self, expression: str, columns: Schema) -> Typed:
        known = {_ROWS: [_Known(column.name, None if column.type == UNKNOWN else column.type) for column in columns]}
        try:
            view = analyse(f"SELECT {expression} AS it FROM {_ROWS}", known, time=None, file="flow")
        except SqlProblem as error:
            raise Wrong(
                *(f"{each.found}; {each.expected}".replace(f"`{_ROWS}` has", "there are") for each in error.problems)
            ) from None
        if view.columns is None or len(view.columns) != 1:
            raise Wrong(f"{expression!r} is not one expression")
        (found,) = view.columns
        return Typed(found.type or UNKNOWN, frozenset(column for _, column in found.origins))


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    type: str | None


def check_flow(
    flow: Flow, schemas: Mapping[str, Schema | None], declaration: TableDeclaration
) -> tuple[TypedFlow, list[Problem]]:
    """The flow with the columns at every step, and everything that is wrong with it."""
    found, wrong = typed(flow, schemas, SparkSql())
    where = declaration.where
    problems = [
        Problem(Location(where.file, step.line or where.line), f"flow `{flow.name}`, {step.name}: {message}")
        for step, message in wrong
    ]
    problems += _history(flow, declaration)
    return found, problems


def _history(flow: Flow, declaration: TableDeclaration) -> Iterator[Problem]:
    """What looks at the loaded rows of a table needs them as a whole, and to be the only one who makes them."""
    if declaration.config.partition == "none" or "partition" in declaration.broken:
        return
    for step in flow.steps:
        if isinstance(step.does, Activity) and step.does.loaded is not None:
            message = f"flow `{flow.name}`, {step.name}: it looks at what is loaded, so the flow cannot have partitions"
            yield Problem(Location(declaration.where.file, step.line), f"{message}; leave out `partition`")
    for table, target in flow.targets.items():
        if target.append:
            message = f"flow `{flow.name}`: rows are added to `{table}`, so the flow cannot have partitions"
            yield Problem(declaration.where, f"{message}; leave out append=True or `partition`")


def base_flow_problems(flow: Flow, declaration: TableDeclaration) -> Iterator[Problem]:
    """Files are loaded one after the other, so what is done to their rows cannot need all of them."""
    if next(iter(flow.targets)) != declaration.name:
        return  # told of the first one
    file = declaration.where.file
    if len(flow.sources) != 1:
        message = f"flow `{flow.name}` loads feed `{declaration.config.feed}`, but has {len(flow.sources)} parameters"
        yield Problem(declaration.where, f"{message}; expected one, which gets the rows of the feed")
    for step in flow.steps:
        if isinstance(step.does, Activity) and (step.does.blocking or step.does.loaded is not None):
            message = f"flow `{flow.name}`, {step.name}: it needs all rows, but files are loaded one after the other"
            yield Problem(Location(file, step.line), f"{message}; do that in a flow that reads `{declaration.name}`")


def known_schema(columns: Schema | None) -> Schema | None:
    """The columns, if all their types are known."""
    return None if columns is None or any(column.type == UNKNOWN for column in columns) else columns


def with_unknown(columns: object) -> Schema | None:
    """Columns of a view, of which some types may not be known, as those of a flow."""
    if columns is None:
        return None
    return tuple(Column(each.name, each.type or UNKNOWN) for each in columns)  # type: ignore[attr-defined]
