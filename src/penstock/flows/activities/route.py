"""One input, several outputs. Each output is an activity of its own, so that planning sees the fan-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.flows.activities.base import Activity, Shape, Sql, Wrong, condition, pick
from penstock.model.schema import Schema


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
