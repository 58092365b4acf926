"""Tables as they will run: what was declared, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.project import Declarations
from penstock.declare.sqlview import Aggregate, OutputColumn, Rowwise, Shape, View
from penstock.flows.activities import UNKNOWN
from penstock.flows.description import TypedFlow
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.relations import SAME
from penstock.model.schema import Column, Schema
from penstock.model.tables import Table


@dataclass(frozen=True)
class Definition:
    """One table, ready to be computed."""

    table: Table
    declaration: TableDeclaration
    time: str | None
    # The columns, if all are known before Spark has seen the view.
    schema: Schema | None
    view: View | None = None
    wants_partition: bool = False
    # The columns by name, with such types as are known.
    columns: Shape | None = None
    # A base table whose feed restates: each file takes the place of what was there.
    restated: bool = False
    # The flow that makes it, perhaps with other tables, and the columns at each of its steps.
    flow: TypedFlow | None = None

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def how(self) -> str:
        """Full or incremental and why, for people."""
        if self.restated:
            return f"replaced: each file states {'the table' if self.table.grain is WHOLE else 'its partitions'} anew"
        if self.table.is_base:
            return "appended: rows of new files are added"
        if self.flow is not None:
            return f"by the flow {self.flow.flow.name}, together with all tables of it"
        if self.view is None:
            return "full: a Python function, whose partitions are computed again from all their rows"
        if isinstance(self.view.how, Rowwise | Aggregate) and not self.table.foldable:
            return "full: its source is not read partition by partition"
        return self.view.how.why

    @property
    def separable(self) -> bool:
        """Whether several partitions can be computed by one query."""
        if self.view is None or self.table.grain is WHOLE:
            return False
        return bool(self.view.separable) and all(source.window == (0, 1) for source in self.table.sources)


@dataclass(frozen=True)
class Warehouse:
    declarations: Declarations
    feeds: Mapping[str, FeedDeclaration]
    feed_schemas: Mapping[str, Schema]
    definitions: Mapping[str, Definition]
    graph: Graph

    @property
    def zone(self) -> str:
        return self.declarations.config.zone


def schema_of(view: View) -> Schema | None:
    """The columns as those who store rows need them: with all their types."""
    if view.columns is None or any(column.type is None for column in view.columns):
        return None
    return tuple(Column(column.name, column.type or "string") for column in view.columns)


def shape_of(columns: Schema | None) -> Shape | None:
    """The columns at some place of a flow as those of a view."""
    if columns is None:
        return None
    return tuple(OutputColumn(each.name, None if each.type == UNKNOWN else each.type, ()) for each in columns)


def foldable_view(view: View, table: Table, timed: bool) -> bool:
    if not isinstance(view.how, Rowwise | Aggregate) or len(table.sources) != 1:
        return False
    source = table.sources[0]
    return source.table != table.name and (table.grain is WHOLE or (source.window == (SAME.low, SAME.high) and timed))


def exact_time(view: View, table: Table, time: str | None, done: Mapping[str, Definition]) -> bool:
    """A row-wise view that keeps the time of its source's rows can be cut at any time, as its source can."""
    if not isinstance(view.how, Rowwise) or len(table.sources) != 1 or time is None:
        return False
    source = done.get(table.sources[0].table)
    if source is None or source.time is None or not (source.table.is_base or source.table.exact_time):
        return False
    expression = (view.time_expression or "").split(".")[-1].strip("`").lower()
    return expression == source.time.lower()


def aligned(view: View, table: Table, done: Mapping[str, Definition]) -> bool:
    """A view whose rows are made of source rows of one time each, or of one hour, day, … that lies in one partition."""
    if not view.separable or len(table.sources) != 1 or table.grain is WHOLE:
        return False
    source = done.get(table.sources[0].table)
    if source is None or source.time is None or not (source.table.is_base or source.table.exact_time):
        return False
    expression = (view.time_expression or "").replace("`", "").lower()
    cut = re.fullmatch(r"(?:date_trunc\('(\w+)', ?(\w+\.)?(\w+)\)|(?:\w+\.)?(\w+))", expression)
    if cut is None or (cut[3] or cut[4]) != source.time.lower():
        return False
    return cut[1] is None or cut[1] in _WITHIN.get(table.partition, ())


# The units whose every piece lies in one partition.
_WITHIN = {
    "minute": ("second", "minute"),
    "hour": ("second", "minute", "hour"),
    "day": ("second", "minute", "hour", "day"),
    "week": ("second", "minute", "hour", "day", "week"),
    "month": ("second", "minute", "hour", "day", "month"),
}
