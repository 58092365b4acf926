"""Views in SQL: what they read, what they give, and how they can follow their source. No Spark is needed.

view = analyse(text, {"flows": schema}, time="hour", file="views/traffic.sql")
view.sources      # ('flows',)
view.how.why      # 'incremental: GROUP BY with sum, count'

The parser is loaded when a text is analysed, and not for what was understood before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.declare.sql.facts import (
    AggregateWay,
    ColumnTerm,
    Full,
    How,
    NamedColumn,
    NamedColumns,
    Origin,
    Rowwise,
    Separable,
    SqlFlaw,
    SqlProblem,
)

if TYPE_CHECKING:
    from penstock.declare.sql.model import ParsedQuery
    from penstock.declare.sql.parse import Parsed

__all__ = [
    "AggregateWay",
    "Full",
    "How",
    "NamedColumn",
    "NamedColumns",
    "OutputColumn",
    "Rowwise",
    "Separable",
    "SqlFlaw",
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
class Given:
    """What was analysed."""

    sql: str
    schemas: Mapping[str, NamedColumns]
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
    ranges: tuple[tuple[ColumnTerm, ColumnTerm], ...]
    """Pairs of columns that it compares by order."""
    given: Given = field(repr=False, compare=False)

    @cached_property
    def parsed(self) -> Parsed:
        from penstock.declare.sql.parse import parse

        return parse(self.given.sql, file=self.given.file, line=self.given.line)

    @cached_property
    def query(self) -> ParsedQuery:
        from penstock.declare.sql.columns import resolve

        return resolve(self.parsed, self.given.schemas)[0]

    def __getstate__(self) -> dict[str, object]:
        """Without what follows from the text."""
        return {name: value for name, value in self.__dict__.items() if name not in ("parsed", "query")}

    @property
    def lineage(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """For each output column the (table, column) pairs it comes from."""
        return {column.name: column.origins for column in self.columns or ()}


def analyse(
    sql: str, schemas: Mapping[str, NamedColumns], *, time: str | None, file: str, line: int = 1, strict: bool = False
) -> View:
    """Everything that the text of a view says. `line` is the line of the file at which the text begins; `strict`: what is
    certain to fail in Spark is a problem, too.

    A schema may be that of a table or the `columns` of a view, where some types may be unknown.
    Raises `SqlProblem` with all that is wrong. Columns of tables without a schema are not checked."""
    from penstock.declare.sql import analysis as sql_analysis

    return sql_analysis.analyse(sql, schemas, time=time, file=file, line=line, strict=strict)


def separable(view: View, time: str) -> Separable:
    """Whether one query over several time partitions of the source gives the rows of one query for each."""
    from penstock.declare.sql.separable import prove_separable

    return prove_separable(view.parsed, view.query, view.sources, time)


def sources(sql: str, *, file: str = "<sql>", line: int = 1) -> tuple[str, ...]:
    """The tables that a query reads."""
    from penstock.declare.sql import parse as sql_parse

    return sql_parse.sources(sql, file=file, line=line)


def source_lines(sql: str, *, file: str = "<sql>", line: int = 1) -> dict[str, int]:
    """The tables that a query reads, each with the line of the file where it is first named."""
    from penstock.declare.sql import parse as sql_parse

    return sql_parse.source_lines(sql, file=file, line=line)
