"""Activities that need more than the rows of one update.

Slowly changing dimensions follow from all rows that ever came. Surrogate keys and differences look at a target of their own
flow as it was published last. One job at a time makes a target, and all targets of a flow are published in one transaction: so
a key is given once, and a retry gives the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.flows.activities.base import Activity, Shape, Sql, Wrong, column, names, once, pick
from penstock.flows.activities.combine import CURRENT, VALID_FROM, VALID_TO
from penstock.model.schema import Column, Schema

CHANGE = "change"


class OfLoaded(Activity):
    """Looks at what the flow's target `table`, which each of them names last, holds so far."""

    blocking: ClassVar[bool] = True
    of_all: ClassVar[bool] = True
    table: str

    @property
    def loaded(self) -> str | None:
        return self.table


@dataclass(frozen=True)
class NewKeys(OfLoaded):
    """Numbers for natural keys that have none yet, following the largest that was given, in the order of the keys."""

    kind: ClassVar[str] = "new_keys"

    natural: tuple[str, ...] = ()
    key: str = ""
    table: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        if not self.natural:
            raise Wrong("surrogate_key names no natural key; write of=[…]")
        natural = pick(rows, self.natural)
        return Shape(once((*natural, Column(self.key, "bigint"))), frozenset(names(natural)), frozenset({self.key}))


@dataclass(frozen=True)
class AttachKey(OfLoaded):
    """Rows with the number of their natural key, from those that were loaded and the new ones."""

    kind: ClassVar[str] = "attach_key"
    row_wise: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True

    natural: tuple[str, ...] = ()
    key: str = ""
    table: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        rows, _ = inputs
        return Shape(
            once((*rows, Column(self.key, "bigint"))), frozenset((*self.natural, self.key)), frozenset({self.key})
        )


@dataclass(frozen=True)
class Overwrite(Activity):
    """A slowly changing dimension of type 1: of each key the newest row that ever came. Which is the newest says the column
    `at`; where that is equal, or not given, the file that was delivered last; in the end the greatest row."""

    kind: ClassVar[str] = "scd1"
    blocking: ClassVar[bool] = True
    of_all: ClassVar[bool] = True

    key: tuple[str, ...] = ()
    at: str | None = None

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        _keys(rows, self.key, self.kind)
        if self.at is not None:
            column(rows, self.at)
        return Shape(rows, frozenset(names(rows)))


@dataclass(frozen=True)
class Versions(Activity):
    """A slowly changing dimension of type 2: each version of a key with the time from which and up to which it was valid
    (half-open), and whether it still is. `at` is the column that says since when a row of the input is so. Of rows with equal
    key and time the one that was delivered last counts; in the end the greatest. It follows from all rows that ever came, in
    whatever order."""

    kind: ClassVar[str] = "scd2"
    blocking: ClassVar[bool] = True
    of_all: ClassVar[bool] = True

    key: tuple[str, ...] = ()
    at: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        _keys(rows, self.key, self.kind)
        since = column(rows, self.at)
        if since.name in names(pick(rows, self.key)):
            raise Wrong(f"`{since.name}` cannot be part of the key and say since when a version is valid")
        kept = tuple(each for each in rows if each.name != since.name)
        validity = (Column(VALID_FROM, since.type), Column(VALID_TO, since.type), Column(CURRENT, "boolean"))
        return Shape(once((*kept, *validity)), frozenset(names(rows)), frozenset(names(validity)))


@dataclass(frozen=True)
class Difference(OfLoaded):
    """Rows that differ from what is loaded, with what happened to them in `change`: insert, update or delete (then with
    the values that were loaded)."""

    kind: ClassVar[str] = "difference"

    key: tuple[str, ...] = ()
    table: str = ""

    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        (rows,) = inputs
        _keys(rows, self.key, self.kind)
        return Shape(once((*rows, Column(CHANGE, "string"))), frozenset(names(rows)), frozenset({CHANGE}))


def _keys(rows: Schema, key: tuple[str, ...], kind: str) -> None:
    if not key:
        raise Wrong(f"{kind} names no key; write key=[…]")
    pick(rows, key)
