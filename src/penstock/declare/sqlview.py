"""Views in SQL: what they read, what they give, and how they can follow their source. No Spark is needed.

view = analyse(text, {"flows": schema}, time="hour", file="views/traffic.sql")
view.sources      # ('flows',)
view.how.why      # 'incremental: GROUP BY with sum, count'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.declare.sql_columns import resolve
from penstock.declare.sql_incremental import chances, classify
from penstock.declare.sql_model import NamedColumn, Query, Shape
from penstock.declare.sql_names import known_columns
from penstock.declare.sql_parse import (
    Parsed,
    PenstockSpark,
    Problem,
    SqlProblem,
    parse,
    source_lines,
    sources,
    tables_read,
)
from penstock.declare.sql_separable import Separable, prove_separable, trace
from penstock.declare.sql_strict import strict_problems
from penstock.declare.sql_text import fingerprint
from penstock.declare.sql_times import Column, Origin, time_origins, time_ranges
from penstock.declare.sql_ways import Aggregate, Full, How, Rowwise

__all__ = [
    "Aggregate",
    "Full",
    "How",
    "NamedColumn",
    "OutputColumn",
    "Problem",
    "Rowwise",
    "Separable",
    "Shape",
    "SqlProblem",
    "View",
    "analyse",
    "separable",
    "source_lines",
    "sources",
]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a view. The name is exact; the type is None where only Spark knows it."""

    name: str
    type: str | None
    origins: tuple[tuple[str, str], ...]
    """(table, column) pairs that it is computed from, sorted."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What was analysed."""

    sql: str
    schemas: Mapping[str, Shape]
    file: str
    line: int


@dataclass(frozen=True)
class View:
    sql: str
    """The query alone, as the user wrote it."""
    sources: tuple[str, ...]
    columns: tuple[OutputColumn, ...] | None
    """None if a * reads a table whose schema was not given."""
    parameters: tuple[str, ...]
    """Those of partition_start, partition_end that it uses."""
    fingerprint: str
    how: How
    time: str | None
    time_expression: str | None
    """The time column as an expression over the sources' columns, where that can be said."""
    separable: Separable
    origins: frozenset[Origin]
    """All that the time column may come from."""
    chance: str | None
    """What in it gives another answer each time, if anything does."""
    ranges: tuple[tuple[Column, Column], ...]
    """Pairs of columns that it compares by order."""
    given: _Given = field(repr=False, compare=False)

    @cached_property
    def parsed(self) -> Parsed:
        return parse(self.given.sql, file=self.given.file, line=self.given.line)

    @cached_property
    def query(self) -> Query:
        return resolve(self.parsed, self.given.schemas)[0]

    def __getstate__(self) -> dict[str, object]:
        """Without what follows from the text."""
        return {name: value for name, value in self.__dict__.items() if name not in ("parsed", "query")}

    @property
    def lineage(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """For each output column the (table, column) pairs it comes from."""
        return {column.name: column.origins for column in self.columns or ()}


def analyse(
    sql: str, schemas: Mapping[str, Shape], *, time: str | None, file: str, line: int = 1, strict: bool = False
) -> View:
    """Everything that the text of a view says. `line` is the line of the file at which the text begins; `strict`: what is
    certain to fail in Spark is a problem, too.

    A schema may be that of a table or the `columns` of a view, where some types may be unknown.
    Raises `SqlProblem` with all that is wrong. Columns of tables without a schema are not checked."""
    parsed = parse(sql, file=file, line=line)
    query, problems = resolve(parsed, schemas)
    tables = _spelled(tables_read(parsed.tree), schemas)
    if time is not None and query.outputs is not None:
        names = [o.name for o in query.outputs if o.name]
        if time.lower() not in (name.lower() for name in names):
            found = f"the time column `{time}` is not among the output columns"
            problems.append(parsed.text.problem(parsed.tokens[0].start, found, known_columns(time, names)))
    if strict and not problems:
        problems += strict_problems(parsed, query)
    if problems:
        raise SqlProblem(problems)
    columns = None
    if query.outputs is not None:
        columns = tuple(
            OutputColumn(o.name or "", None if o.type == "void" else o.type, tuple(sorted(o.origins)))
            for o in query.outputs
        )
    expression = trace(query, time) if time is not None else None
    view = View(
        sql=parsed.sql,
        sources=tables,
        columns=columns,
        parameters=parsed.parameters,
        fingerprint=fingerprint(parsed),
        how=classify(parsed, query, tables),
        time=time,
        time_expression=expression.sql(dialect=PenstockSpark) if expression is not None else None,
        separable=prove_separable(parsed, query, tables, time),
        origins=time_origins(query, time) if time is not None else frozenset(),
        chance=next(chances(parsed, query), None),
        ranges=tuple(time_ranges(query)),
        given=_Given(sql, dict(schemas), file, line),
    )
    view.__dict__.update(parsed=parsed, query=query)
    return view


def separable(view: View, time: str) -> Separable:
    """Whether one query over several time partitions of the source gives the rows of one query for each."""
    return prove_separable(view.parsed, view.query, view.sources, time)


def _spelled(tables: tuple[str, ...], schemas: Mapping[str, Shape]) -> tuple[str, ...]:
    """Names as declared: Spark does not tell `Flows` from `flows`."""
    declared = {name.lower(): name for name in schemas}
    return tuple(declared.get(name.lower(), name) for name in tables)
