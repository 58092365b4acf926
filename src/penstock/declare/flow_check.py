"""Checking flows: the columns at every step, with what is known of Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.problems import Location, Problem
from penstock.declare.sql.facts import quoted
from penstock.declare.sql.view import AggregateWay, SqlProblem, View, analyse
from penstock.flows.activities import UNKNOWN, Activity, AttachKey, Difference, NewKeys, Typed, Wrong
from penstock.flows.activities.base import Groups
from penstock.flows.description import Flow, Target, TypedFlow, typed
from penstock.flows.snapshots import NoSnapshots, of_every_snapshot
from penstock.model.schema import Column, Schema

if TYPE_CHECKING:
    from sqlglot import exp

_ROWS = "rows"
_PARAMETERS = (":partition_start", ":partition_end")
PARAMETER_TYPE = "timestamp"


class SparkSql:
    """Types of expressions, as the views in SQL have them. `partitioned`: whether they can ask for the partition that is
    made; `by_row`: whether they may only look at one row."""

    def __init__(self, *, partitioned: bool = True, by_row: bool = False) -> None:
        self.partitioned, self.by_row = partitioned, by_row

    def typed(self, expression: str, columns: Schema) -> Typed:
        from sqlglot import exp

        from penstock.declare.sql.model import Block

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
        assert isinstance(view.query, Block)
        nodes = list(view.query.walk())
        window = any(isinstance(node, exp.Window) for node in nodes)
        self._possible(expression, view, nodes, window)
        grouped = view.query.aggregates()
        inside = {id(node) for each in grouped for node in each.walk()}
        bare = {node.name for node in nodes if isinstance(node, exp.Column) and id(node) not in inside}
        type_ = found.type or (PARAMETER_TYPE if expression.strip().lower() in _PARAMETERS else UNKNOWN)
        reads = frozenset(column for _, column in found.origins)
        return Typed(type_, reads, bool(grouped), frozenset(bare), window)

    def groups(self, by: Sequence[str], expressions: Sequence[tuple[str, str]], columns: Schema) -> Groups:
        known = {_ROWS: [_Known(column.name, None if column.type == UNKNOWN else column.type) for column in columns]}
        keys = [quoted(name) for name in by]
        items = ", ".join((*keys, *(f"{expression} AS {quoted(name)}" for name, expression in expressions)))
        query = f"SELECT {items} FROM {_ROWS}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
        try:
            how = analyse(query, known, time=None, file="flow").how
        except SqlProblem as error:
            raise Wrong(str(error)) from None
        if not isinstance(how, AggregateWay):
            raise Wrong(how.why.removeprefix("full: "))
        merged = tuple(pair for pair in how.merged if pair[0] not in how.keys)
        return Groups(how.keys, how.partial, merged, how.state)

    def _possible(self, expression: str, view: View, nodes: list[exp.Expr], window: bool) -> None:
        from sqlglot import exp

        from penstock.declare.sql.functions import is_chance, is_generator

        if view.parameters and not self.partitioned:
            raise Wrong(
                f"`{expression}` asks for :{view.parameters[0]}, but the rows are not made by partition; set `partition`"
            )
        if any(is_generator(node) for node in nodes):
            raise Wrong(
                f"`{expression}` makes several rows of one; do that with unpivot(…), or in a function with apply(…)"
            )
        if any(isinstance(node, exp.Query) for node in nodes):
            raise Wrong(f"`{expression}` has a query inside; join or look up what it reads")
        if any(isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count) for node in nodes):
            raise Wrong(f"`{expression}` is not one expression")
        if window and self.by_row:
            raise Wrong(f"`{expression}` looks at other rows, but files are loaded one after the other")
        if any(is_chance(node) for node in nodes):
            raise Wrong(f"`{expression}` gives another answer each time, but rows of a flow may be computed twice")


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    type: str | None


def check_flow(
    flow: Flow, schemas: Mapping[str, Schema | None], declaration: TableDeclaration
) -> tuple[TypedFlow, list[Problem]]:
    """The flow with the columns at every step, and everything that is wrong with it."""
    config = declaration.config
    partitioned = config.feed is None and (config.partition != "none" or "partition" in declaration.broken)
    found, wrong = typed(flow, schemas, SparkSql(partitioned=partitioned, by_row=config.feed is not None))
    where = declaration.where
    problems = [
        Problem(Location(where.file, step.line or where.line), f"flow `{flow.name}`, {step.name}: {message}")
        for step, message in wrong
    ]
    problems += _history(flow, declaration)
    problems += _appended(flow, declaration)
    return found, problems


def _history(flow: Flow, declaration: TableDeclaration) -> Iterator[Problem]:
    """What looks at everything that came needs it as a whole. Keys are found whatever partition a row is in."""
    if declaration.config.partition == "none" or "partition" in declaration.broken:
        return
    for step in flow.steps:
        if isinstance(step.does, Activity) and step.does.of_all and not isinstance(step.does, NewKeys | AttachKey):
            message = f"flow `{flow.name}`, {step.name}: it looks at all that came, so the flow cannot have partitions"
            yield Problem(Location(declaration.where.file, step.line), f"{message}; leave out `partition`")


def _appended(flow: Flow, declaration: TableDeclaration) -> Iterator[Problem]:
    """An update makes its rows again. They may only be added to a table if those that are there do not come again: new keys,
    and differences from what is loaded."""
    for step in flow.steps:
        if not isinstance(step.does, Target) or not step.does.append or declaration.config.feed is not None:
            continue
        if not _only_new(flow, step.inputs[0]):
            message = f"flow `{flow.name}`: each update would add all rows to `{step.does.table}` again"
            where = Location(declaration.where.file, step.line or declaration.where.line)
            yield Problem(where, f"{message}; leave out append=True, or add only what .difference(…) gives")


def _only_new(flow: Flow, name: str) -> bool:
    """Whether all rows at a place are of keys or changes that are not loaded yet."""
    step = flow.by_name[name]
    if isinstance(step.does, NewKeys | Difference):
        return True
    inputs = step.inputs[:1] if isinstance(step.does, Activity) and step.does.looks_up else step.inputs
    return isinstance(step.does, Activity) and bool(inputs) and all(_only_new(flow, each) for each in inputs)


def keep_snapshots(tables: dict[str, TableDeclaration], feeds: Mapping[str, FeedDeclaration]) -> Iterator[Problem]:
    """Where a flow makes dimensions or keys of a table that holds the newest snapshot only, a table beside it keeps the rows of
    all, and the flow reads those."""
    done: dict[str, Flow] = {}
    for name, declaration in list(tables.items()):
        flow = declaration.flow
        if flow is None or declaration.config.feed is not None:
            continue
        if flow.name not in done:
            newest = {s: f"{s}_snapshots" for s in flow.sources if s in tables and _is_newest(tables[s], feeds)}
            try:
                done[flow.name] = of_every_snapshot(flow, newest)
            except NoSnapshots as error:
                done[flow.name] = flow
                where = Location(declaration.where.file, error.step.line or declaration.where.line)
                yield Problem(where, f"flow `{flow.name}`, {error.step.name}: {error}")
            for source in newest:
                if newest[source] in done[flow.name].sources:
                    yield from _with_snapshots(tables, source, newest[source])
        sources = {
            key: text
            for key, text in declaration.config.sources.items()
            if key in done[flow.name].sources or key not in flow.sources
        }
        config = declaration.config.model_copy(update={"sources": sources})
        tables[name] = replace(declaration, flow=done[flow.name], config=config)


def _is_newest(table: TableDeclaration, feeds: Mapping[str, FeedDeclaration]) -> bool:
    feed = feeds.get(table.config.feed or "")
    return feed is not None and feed.config.mode == "snapshot" and table.config.partition == "none" and not table.every


def _with_snapshots(tables: dict[str, TableDeclaration], source: str, name: str) -> Iterator[Problem]:
    table = tables[source]
    if name in tables and not tables[name].every:
        yield Problem(
            tables[name].where,
            f"table `{name}` has the name of the one that keeps all snapshots of `{source}`; call it otherwise",
        )
    elif table.flow is not None:
        message = f"flow `{table.flow.name}` loads `{source}` from snapshots, so that other flows can make no dimensions or keys of it"
        yield Problem(table.where, f"{message}; let them read the feed's own table, and do there what this flow does")
    else:
        config = table.config.model_copy(update={"group": None, "freshness": None, "guarantee": False})
        tables.setdefault(name, replace(table, name=name, config=config, every=True))


def base_flow_problems(flow: Flow, declaration: TableDeclaration) -> Iterator[Problem]:
    """Files are loaded one after the other, so what is done to their rows cannot need all of them."""
    if next(iter(flow.targets)) != declaration.name:
        return  # told of the first one
    file = declaration.where.file
    if len(flow.sources) != 1:
        message = f"flow `{flow.name}` loads feed `{declaration.config.feed}`, but has {len(flow.sources)} parameters"
        yield Problem(declaration.where, f"{message}; expected one, which gets the rows of the feed")
    for step in flow.steps:
        if isinstance(step.does, Activity) and not step.does.by_row:
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
