"""Rows of several inputs brought together: join, look-up, union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.flows.activities.base import (
    UNKNOWN,
    Activity,
    Check,
    Shape,
    Sql,
    Wrong,
    check_bad,
    column,
    condition,
    direction,
    names,
    once,
    pick,
    same_type,
)
from penstock.model.schema import Column, Schema

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
HOW: tuple[JoinKind, ...] = ("inner", "left", "right", "full", "semi", "anti")
# What it means that a reference has several rows for a key, which differ.
Ambiguous = Literal["fail", "bad"]
AMBIGUOUS: tuple[Ambiguous, ...] = ("fail", "bad")
# Columns of a dimension that keeps every version.
VALID_FROM, VALID_TO, CURRENT = "valid_from", "valid_to", "is_current"
VALIDITY = (VALID_FROM, VALID_TO, CURRENT)


@dataclass(frozen=True)
class Join(Activity):
    """Pairs of rows with equal `keys`, which stand once in the result; or for which a `condition` is true."""

    kind: ClassVar[str] = "join"
    blocking: ClassVar[bool] = True

    expressed: ClassVar[tuple[str, ...]] = ("condition",)

    keys: tuple[str, ...] = ()
    condition: str | None = None
    how: JoinKind = "inner"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        left, right = inputs
        if self.how not in HOW:
            raise Wrong(f"how={self.how!r} is no kind of join; expected {', '.join(HOW)}")
        if bool(self.keys) == (self.condition is not None):
            raise Wrong("name the columns that must be equal (on=[…]), or a condition, one of the two")
        reads = frozenset(self.keys)
        if self.keys:
            _comparable(left, right, self.keys)
            right = tuple(each for each in right if each.name.lower() not in {key.lower() for key in self.keys})
        both = left if self.how in ("semi", "anti") else once((*left, *right))
        if self.condition is not None:
            reads = condition(self.condition, once((*left, *right)), sql)
        return Shape(both, reads)


@dataclass(frozen=True)
class Lookup(Check):
    """Columns of the one row of a reference that has the same keys; with `as_of` of the version that held at the time of a
    row. A row without one is bad. Where the reference has several that differ, the first in an order counts; without an order
    that is an error, or the row is bad."""

    kind: ClassVar[str] = "look_up"

    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    as_of: str | None = None
    ambiguous: Ambiguous = "fail"

    @property
    def reason(self) -> str:
        several = "no" if self.ambiguous == "fail" else "none, or several,"
        at = f" that held at {self.as_of}" if self.as_of is not None else ""
        return f"{several} {', '.join(self.keys)} in the reference{at}"

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        rows, reference = inputs
        # With bad="default" what is not found is null: `derive` may fill it.
        check_bad(self.bad)
        if not self.keys:
            raise Wrong("look_up names no key; write on=[…]")
        _comparable(rows, reference, self.keys)
        keys = {key.lower() for key in self.keys}
        found = (
            pick(reference, self.columns) if self.columns else tuple(c for c in reference if c.name.lower() not in keys)
        )
        ordered = pick(reference, (direction(each)[0] for each in self.order))
        if self.ambiguous not in AMBIGUOUS:
            raise Wrong(f"ambiguous={self.ambiguous!r} is not known; expected {' or '.join(map(repr, AMBIGUOUS))}")
        if self.ambiguous == "bad" and self.order:
            raise Wrong('with order=… it is known which row counts; leave out ambiguous="bad", or the order')
        held: tuple[Column, ...] = ()
        if self.as_of is not None:
            held = self._validity(rows, reference)
            found = found if self.columns else tuple(c for c in found if c.name.lower() not in VALIDITY)
            if not found:
                raise Wrong("look_up gives no column; name some with columns=[…]")
        reads = frozenset((*self.keys, *names(found), *names(ordered), *names(held)))
        return Shape(once((*rows, *found)), reads, frozenset())

    def _validity(self, rows: Schema, reference: Schema) -> tuple[Column, ...]:
        """The columns that say when a version held, and the time of a row."""
        at = column(rows, self.as_of or "")
        known = {each.name.lower() for each in reference}
        for name in (VALID_FROM, VALID_TO):
            if name not in known:
                raise Wrong(
                    f"as_of needs a reference with {VALID_FROM} and {VALID_TO}, as scd2 makes them; `{name}` is missing"
                )
            if not same_type(at, column(reference, name)):
                raise Wrong(
                    f"`{at.name}` is {at.type} and `{name}` {column(reference, name).type}; cast one with derive"
                )
        if self.order:
            raise Wrong("with as_of=… it is known which version counts; leave out order")
        return at, column(reference, VALID_FROM), column(reference, VALID_TO)


@dataclass(frozen=True)
class Union(Activity):
    """The rows of all inputs; columns go by their names. With `by`, sorted by these columns."""

    kind: ClassVar[str] = "union"
    by_row: ClassVar[bool] = True

    by: tuple[str, ...] = ()

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        first, *others = inputs
        wrong: list[str] = []
        for other in others:
            known = {each.name.lower(): each for each in other}
            for each in first:
                found = known.pop(each.name.lower(), None)
                if found is None:
                    wrong.append(f"column `{each.name}` is missing in one of the inputs")
                elif not same_type(each, found):
                    wrong.append(f"column `{each.name}` is {each.type} in one input and {found.type} in another")
            wrong += [f"column `{name}` is in one of the inputs only" for name in known]
        if wrong:
            raise Wrong(*wrong)
        pick(first, self.by)
        types = [Column(each.name, _known(each, others)) for each in first]
        return Shape(tuple(types), frozenset(self.by))


@dataclass(frozen=True)
class SortedUnion(Union):
    kind: ClassVar[str] = "sorted_union"
    blocking: ClassVar[bool] = True
    by_row: ClassVar[bool] = False


def _known(each: Column, others: Sequence[Schema]) -> str:
    same = (other.type for columns in others for other in columns if other.name.lower() == each.name.lower())
    return next((type_ for type_ in (each.type, *same) if type_ != UNKNOWN), UNKNOWN)


def _comparable(left: Schema, right: Schema, keys: Sequence[str]) -> None:
    wrong = [
        f"`{ours.name}` is {ours.type} on the left and {theirs.type} on the right; cast one with derive"
        for ours, theirs in zip(pick(left, keys), pick(right, keys), strict=True)
        if not same_type(ours, theirs)
    ]
    if wrong:
        raise Wrong(*wrong)
