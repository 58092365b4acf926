"""Column statistics of a whole table, kept as files come.

They only ever widen: a file that ends does not narrow them, since older snapshots read the same row. DuckDB
does the same; its optimiser relies on them being bounds, not on them being tight. Which files a query opens
is decided by the statistics of each file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.tables.datafile import ColumnStats

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Bounds:
    contains_null: bool | None
    contains_nan: bool | None
    min: str | None
    max: str | None


def widen(known: Bounds | None, stats: ColumnStats | None, lake_type: str) -> Bounds:
    """`known` is None where no file was counted before; `stats` is None where the file does not have the
    column.
    """
    if stats is None:
        stats = ColumnStats(values=0, nulls=None)
    has_null = stats.nulls is None or stats.nulls > 0
    is_float = lake_type in ("float32", "float64")
    nan = stats.contains_nan if is_float and stats.values != 0 else (False if is_float else None)
    if known is None:
        return Bounds(has_null, nan, stats.min, stats.max)
    null = known.contains_null is not False or has_null
    nan = None if nan is None or known.contains_nan is None else (nan or known.contains_nan)
    if stats.values == 0:
        return Bounds(null, nan, known.min, known.max)
    return Bounds(
        null,
        nan,
        _outer(known.min, stats.min, lake_type, min),
        _outer(known.max, stats.max, lake_type, max),
    )


def _outer(one: str | None, other: str | None, lake_type: str, choose: Callable[..., str]) -> str | None:
    if one is None or other is None:
        return None
    try:
        return choose(one, other, key=lambda text: _comparable(text, lake_type))
    except (ValueError, InvalidOperation):
        return None


def _comparable(text: str, lake_type: str) -> Any:
    if lake_type == "varchar":
        return text  # By code point, which is the order of the UTF-8 bytes that DuckDB compares.
    if lake_type.startswith("int") or lake_type == "boolean":
        return int(text)
    if lake_type.startswith("decimal"):
        return Decimal(text)
    if lake_type.startswith("float"):
        return float(text)
    if lake_type in ("date", "timestamp", "timestamptz") and _DAY.match(text):
        return text  # "…:00+00" < "…:00.5+00" and so on: with four-digit years the text orders as the time.
    raise ValueError(f"no order known for {lake_type} {text!r}")
