"""A function of the user's, of which only the columns that it gives are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.flows.activities.base import Activity, Shape, Sql, Wrong
from penstock.model.schema import Schema, WrongColumns, parse_ddl


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
