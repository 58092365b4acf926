"""Columns computed from others, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.flows.activities.base import (
    Activity,
    Shape,
    Sql,
    Wrong,
    column,
    condition,
    names,
    of_group,
    of_row,
    once,
    pick,
    with_columns,
)
from penstock.model.schema import Column, Schema, WrongColumns, parse_ddl

Expressions = tuple[tuple[str, str], ...]
"""(name, expression) pairs."""


@dataclass(frozen=True)
class Derive(Activity):
    """Columns added, or replaced, by expressions over the columns as they come in."""

    kind: ClassVar[str] = "derive"
    row_wise: ClassVar[bool] = True
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("expressions",)

    expressions: Expressions = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        new, reads = typed_all(self.expressions, rows, sql)
        return Shape(with_columns(rows, new), reads, frozenset(names(new)))


@dataclass(frozen=True)
class Reformat(Activity):
    """A text rewritten: what matches a regular expression becomes something else (`$1` is its first group)."""

    kind: ClassVar[str] = "reformat"
    row_wise: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    column: str = ""
    pattern: str = ""
    replacement: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        found = column(rows, self.column)
        if found.type not in ("string", "?"):
            raise Wrong(f"`{found.name}` is {found.type}; a pattern needs a string")
        return Shape(rows, frozenset({found.name}), frozenset({found.name}))


@dataclass(frozen=True)
class Select(Activity):
    """These columns, under these names, in this order."""

    kind: ClassVar[str] = "select"
    row_wise: ClassVar[bool] = True
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("expressions",)

    expressions: Expressions = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        new, reads = typed_all(self.expressions, rows, sql)
        return Shape(once(new), reads, frozenset(names(new)))


@dataclass(frozen=True)
class Drop(Activity):
    """All columns but these."""

    kind: ClassVar[str] = "drop"
    row_wise: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    columns: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        gone = set(names(pick(rows, self.columns)))
        kept = tuple(each for each in rows if each.name not in gone)
        if not kept:
            raise Wrong("drop leaves no column")
        return Shape(kept, frozenset())


def typed_all(
    expressions: Expressions, rows: Schema, sql: Sql, keys: Sequence[str] | None = None
) -> tuple[tuple[Column, ...], frozenset[str]]:
    """The columns that expressions make, and those that they read; all that is wrong with them is told at once. With `keys`
    they are those of groups."""
    if not expressions:
        raise Wrong('no column is given; write name="expression"')
    new: list[Column] = []
    reads: frozenset[str] = frozenset()
    wrong: list[str] = []
    for name, expression in expressions:
        try:
            found = of_row(expression, rows, sql) if keys is None else of_group(expression, keys, rows, sql)
        except Wrong as error:
            wrong += [f"{message} (in {name})" for message in error.messages]
            continue
        new.append(Column(name, found.type))
        reads |= found.reads
    if wrong:
        raise Wrong(*wrong)
    return tuple(new), reads


# A function of the user's, of which only the columns that it gives are known.


@dataclass(frozen=True)
class BlackBox(Activity):
    """A function from DataFrames to a DataFrame."""

    kind: ClassVar[str] = "function"
    # What it does with its rows cannot be known.
    blocking: ClassVar[bool] = True

    function: Callable[..., Any] = field(default=lambda rows: rows, repr=False)
    gives: str = ""
    # Stands for the code where flows are compared.
    fingerprint: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        try:
            columns = parse_ddl(self.gives)
        except WrongColumns as error:
            raise Wrong(f"gives={self.gives!r}: {error}") from None
        return Shape(columns, None, frozenset(column.name for column in columns))


# One input, several outputs. Each output is an activity of its own, so that planning sees the fan-out.


@dataclass(frozen=True)
class Route(Activity):
    """Rows for which a condition is true, and none of those before it: each row goes one way only. Without a condition
    the rows that no other output takes."""

    kind: ClassVar[str] = "route"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("condition", "before")

    condition: str | None = None
    before: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        if self.condition is None and not self.before:
            raise Wrong("route names no condition")
        tests = (*self.before, *([self.condition] if self.condition is not None else []))
        return Shape(rows, frozenset().union(*(condition(test, rows, sql) for test in tests)))


@dataclass(frozen=True)
class Split(Activity):
    """Some columns of every row."""

    kind: ClassVar[str] = "split"
    row_wise: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    columns: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        return Shape(pick(rows, self.columns), frozenset())
