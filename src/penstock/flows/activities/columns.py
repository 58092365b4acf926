"""Columns computed from others, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.flows.activities.base import (
    Activity,
    Shape,
    Sql,
    Wrong,
    column,
    names,
    of_group,
    of_row,
    once,
    pick,
    with_columns,
)
from penstock.model.schema import Column, Schema

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
