"""Checks of single values: not null, of a type, of a domain, of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.flows.activities.base import (
    Check,
    Shape,
    Sql,
    Wrong,
    check_bad,
    check_default,
    column,
    condition,
    names,
    pick,
    with_columns,
)
from penstock.model.schema import Column, Schema, WrongColumns, parse_ddl

Literal = str | int | float | bool


@dataclass(frozen=True)
class NotNull(Check):
    """Rows without a null in these columns."""

    kind: ClassVar[str] = "not_null"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("default",)

    columns: tuple[str, ...] = ()
    # An expression that takes the place of a null.
    default: str | None = None

    @property
    def reason(self) -> str:
        return f"null in {' or '.join(self.columns)}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        if not self.columns:
            raise Wrong("not_null names no column")
        checked = names(pick(rows, self.columns))
        extra = check_default(self.bad, self.default, rows, sql)
        return Shape(rows, frozenset(checked) | extra, frozenset(checked) if self.bad == "default" else frozenset())


@dataclass(frozen=True)
class Filter(Check):
    """Rows for which a condition is true."""

    kind: ClassVar[str] = "filter"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("condition",)

    condition: str = "true"

    @property
    def reason(self) -> str:
        return f"not: {self.condition}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        check_bad(self.bad, ("reject", "quarantine", "fail"))
        return Shape(rows, condition(self.condition, rows, sql))


@dataclass(frozen=True)
class Matches(Check):
    """Rows whose text matches a regular expression (of Java, anywhere in the text)."""

    kind: ClassVar[str] = "matches"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("default",)

    column: str = ""
    pattern: str = ""
    default: str | None = None

    @property
    def reason(self) -> str:
        return f"{self.column} does not match {self.pattern}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        found = column(rows, self.column)
        if found.type not in ("string", "?"):
            raise Wrong(f"`{found.name}` is {found.type}; a pattern needs a string")
        extra = check_default(self.bad, self.default, rows, sql)
        return Shape(rows, extra | {found.name}, frozenset({found.name}) if self.bad == "default" else frozenset())


@dataclass(frozen=True)
class HasType(Check):
    """Rows whose text can be read as a value of a type. The column is then of that type. A null stays null."""

    kind: ClassVar[str] = "has_type"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("default",)

    column: str = ""
    type: str = ""
    default: str | None = None

    @property
    def reason(self) -> str:
        return f"{self.column} is not of type {self.type}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        found = column(rows, self.column)
        try:
            (wanted,) = parse_ddl(f"`{found.name}` {self.type}")
        except WrongColumns as error:
            raise Wrong(str(error)) from None
        extra = check_default(self.bad, self.default, rows, sql)
        made = Column(found.name, wanted.type)
        return Shape(with_columns(rows, [made]), extra | {found.name}, frozenset({found.name}))


@dataclass(frozen=True)
class InDomain(Check):
    """Rows whose value is one of a set, or lies between two bounds (both included). A null is no value of any domain."""

    kind: ClassVar[str] = "in_domain"
    by_row: ClassVar[bool] = True
    expressed: ClassVar[tuple[str, ...]] = ("default",)

    column: str = ""
    values: tuple[Literal, ...] = ()
    low: Literal | None = None
    high: Literal | None = None
    default: str | None = None

    @property
    def reason(self) -> str:
        if self.values:
            return f"{self.column} is none of {', '.join(map(str, self.values))}"
        if self.high is None:
            return f"{self.column} is not at least {self.low}"
        if self.low is None:
            return f"{self.column} is not at most {self.high}"
        return f"{self.column} is not between {self.low} and {self.high}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        found = column(rows, self.column)
        if bool(self.values) == (self.low is not None or self.high is not None):
            raise Wrong("give either values=[…], or low= and high= (or one of them)")
        extra = check_default(self.bad, self.default, rows, sql)
        return Shape(rows, extra | {found.name}, frozenset({found.name}) if self.bad == "default" else frozenset())
