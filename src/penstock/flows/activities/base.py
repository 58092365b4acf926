"""What every activity has: what it is told, what rows it gives for what rows, and what becomes of bad rows.

An activity is a description, nothing more: it says which columns it reads and gives, and finds what is wrong with that
before anything runs. The engine knows how Spark does it. Expressions and conditions are Spark SQL; whoever checks a flow
brings the knowledge of that language (`Sql`), so that this package needs none.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3, and the activities of ETL that they name in Sec. 1 and 7.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, Protocol, Self

from penstock.model.schema import Column, Schema

# The type of a column where only Spark knows it.
UNKNOWN = "?"

# What becomes of a bad row: dropped and counted; kept readable beside the targets; the flow fails and publishes nothing;
# or the bad value is replaced.
Bad = Literal["reject", "quarantine", "fail", "default"]
BAD: tuple[Bad, ...] = ("reject", "quarantine", "fail", "default")


class Wrong(ValueError):
    """What is wrong with an activity, each in one sentence."""

    def __init__(self, *messages: str) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression over some columns: its type, the columns that it looks at, and what else it needs than one row."""

    type: str
    reads: frozenset[str]
    # It aggregates; of these columns it uses the value of one row beside that.
    aggregates: bool = False
    bare: frozenset[str] = frozenset()
    # A window function looks at other rows.
    window: bool = False


@dataclass(frozen=True, slots=True)
class Groups:
    """How groups of new rows and stored ones become one."""

    keys: tuple[str, ...]
    # (column, expression) pairs without the keys: over rows, and over groups of both kinds.
    partial: tuple[tuple[str, str], ...]
    merged: tuple[tuple[str, str], ...]
    # Those of the columns that nobody sees.
    state: Schema


class Sql(Protocol):
    """Knows Spark SQL. Raises `Wrong` for what cannot be an expression over these columns."""

    def typed(self, expression: str, columns: Schema) -> Typed: ...

    def groups(self, by: Sequence[str], expressions: Sequence[tuple[str, str]], columns: Schema) -> Groups:
        """How groups of these can be merged. Raises `Wrong` with the reason why not."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an activity gives: its columns; those that it looks at (None: all); those that it computes rather than passes."""

    columns: Schema
    reads: frozenset[str] | None
    makes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Activity:
    kind: ClassVar[str]
    # Gives its first row only after it has all of its input.
    blocking: ClassVar[bool] = False
    # Every row that comes in goes out or is rejected, so that the counts must agree.
    row_wise: ClassVar[bool] = False
    # A row that comes out is made of one row that came in, and of nothing else: so files can go through it one by one.
    by_row: ClassVar[bool] = False
    # It needs all rows that ever came, not those of a partition.
    of_all: ClassVar[bool] = False
    # Its fields with expressions in Spark SQL.
    expressed: ClassVar[tuple[str, ...]] = ()
    # All inputs but the first are only looked at: their rows do not come in.
    looks_up: ClassVar[bool] = False

    @abstractmethod
    def shape(self, inputs: Sequence[Schema], sql: Sql) -> Shape:
        """What comes out for what comes in. Raises `Wrong`."""

    @property
    def loaded(self) -> str | None:
        """The target of the same flow whose present content it looks at, if it does."""
        return None

    def rewritten(self, change: Callable[[str], str]) -> Self:
        """The same with other expressions."""

        def changed(value: Any) -> Any:
            if isinstance(value, str):
                return change(value)
            # (name, expression) pairs, or expressions
            return tuple(
                (each[0], change(each[1])) if isinstance(each, tuple) else change(each) for each in value or ()
            )

        found = {name: getattr(self, name) for name in self.expressed}
        return replace(self, **{name: changed(value) for name, value in found.items() if value is not None})


@dataclass(frozen=True)
class Check(Activity):
    """An activity that tells good rows from bad ones."""

    row_wise: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True

    bad: Bad = "reject"

    @property
    @abstractmethod
    def reason(self) -> str:
        """Why a row is bad, for people."""


