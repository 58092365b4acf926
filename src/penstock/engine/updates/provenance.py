"""From which delivered file a row of a base table came.

Base tables keep the number of that file's content in a hidden column of their Parquet files. So a file that is rewritten,
corrected or withdrawn touches exactly its own rows, and no other delivered file is needed for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.model.partitions import Interval, PartitionSet
from penstock.model.schema import Column
from penstock.model.time import BEGIN_US, END_US, HOUR_US

FILE = "_penstock_file"
COLUMN = Column(FILE, "bigint")
# Of one file no more stretches of time than this are remembered; the closest become one.
MOST_SPANS = 256

# The instants of the smallest and the largest value of a time column.
Instants = Callable[[Any], int]


def tagged(number: int) -> str:
    """The hidden column for rows of one file, as SQL."""
    return f"{number}L as {FILE}"


def order_of(order: str, uri: str, mtime_ns: int) -> str:
    """What puts a file in its place among those that state the same, as far as its name and time tell; numbers in it are
    compared as numbers. A pattern with a slash is one of the folders, too."""
    if order == "modified":
        return f"{mtime_ns:020d}"
    if order.startswith("name "):
        pattern = order.removeprefix("name ")
        found = re.search(pattern, uri if "/" in pattern else uri.rpartition("/")[2])
        part = "" if found is None else found[1] if found.re.groups else found[0]
        return re.sub(r"\d+", lambda number: number[0].zfill(20), part or "")
    return ""


def spans_by_file(
    paths: Iterable[str], time: str | None, width_us: int, instant_of: Instants
) -> dict[int, tuple[Interval, ...]]:
    """For each file that has rows in some Parquet files: in which stretches of time. Without a time column that is always; rows
    without a time are in none."""
    found: dict[int, list[Interval]] = {}
    for path in paths:
        for number, spans in _spans(path, time, max(1, min(width_us, HOUR_US)), instant_of):
            found.setdefault(number, []).extend(spans)
    return {number: joined(spans) for number, spans in found.items()}


def _spans(
    path: str, time: str | None, width_us: int, instant_of: Instants
) -> Iterable[tuple[int, Sequence[Interval]]]:
    with pq.ParquetFile(path) as source:
        names = {name.lower(): name for name in source.schema_arrow.names}
        wanted = [FILE] if time is None else [FILE, names[time.lower()]]
        for batch in source.iter_batches(columns=wanted, batch_size=1 << 18, use_threads=False):
            rows = pa.Table.from_batches([batch])
            numbers = rows.column(FILE)
            if time is None:
                for number in pc.unique(numbers).to_pylist():
                    yield number, [(BEGIN_US, END_US)]
                continue
            values = rows.column(names[time.lower()])
            table = pa.table({"n": numbers, "v": values, "b": _bucket(values, width_us)})
            grouped = table.group_by(["n", "b"], use_threads=False).aggregate([("v", "min"), ("v", "max")])
            for row in grouped.to_pylist():
                first, last = row["v_min"], row["v_max"]
                yield row["n"], [] if first is None else [(instant_of(first), instant_of(last) + 1)]


def _bucket(values: pa.ChunkedArray, width_us: int) -> pa.ChunkedArray:
    """Values that are near to each other have the same number."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return pc.floor(
        pc.divide(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.float64()), width_us)
    )


def joined(spans: Sequence[Interval]) -> tuple[Interval, ...]:
    """The same stretches, but not too many: the smallest gaps are closed."""
    intervals = PartitionSet.of(*spans).intervals
    if len(intervals) <= MOST_SPANS:
        return intervals
    gaps = sorted(range(1, len(intervals)), key=lambda n: intervals[n][0] - intervals[n - 1][1], reverse=True)
    cuts = sorted(gaps[: MOST_SPANS - 1])
    starts = [0, *cuts]
    ends = [*cuts, len(intervals)]
    return tuple((intervals[low][0], intervals[high - 1][1]) for low, high in zip(starts, ends, strict=True))
