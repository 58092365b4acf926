"""Tables as they will run: what was declared, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.project import Declarations
from penstock.declare.source_partitions import Placing
from penstock.declare.sql.view import AggregateWay, NamedColumns, OutputColumn, Rowwise, View
from penstock.flows.activities import UNKNOWN
from penstock.flows.description import TypedFlow, parameters
from penstock.flows.following import Following
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
    columns: NamedColumns | None = None
    # A base table whose feed restates: each file takes the place of what was there.
    restated: bool = False
    # The flow that makes it, perhaps with other tables, and the columns at each of its steps.
    flow: TypedFlow | None = None
    following: Following | None = None
    # Whether it is proved that a partition reads all that its rows can come from, and that it then has no other rows.
    placed: bool = False
    in_place: bool = False

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
        if self.table.external:
            return "by others" + (", when they get a work order" if self.table.sources else ", of their own accord")
        if self.flow is not None:
            how = f"{self.following.words}, " if self.following is not None else ""
            return f"{how}by the flow {self.flow.flow.name}, together with all tables of it"
        if self.view is None:
            return "full: a Python function, whose partitions are computed again from all their rows"
        if isinstance(self.view.how, Rowwise | AggregateWay) and not self.table.foldable:
            return "full: its source is not read partition by partition"
        return self.view.how.why

    @property
    def state(self) -> Schema:
        """Columns in its files that nobody sees: what folding needs."""
        if self.following is not None:
            return self.following.state(self.name)
        how = self.view.how if self.view is not None else None
        return how.state if isinstance(how, AggregateWay) and self.table.foldable else ()

    @property
    def asks_for(self) -> str | None:
        """By which name it asks which partition is being made, if it does."""
        used = parameters(self.flow) if self.flow is not None else self.view.parameters if self.view is not None else ()
        return f":{used[0]}" if used else "`partition`" if self.wants_partition else None

    @property
    def reads_the_same(self) -> bool:
        """Whether it has partitions and gives the same rows whichever of them is made."""
        if self.table.grain is WHOLE or self.flow is not None or self.declaration.is_plain or self.table.external:
            return False
        return self.asks_for is None and all(source.window is None for source in self.table.sources)

    @property
    def at_once(self) -> bool:
        """Whether several partitions can be computed by one query: what it gives for all of them, cut to each of them, is
        what one query for each would give."""
        if self.table.grain is WHOLE or self.flow is not None:
            return False
        if self.reads_the_same:
            return True
        if any(source.table == self.name for source in self.table.sources):
            return False
        return self.view is not None and bool(self.view.separable) and self.placed


@dataclass(frozen=True)
class Definitions:
    declarations: Declarations
    feeds: Mapping[str, FeedDeclaration]
    feed_schemas: Mapping[str, Schema]
    definitions: Mapping[str, Definition]
    graph: Graph

    @property
    def zone(self) -> str:
        return self.declarations.config.zone

    @property
    def followings(self) -> dict[str, Following]:
        """How each flow follows what it reads."""
        each = self.definitions.values()
        return {d.flow.flow.name: d.following for d in each if d.flow is not None and d.following is not None}


def schema_of(view: View) -> Schema | None:
    """The columns as those who store rows need them: with all their types."""
    if view.columns is None or any(column.type is None for column in view.columns):
        return None
    return tuple(Column(column.name, column.type or "string") for column in view.columns)


def shape_of(columns: Schema | None) -> NamedColumns | None:
    """The columns at some place of a flow as those of a view."""
    if columns is None:
        return None
    return tuple(OutputColumn(each.name, None if each.type == UNKNOWN else each.type, ()) for each in columns)


def foldable_view(view: View, table: Table, placing: Placing | None) -> bool:
    """New rows can be added to what is there if each belongs to the partition of the source that it came with, and if no
    group has rows of two partitions."""
    if not isinstance(view.how, Rowwise | AggregateWay) or len(table.sources) != 1:
        return False
    source = table.sources[0]
    if source.table == table.name or table.grain is WHOLE:
        return source.table != table.name
    in_place = placing is not None and placing.stays and bool(view.separable)
    return in_place and source.window == (SAME.low, SAME.high)


def exact_time(view: View, table: Table, placing: Placing | None, done: Mapping[str, Definition]) -> bool:
    """A row-wise view that keeps the time of its source's rows can be cut at any time, as its source can."""
    if not isinstance(view.how, Rowwise) or len(table.sources) != 1 or placing is None or not placing.as_it_is:
        return False
    source = done.get(table.sources[0].table)
    return source is not None and source.time is not None and (source.table.is_origin or source.table.exact_time)


def aligned(view: View, table: Table, placing: Placing | None, done: Mapping[str, Definition]) -> bool:
    """A view whose rows are made of source rows of one time each, or of one hour, day, … that lies in one partition."""
    if not view.separable or len(table.sources) != 1 or table.grain is WHOLE or placing is None or not placing.stays:
        return False
    source = done.get(table.sources[0].table)
    return source is not None and source.name in placing.moved and (source.table.is_origin or source.table.exact_time)