def names(columns: Schema) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def column(columns: Schema, name: str) -> Column:
    """A column by its name. Spark does not tell `Id` from `id`."""
    for each in columns:
        if each.name.lower() == name.lower():
            return each
    raise Wrong(missing(name, columns))


def pick(columns: Schema, wanted: Iterable[str]) -> tuple[Column, ...]:
    """Columns by their names; all that are missing are told at once."""
    known = {each.name.lower(): each for each in columns}
    wanted = tuple(wanted)
    wrong = [missing(name, columns) for name in wanted if name.lower() not in known]
    if wrong:
        raise Wrong(*wrong)
    return tuple(known[name.lower()] for name in wanted)


def missing(name: str, columns: Schema) -> str:
    near = get_close_matches(name.lower(), [each.name.lower() for each in columns], n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"unknown column `{name}`; {hint}there are: {', '.join(names(columns))}"


def condition(text: str, columns: Schema, sql: Sql) -> frozenset[str]:
    """The columns that a condition reads."""
    found = of_row(text, columns, sql)
    if found.window:
        raise Wrong(f"`{text}` looks at other rows, which a condition cannot; compute it before, with derive")
    if found.type not in ("boolean", UNKNOWN):
        raise Wrong(f"`{text}` is {found.type}; expected a condition, which is true or false")
    return found.reads


def same_type(left: Column, right: Column) -> bool:
    return UNKNOWN in (left.type, right.type) or left.type == right.type


def with_columns(columns: Schema, new: Iterable[Column]) -> Schema:
    """The columns with some replaced, where they stand, or added at the end."""
    coming = {each.name.lower(): each for each in new}
    kept = tuple(coming.pop(each.name.lower(), each) for each in columns)
    return (*kept, *coming.values())


def once(columns: Schema) -> Schema:
    """The columns, if no name stands twice."""
    seen: set[str] = set()
    twice = [each.name for each in columns if each.name.lower() in seen or seen.add(each.name.lower())]  # type: ignore[func-returns-value]
    if twice:
        raise Wrong(f"column `{twice[0]}` would stand twice; rename one with select, or leave it out with drop")
    return columns


def check_bad(bad: Bad, allowed: Sequence[Bad] = BAD) -> None:
    if bad not in allowed:
        expected = ", ".join(repr(each) for each in allowed)
        raise Wrong(f"bad={bad!r} is not a rule for bad rows here; expected {expected}")


def check_default(bad: Bad, default: str | None, columns: Schema, sql: Sql) -> frozenset[str]:
    """The columns that the default reads."""
    check_bad(bad)
    if (default is not None) != (bad == "default"):
        raise Wrong('default= and bad="default" go together; give both or none')
    return of_row(default, columns, sql).reads if default is not None else frozenset()


def of_row(expression: str, columns: Schema, sql: Sql) -> Typed:
    """An expression that has a value for every row."""
    found = sql.typed(expression, columns)
    if found.aggregates:
        raise Wrong(f"`{expression}` is an aggregate, but there are no groups here; compute it with aggregate(…)")
    return found


def of_group(expression: str, keys: Sequence[str], columns: Schema, sql: Sql) -> Typed:
    """An expression that has a value for every group of rows with equal keys."""
    found = sql.typed(expression, columns)
    known = {key.lower() for key in keys}
    loose = sorted(name for name in (found.bare if found.aggregates else found.reads) if name.lower() not in known)
    if found.window or loose:
        what = f"`{loose[0]}` has many values in a group" if loose else "it looks at other groups"
        raise Wrong(f"`{expression}`: {what}; write an aggregate of it, such as max(…), or group by it")
    return found


def direction(text: str) -> tuple[str, bool]:
    """`price desc` as (column, whether descending)."""
    name, _, order = text.strip().rpartition(" ")
    if name and order.lower() in ("asc", "desc"):
        return name.strip(), order.lower() == "desc"
    return text.strip(), False
