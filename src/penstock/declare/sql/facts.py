"""What an analysis tells of a view, as plain data: whoever only needs to know it need not load the parser of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError


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


Shape = Sequence[NamedColumn]


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
