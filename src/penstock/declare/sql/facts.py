"""What an analysis tells of a view, as plain data: whoever only needs to know it need not load the parser of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import PenstockError
from penstock.model.schema import Schema


@dataclass(frozen=True, slots=True)
class SqlFlaw:
    """One thing to mend, at one place. `line` and `column` count from 1, in the file."""

    file: str
    line: int
    column: int
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.found}; {self.expected}"


class SqlProblem(PenstockError):
    """A view's SQL cannot be used. Carries every problem found, in the order of the text."""

    def __init__(self, problems: Sequence[SqlFlaw]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column)))
        self.file = self.problems[0].file
        self.line = self.problems[0].line
        self.column = self.problems[0].column
        super().__init__("\n".join(map(str, self.problems)))


class NamedColumn(Protocol):
    """A column of something that a query reads. The type is None where only Spark knows it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str | None: ...


NamedColumns = Sequence[NamedColumn]


@dataclass(frozen=True)
class Separable:
    """Truthy if proved."""

    yes: bool
    why: str

    def __bool__(self) -> bool:
        return self.yes


# Where the time column of a view comes from


@dataclass(frozen=True, slots=True)
class Within:
    """Moved, but not out of the day (week, month …) that it was in, by so many days at most."""

    unit: str
    back: bool = True


@dataclass(frozen=True, slots=True)
class Rounded:
    """Rounded down to a multiple of so many microseconds since 1970."""

    micros: int


@dataclass(frozen=True, slots=True)
class Shifted:
    """Moved by a constant, or by something between two; days and months are those of the calendar."""

    months: tuple[int, int] = (0, 0)
    days: tuple[int, int] = (0, 0)
    micros: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Local:
    """As a time without zone: where a clock is set back, two moments become one."""


Step = Within | Rounded | Shifted | Local


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """A column of a table."""

    table: str
    column: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """A bound of the partition itself."""

    name: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something else, as it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of the values of several rows: those that agree on the keys."""

    text: str
    values: frozenset[Origin]
    keys: tuple[frozenset[Origin], ...]


Origin = ColumnTerm | PartitionBounds | Unknown | Chosen


# The three ways in which a view can follow its source.


@dataclass(frozen=True)
class Rowwise:
    """New rows of the source give new rows of the table: run `delta_sql` over the new rows and append."""

    why: str
    delta_sql: str = field(repr=False)


@dataclass(frozen=True)
class AggregateWay:
    """New rows give partial groups, which are folded into the stored ones.

    `delta_sql` over the new rows gives the partials, over all rows the whole table; both with the hidden columns of
    `state` after the visible ones."""

    why: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """Visible columns, in order."""
    state: Schema
    delta_sql: str = field(repr=False)
    merged: tuple[tuple[str, str], ...] = field(repr=False)
    """Each stored column (visible, then state) and its expression over the union of stored and partial rows."""
    partial: tuple[tuple[str, str], ...] = field(repr=False)
    """The same columns without the keys, as expressions over rows: those of `delta_sql`."""

    def fold_sql(self, existing: str, small: bool) -> str:
        """The new content of the affected partitions, from a view of their stored rows and the new rows of the source. What is small is
        one task."""
        names = ", ".join(quoted(name) for name, _ in self.merged)
        both = f"SELECT {names} FROM {quoted(existing)} UNION ALL SELECT {names} FROM (\n{self.delta_sql}\n)"
        rows = f"(SELECT /*+ COALESCE(1) */ * FROM (\n{both}\n))" if small else f"(\n{both}\n)"
        items = ",\n  ".join(f"{expression} AS {quoted(name)}" for name, expression in self.merged)
        group = f"\nGROUP BY {', '.join(map(quoted, self.keys))}" if self.keys else ""
        return f"SELECT\n  {items}\nFROM {rows} AS _penstock_rows{group}"


@dataclass(frozen=True)
class Full:
    """Computed again from all rows of the affected partitions."""

    why: str


How = Rowwise | AggregateWay | Full


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
