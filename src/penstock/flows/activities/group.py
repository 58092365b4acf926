"""Activities that need all rows first: aggregate, sort, duplicates, pivot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.flows.activities.base import (
    UNKNOWN,
    Activity,
    Check,
    Shape,
    Sql,
    Wrong,
    check_bad,
    column,
    direction,
    names,
    of_group,
    once,
    pick,
)
from penstock.flows.activities.columns import Expressions, typed_all
from penstock.model.schema import Column, Schema


@dataclass(frozen=True)
class Aggregate(Activity):
    """One row for each group of rows that are equal in `by`, with aggregates such as `sum(total)`."""

    kind: ClassVar[str] = "aggregate"
    blocking: ClassVar[bool] = True

    expressed: ClassVar[tuple[str, ...]] = ("expressions",)

    by: tuple[str, ...] = ()
    expressions: Expressions = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        keys = pick(rows, self.by)
        new, reads = typed_all(self.expressions, rows, sql, self.by)
        return Shape(once((*keys, *new)), reads | frozenset(names(keys)), frozenset(names(new)))


# The column that tells of which set of keys a group is.
SET = "_penstock_set"


@dataclass(frozen=True)
class Gather(Activity):
    """The groups of several aggregates with the same measures, one after the other. Nobody declares it: see `gathering`."""

    kind: ClassVar[str] = "gather"
    blocking: ClassVar[bool] = True

    expressed: ClassVar[tuple[str, ...]] = ("expressions",)

    sets: tuple[tuple[str, ...], ...] = ()
    expressions: Expressions = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple({key.lower(): key for keys in self.sets for key in keys}.values())

    def number(self, by: Sequence[str]) -> int:
        """How Spark numbers a set of keys: a bit for each key that is not in it, the first key highest."""
        own = {key.lower() for key in by}
        number = 0
        for key in self.keys:
            number = number * 2 + (key.lower() not in own)
        return number

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        keys = pick(rows, self.keys)
        new, reads = typed_all(self.expressions, rows, sql, self.keys)
        columns = (*keys, *new, Column(SET, "int"))
        return Shape(columns, reads | frozenset(names(keys)), frozenset((*names(new), SET)))


@dataclass(frozen=True)
class GroupPart(Activity):
    """The groups of one aggregate among those of several."""

    kind: ClassVar[str] = "part"

    number: int = 0
    by: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        own = pick(rows, (*self.by, *self.measures))
        return Shape(own, frozenset((*names(own), SET)))


@dataclass(frozen=True)
class Sort(Activity):
    """The same rows in the order of these columns (`price desc`)."""

    kind: ClassVar[str] = "sort"
    blocking: ClassVar[bool] = True
    row_wise: ClassVar[bool] = True

    by: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        if not self.by:
            raise Wrong("sort names no column")
        return Shape(rows, frozenset(names(pick(rows, (direction(each)[0] for each in self.by)))))


@dataclass(frozen=True)
class Deduplicate(Check):
    """Of rows that are equal in `key` one: the first in the given order. The others are bad."""

    kind: ClassVar[str] = "deduplicate"
    blocking: ClassVar[bool] = True

    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return f"another row has the same {', '.join(self.key)}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        check_bad(self.bad, ("reject", "quarantine", "fail"))
        if not self.key:
            raise Wrong("deduplicate names no key")
        pick(rows, self.key)
        pick(rows, (direction(each)[0] for each in self.order))
        # Which one stays must not depend on how the rows happen to lie, nor on who looks at them: all columns decide.
        return Shape(rows, frozenset(names(rows)))


@dataclass(frozen=True)
class Pivot(Activity):
    """Values of a column become columns: for each group one aggregate per value."""

    kind: ClassVar[str] = "pivot"
    blocking: ClassVar[bool] = True

    expressed: ClassVar[tuple[str, ...]] = ("aggregate",)

    by: tuple[str, ...] = ()
    column: str = ""
    values: tuple[str | int, ...] = ()
    aggregate: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        keys = pick(rows, self.by)
        pivoted = column(rows, self.column)
        if not self.values:
            raise Wrong("say which values become columns, values=[…]: columns must be known before rows are")
        found = of_group(self.aggregate, self.by, rows, sql)
        new = tuple(Column(str(value), found.type) for value in self.values)
        reads = found.reads | frozenset(names(keys)) | {pivoted.name}
        return Shape(once((*keys, *new)), reads, frozenset(names(new)))


@dataclass(frozen=True)
class Unpivot(Activity):
    """Columns become rows: one for each of them, with its name and its value. Rows without a value are left out."""

    kind: ClassVar[str] = "unpivot"
    by_row: ClassVar[bool] = True

    columns: tuple[str, ...] = ()
    name: str = "name"
    value: str = "value"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        turned = pick(rows, self.columns)
        if not turned:
            raise Wrong("unpivot names no column")
        kinds = {each.type for each in turned} - {UNKNOWN}
        if len(kinds) > 1:
            raise Wrong(f"its columns must be of one type, found {', '.join(sorted(kinds))}; cast with derive")
        kept = tuple(each for each in rows if each not in turned)
        new = (Column(self.name, "string"), Column(self.value, next(iter(kinds), UNKNOWN)))
        return Shape(once((*kept, *new)), frozenset(names(turned)), frozenset(names(new)))
