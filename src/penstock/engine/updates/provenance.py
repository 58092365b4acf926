"""From which delivered file a row of a base table came.

Base tables keep the number of that file's content in a hidden column of their Parquet files. So a file that is rewritten,
corrected or withdrawn touches exactly its own rows, and no other delivered file is needed for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection

from penstock.control.state import State
from penstock.control.views.inputs import Ahead, WaitingRows, ahead
from penstock.declare.definition import Definition
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import Interval, PartitionSet
from penstock.model.schema import Column
from penstock.model.time import BEGIN_US, END_US, HOUR_US, instant
from penstock.model.zones import first_instant_of, local_instant
from penstock.tables import Catalogue, DataFile

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
    compared as numbers."""
    if order == "modified":
        return f"{mtime_ns:020d}"
    if order.startswith("name "):
        found = re.search(order.removeprefix("name "), uri)
        part = "" if found is None else found[1] if found.re.groups else found[0]
        return re.sub(r"\d+", lambda number: number[0].zfill(20), part or "")
    return ""


def spans_by_file(
    paths: Iterable[str], time: str | None, width_us: int, instant_of: Instants
) -> dict[int, tuple[Interval, ...]]:
    """For each file that has rows in some Parquet files: in which stretches of time. Without a time column that is always."""
    found: dict[int, list[Interval]] = {}
    for path in paths:
        for number, span in _spans(path, time, max(1, min(width_us, HOUR_US)), instant_of):
            found.setdefault(number, []).append(span)
    return {number: joined(spans) for number, spans in found.items()}


def _spans(path: str, time: str | None, width_us: int, instant_of: Instants) -> Iterable[tuple[int, Interval]]:
    with pq.ParquetFile(path) as source:
        names = {name.lower(): name for name in source.schema_arrow.names}
        wanted = [FILE] if time is None else [FILE, names[time.lower()]]
        for batch in source.iter_batches(columns=wanted, batch_size=1 << 18, use_threads=False):
            rows = pa.Table.from_batches([batch])
            numbers = rows.column(FILE)
            if time is None:
                for number in pc.unique(numbers).to_pylist():
                    yield number, (BEGIN_US, END_US)
                continue
            values = rows.column(names[time.lower()])
            table = pa.table({"n": numbers, "v": values, "b": _bucket(values, width_us)})
            grouped = table.group_by(["n", "b"], use_threads=False).aggregate([("v", "min"), ("v", "max")])
            for row in grouped.to_pylist():
                yield row["n"], (instant_of(row["v_min"]), instant_of(row["v_max"]) + 1)


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


def hull_of(held: Mapping[str, Sequence[Interval]]) -> PartitionSet:
    return PartitionSet.of(*(span for spans in held.values() for span in spans))


# The times of rows, as values of a time column and as the statistics of files tell them.


def time_range(files: Sequence[DataFile], time: str, zone: tzinfo) -> list[tuple[int, int]]:
    """For each file the half-open range of its rows' times, from the statistics."""
    found = []
    for file in files:
        stats = next((s for name, s in file.stats.items() if name.lower() == time.lower()), None)
        if stats is not None and stats.min is not None and stats.max is not None:
            found.append((parse_stat(stats.min, zone), parse_stat(stats.max, zone) + 1))
    return found


def instant_of(value: date | datetime, zone: tzinfo) -> int:
    """The instant of a value of a time column."""
    return parse_stat(str(value), zone)


def parse_stat(text: str, zone: tzinfo) -> int:
    """A time as the catalogue writes it: `2024-03-01`, `2024-03-01 10:00:00.5`, `… 10:00:00+00`. A date begins at midnight of
    the zone, a time without offset is what its clocks show."""
    written = datetime.fromisoformat(text)
    if len(text) == 10:
        return first_instant_of(written, zone)
    return instant(written) if written.tzinfo else local_instant(written, zone)


# How many rows wait for other sources, from the statistics of the catalogue: no file is opened.


def waiting_rows(
    catalogue: Catalogue, conn: Connection, definitions: Mapping[str, Definition], state: State, names: Iterable[str]
) -> tuple[WaitingRows, ...]:
    """The rows that wait, of the sources of these tables and of all that they are made from."""
    lineage = {above for name in names if name in state.tables for above in (*state.graph.ancestors[name], name)}
    found = (
        _counted(catalogue, conn, definitions, one)
        for one in ahead(state, sorted(lineage))
        if one.source in definitions
    )
    return tuple(one for one in found if one.rows)


def _counted(catalogue: Catalogue, conn: Connection, definitions: Mapping[str, Definition], one: Ahead) -> WaitingRows:
    definition = definitions[one.source]
    grain, time = definition.table.grain, definition.time
    within = None if grain is WHOLE or one.from_us <= BEGIN_US else [(grain.floor(one.from_us), END_US)]
    files = catalogue.files(conn, one.source, catalogue.snapshot(conn), within)
    whole, part = 0, 0.0
    for file in catalogue.described(conn, one.source, files, time) if time is not None else files:
        low, high = next(iter(time_range([file], time or "", zone_of(definition.table.zone))), (BEGIN_US, END_US))
        if low >= one.from_us:
            whole += file.records
        elif high > one.from_us:
            part += file.records * (high - one.from_us) / (high - low)
    return WaitingRows(one.table, one.source, whole + round(part), not part, one.waits_for, one.upto_us)
