"""Flows in Python: a function that says what is done to the rows of its sources, step by step, and where they go.

    import penstock as ps

    @ps.flow(partition="day", time="day")
    def sales(orders, customers):
        good = orders.not_null("customer", bad="quarantine").derive(total="quantity * price")
        sold = good.join(customers, on="customer").into("sales")
        sold.aggregate(by=["day", "country"], revenue="sum(total)").into("sales_by_country")

The parameters name the tables that it reads. The function is called once, when the project is read, with `Rows` that
only note what is wanted of them: no data and no Spark.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.declare.api import Author, Function, TableDeclaration, author_of_call, function_fingerprint
from penstock.declare.config import FlowsConfig, TableConfig
from penstock.declare.problems import Location
from penstock.declare.validate import validate
from penstock.errors import PenstockError
from penstock.flows.activities import (
    Activity,
    Aggregate,
    AttachKey,
    Bad,
    BlackBox,
    Deduplicate,
    Derive,
    Difference,
    Drop,
    Filter,
    HasType,
    InDomain,
    Join,
    Lookup,
    Matches,
    NewKeys,
    NotNull,
    Overwrite,
    Pivot,
    Reformat,
    Route,
    Select,
    Sort,
    SortedUnion,
    Split,
    Union,
    Unpivot,
    Versions,
)
from penstock.flows.activities.checks import Literal as Value
from penstock.flows.activities.combine import Ambiguous, JoinKind
from penstock.flows.description import Flow, FlowSource, FlowStep, Target
from penstock.flows.frontier import RunPreferences

Names = str | Sequence[str]
# Settings that say how a table is cut into partitions, and what follows from that.
_OF_PARTITIONS = {"partition", "time", "sources", "update", "chop"}


class FlowProblem(PenstockError):
    """A flow that cannot be written so."""


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(eq=False)
class _Node:
    does: FlowSource | Target | Activity
    inputs: tuple[_Node, ...]
    line: int
    called: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class _Sketch:
    """A flow that is being written."""

    file: str
    nodes: list[_Node] = field(default_factory=list)

    def add(self, does: FlowSource | Target | Activity, inputs: Iterable[_Node], called: str | None = None) -> _Node:
        node = _Node(does, tuple(inputs), self._line(), called)
        self.nodes.append(node)
        return node

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        return frame.f_lineno if frame.f_code.co_filename == self.file else 0


class Rows:
    """Rows at some place of a flow. Every method gives the rows behind one more activity."""

    def __init__(self, sketch: _Sketch, node: _Node) -> None:
        self._sketch = sketch
        self._node = node

    def _then(self, activity: Activity, *others: Rows, name: str | None = None) -> Rows:
        for other in others:
            if not isinstance(other, Rows) or other._sketch is not self._sketch:
                raise FlowProblem(f"{activity.kind}: expected rows of the same flow, found {type(other).__name__}")
        inputs = (self._node, *(other._node for other in others))
        return Rows(self._sketch, self._sketch.add(activity, inputs, name))

    # Checks

    def not_null(self, *columns: str, bad: Bad = "reject", default: str | None = None, name: str | None = None) -> Rows:
        """Rows without a null in these columns."""
        return self._then(NotNull(bad, columns, default), name=name)

    def filter(self, condition: str, *, bad: Bad = "reject", name: str | None = None) -> Rows:
        """Rows for which a condition is true."""
        return self._then(Filter(bad, condition), name=name)

    def matches(
        self, column: str, pattern: str, *, bad: Bad = "reject", default: str | None = None, name: str | None = None
    ) -> Rows:
        """Rows whose text matches a regular expression."""
        return self._then(Matches(bad, column, pattern, default), name=name)

    def has_type(
        self, column: str, type: str, *, bad: Bad = "reject", default: str | None = None, name: str | None = None
    ) -> Rows:
        """Rows whose text can be read as a value of a type; the column then has it."""
        return self._then(HasType(bad, column, type, default), name=name)

    def in_domain(
        self,
        column: str,
        values: Sequence[Value] = (),
        *,
        low: Value | None = None,
        high: Value | None = None,
        bad: Bad = "reject",
        default: str | None = None,
        name: str | None = None,
    ) -> Rows:
        """Rows whose value is one of some, or lies between bounds."""
        return self._then(InDomain(bad, column, tuple(values), low, high, default), name=name)

    # Columns

    def derive(self, name: str | None = None, /, **expressions: str) -> Rows:
        """Columns added or replaced: total_cost="quantity * price". The first argument may name the activity."""
        return self._then(Derive(tuple(expressions.items())), name=name)

    def reformat(self, column: str, pattern: str, replacement: str, *, name: str | None = None) -> Rows:
        """A text with what matches a regular expression replaced."""
        return self._then(Reformat(column, pattern, replacement), name=name)

    def select(self, *columns: str, **renamed: str) -> Rows:
        """These columns; or expressions under new names."""
        plain = tuple((column, f"`{column}`") for column in columns)
        return self._then(Select((*plain, *renamed.items())))

    def drop(self, *columns: str) -> Rows:
        """All columns but these."""
        return self._then(Drop(columns))

    # Several inputs

    def join(
        self,
        other: Rows,
        on: Names = (),
        *,
        condition: str | None = None,
        how: JoinKind = "inner",
        name: str | None = None,
    ) -> Rows:
        """Pairs of rows that are equal in some columns, or for which a condition is true."""
        return self._then(Join(_names(on), condition, how), other, name=name)

    def look_up(
        self,
        reference: Rows,
        on: Names,
        columns: Names = (),
        *,
        order: Names = (),
        as_of: str | None = None,
        ambiguous: Ambiguous = "fail",
        bad: Bad = "reject",
        name: str | None = None,
    ) -> Rows:
        """Columns of the row of a reference with the same keys; without one the row is bad. With `as_of`, a column with a time,
        of the version that held then. Of several the first in an order; without an order, several that differ are an error, or
        (`ambiguous="bad"`) as if there were none."""
        does = Lookup(bad, _names(on), _names(columns), _names(order), as_of, ambiguous)
        return self._then(does, reference, name=name)

    def union(self, *others: Rows, name: str | None = None) -> Rows:
        """The rows of all."""
        return self._then(Union(), *others, name=name)

    def sorted_union(self, *others: Rows, by: Names, name: str | None = None) -> Rows:
        """The rows of all in one order."""
        return self._then(SortedUnion(_names(by)), *others, name=name)

    # Groups and orders

    def aggregate(self, by: Names = (), *, name: str | None = None, **expressions: str) -> Rows:
        """One row for each group: revenue="sum(total)"."""
        return self._then(Aggregate(_names(by), tuple(expressions.items())), name=name)

    def sort(self, *by: str, name: str | None = None) -> Rows:
        """The same rows in the order of these columns (`"price desc"`)."""
        return self._then(Sort(by), name=name)

    def deduplicate(self, key: Names, order: Names = (), *, bad: Bad = "reject", name: str | None = None) -> Rows:
        """Of rows with equal key the first in an order."""
        return self._then(Deduplicate(bad, _names(key), _names(order)), name=name)

    def pivot(
        self, by: Names, column: str, values: Sequence[str | int], aggregate: str, *, name: str | None = None
    ) -> Rows:
        """Values of a column become columns."""
        return self._then(Pivot(_names(by), column, tuple(values), aggregate), name=name)

    def unpivot(self, *columns: str, name: str = "name", value: str = "value") -> Rows:
        """Columns become rows."""
        return self._then(Unpivot(columns, name, value))

    # Several outputs

    def route(self, *conditions: str) -> tuple[Rows, ...]:
        """One output for each condition, and one for the rows that are left; a row goes to the first that takes it."""
        if not conditions:
            raise FlowProblem('route needs conditions; write rows.route("price > 100", "price > 10")')
        ways = [Route(test, conditions[:number]) for number, test in enumerate(conditions)]
        return tuple(self._then(way) for way in (*ways, Route(None, conditions)))

    def split(self, *columns: Sequence[str]) -> tuple[Rows, ...]:
        """One output for each list of columns, each with all rows."""
        return tuple(self._then(Split(tuple(some))) for some in columns)

    # What is loaded

    def surrogate_key(self, key: str, *, of: Names, keys: str) -> Rows:
        """A number for each natural key, the same for ever. The table `keys` keeps them."""
        natural = _names(of)
        new = self._then(NewKeys(natural, key, keys)).into(keys, append=True)
        return self._then(AttachKey(natural, key, keys), new)

    def scd1(self, into: str, *, key: Names, at: str | None = None, **settings: Any) -> Rows:
        """A dimension in which the newest values of a key overwrite the older ones: the newest by the column `at`, else those
        that were delivered last."""
        return self._then(Overwrite(_names(key), at)).into(into, **settings)

    def scd2(self, into: str, *, key: Names, at: str, bad: Bad = "reject", **settings: Any) -> Rows:
        """A dimension that keeps every version, with valid_from, valid_to and is_current. A row without a time is bad."""
        placed = self.not_null(at, bad=bad, name=f"{into}: {at} is known")
        return placed._then(Versions(_names(key), at)).into(into, **settings)

    def difference(self, loaded: str, *, key: Names, name: str | None = None) -> Rows:
        """Rows that differ from what is loaded in a target of this flow; `change` says how."""
        return self._then(Difference(_names(key), loaded), name=name)

    # Anything else

    def apply(self, function: Function, *others: Rows, gives: str, name: str | None = None) -> Rows:
        """A function from DataFrames to a DataFrame, with the columns that it gives, as DDL."""
        code = function_fingerprint(function, None)
        return self._then(BlackBox(function, gives, code), *others, name=name or function.__name__)

    def into(self, table: str, *, append: bool = False, **settings: Any) -> Rows:
        """Into a table of the warehouse; the settings are those of any table. Gives the rows of that table."""
        node = self._sketch.add(Target(table, append), (self._node,))
        node.settings = settings
        return Rows(self._sketch, node)


@dataclass(frozen=True)
class FlowDeclaration:
    """A flow and the tables that it makes. Updates of the first one make the others too."""

    flow: Flow
    tables: tuple[TableDeclaration, ...]

    @property
    def name(self) -> str:
        return self.flow.name


def flow(function: Function | None = None, /, **settings: Any) -> Any:
    """A flow: the decorated function says what is done to the rows of the tables that its parameters name."""
    author = author_of_call()
    if function is not None:
        return _declared(function, settings, author)
    return lambda found: _declared(found, settings, author)


def _declared(function: Function, settings: dict[str, Any], author: Author) -> FlowDeclaration:
    if not inspect.isfunction(function):
        raise TypeError(f"@flow is written above a function, not above {type(function).__name__}")
    name = settings.pop("name", None) or function.__name__
    running = _running(name, settings)
    sketch = _Sketch(function.__code__.co_filename)
    begins = function.__code__.co_firstlineno
    sources = [_Node(FlowSource(parameter), (), begins) for parameter in inspect.signature(function).parameters]
    sketch.nodes += sources
    function(*(Rows(sketch, node) for node in sources))
    targets = [node for node in sketch.nodes if isinstance(node.does, Target)]
    if not targets:
        raise FlowProblem(f'flow `{name}` has no target; write .into("table") behind the rows that are to be kept')
    described = Flow(name, tuple(_steps(sketch, name)), running)
    description = inspect.getdoc(function) or ""
    tables = []
    for node in targets:
        assert isinstance(node.does, Target)
        shared = sorted({"partition", "sources", "feed", "name"} & node.settings.keys())
        if shared:
            raise FlowProblem(
                f"into({node.does.table!r}, {shared[0]}=…): all targets of a flow have this in common; write it in @flow"
            )
        common = settings
        if isinstance(node.inputs[0].does, NewKeys):
            # Keys are those of all rows, whatever partition these are in.
            common = {name: value for name, value in settings.items() if name not in _OF_PARTITIONS}
        checked = validate(TableConfig, {**common, **node.settings})
        table = TableDeclaration(
            node.does.table,
            checked.value,
            Location(author.where.file, node.line or author.where.line),
            description=description,
            flaws=checked.flaws,
            broken=checked.broken,
            flow=described,
        )
        tables.append(author.keep(table))
    return FlowDeclaration(described, tuple(tables))


def _running(flow: str, settings: dict[str, Any]) -> RunPreferences:
    """How a flow says that it is to run: those settings are its own, not those of its tables."""
    given = {key: settings.pop(key) for key in FlowsConfig.model_fields if key in settings}
    checked = validate(FlowsConfig, given)
    if checked.flaws:
        raise FlowProblem("; ".join(f"flow `{flow}`, {'.'.join(f.keys)}: {f.message}" for f in checked.flaws))
    found = checked.value
    return RunPreferences(
        found.objective if "objective" in given else None,
        found.memory,
        found.slots,
        found.order if "order" in given else None,
    )


def _steps(sketch: _Sketch, flow: str) -> Iterator[FlowStep]:
    """The nodes, each under a name of its own: recordsets have those of their tables, activities get a number where
    several would have the same."""
    taken: dict[str, int] = {}
    names: dict[int, str] = {}
    for node in sketch.nodes:
        if isinstance(node.does, FlowSource | Target):
            if node.does.table in taken:
                raise FlowProblem(
                    f"flow `{flow}`: table `{node.does.table}` stands in it twice; a target has one provider (put a union before it), and cannot be a source too"
                )
            taken[node.does.table] = 1
            names[id(node)] = node.does.table
    used = {id(provider) for node in sketch.nodes for provider in node.inputs}
    for node in sketch.nodes:
        if not isinstance(node.does, Target) and id(node) not in used:
            what = (
                f"source `{node.does.table}` is"
                if isinstance(node.does, FlowSource)
                else f"the rows of {node.does.kind} (line {node.line}) are"
            )
            raise FlowProblem(f'flow `{flow}`: {what} not used; write .into("table") behind them, or leave them out')
        if id(node) not in names:
            assert isinstance(node.does, Activity)
            wanted = node.called or node.does.kind
            taken[wanted] = number = taken.get(wanted, 0) + 1
            names[id(node)] = wanted if number == 1 else f"{wanted} {number}"
        yield FlowStep(names[id(node)], node.does, tuple(names[id(each)] for each in node.inputs), node.line)
