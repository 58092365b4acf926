"""What many runs measured, as flat rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any

Row = dict[str, Any]


def grouped(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Rows with the same values of some keys, in the order of their first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    yield from found.items()


def average(rows: Sequence[Row], key: str) -> tuple[float, float]:
    """The mean over seeds and its standard error."""
    values = [float(row[key]) for row in rows]
    return mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def averages(rows: Sequence[Row], key: str, *by: str) -> dict[tuple[Any, ...], float]:
    return {group: average(found, key)[0] for group, found in grouped(rows, *by)}
