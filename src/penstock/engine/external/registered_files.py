"""Parquet files that others hand over: they stay where they are, and theirs. What is registered is what their footers say, so all
that a reader relies on is checked first: the columns, and that each file lies in one partition, which was reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.declare.warehouse import Definition
from penstock.engine.updates.times import instant_of, time_range
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.schema import Schema
from penstock.model.time import format_instant
from penstock.tables import DataFile
from penstock.tables.footer import footer_of


class NotAccepted(PenstockError):
    """Files that cannot become part of a table."""


def files_below(folder: Path) -> list[Path]:
    """The Parquet files in a folder, however deep; not what a writer has not finished, or marks as its own."""
    if not folder.is_dir():
        raise NotAccepted(f"the folder {folder} does not exist; its Parquet files are the rows of the table")
    inside = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    return sorted(folder / path for path in inside if not any(part.startswith((".", "_")) for part in path.parts))


def look(
    paths: Sequence[Path],
    definition: Definition,
    zone: str,
    data_path: str,
    partitions: PartitionSet | None,
    *,
    all_of_them: bool = True,
) -> list[DataFile]:
    """The files as they are to be registered. Rows outside of the partitions are refused with their count; without `all_of_them`
    files that lie outside are left out."""
    found = []
    for path in dict.fromkeys(path.resolve() for path in paths):
        if str(path).startswith(data_path):
            raise NotAccepted(
                f"{path} lies in the data folder of this project, where retention deletes files; write it elsewhere"
            )
        file = _footer(path)
        _check_columns(path, definition.schema or ())
        if definition.table.grain is WHOLE:
            found.append(file)
            continue
        placed = _placed(path, file, definition, zone, partitions, all_of_them)
        if placed is not None:
            found.append(placed)
    return found


def _footer(path: Path) -> DataFile:
    try:
        with pa.OSFile(str(path)) as source:
            file = footer_of(source, str(path), 0, str(path.parent))
    except FileNotFoundError:
        raise NotAccepted(f"there is no file {path}") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise NotAccepted(f"{path} cannot be read as Parquet: {error}") from None
    # Columns of another project's own are not ours to read.
    return replace(file, path=str(path), physical="")


def _check_columns(path: Path, schema: Schema) -> None:
    there = {field.name: field.type for field in pq.read_schema(path)}
    wrong = []
    for column in schema:
        if column.name not in there:
            wrong.append(f"column `{column.name}` is missing")
        elif (found := spark_type(there[column.name])) != column.type.replace(" ", ""):
            wrong.append(f"column `{column.name}` is {found}, declared is {column.type}")
    if wrong:
        raise NotAccepted(f"{path} does not fit: {'; '.join(wrong)}. It has {', '.join(there)}")


def _placed(
    path: Path, file: DataFile, definition: Definition, zone: str, partitions: PartitionSet | None, all_of_them: bool
) -> DataFile | None:
    """The file in its partition."""
    assert definition.time is not None
    grain, where = definition.table.grain, partitions if partitions is not None else EVERYTHING
    if not file.records:
        return None
    nulls = next((stats.nulls for name, stats in file.stats.items() if name == definition.time), None)
    ranges = time_range([file], definition.time, zone_of(zone))
    if nulls == 0 and ranges and grain.floor(ranges[0][0]) == grain.floor(ranges[0][1] - 1):
        start = grain.floor(ranges[0][0])
        if start in where:
            return replace(file, partition_us=start)
        if not all_of_them:
            return None
        _outside(path, file.records, file.records, start, zone)
    starts: dict[int, int] = {}
    for value in pq.read_table(path, columns=[definition.time]).column(0).to_pylist():
        if value is None:
            raise NotAccepted(
                f"{path} has rows without a time (null in `{definition.time}`), which belong to no partition"
            )
        start = grain.floor(instant_of(value, zone_of(zone)))
        starts[start] = starts.get(start, 0) + 1
    outside = {start: rows for start, rows in starts.items() if start not in where}
    if outside and (all_of_them or len(outside) < len(starts)):
        _outside(path, sum(outside.values()), file.records, min(outside), zone)
    if outside:
        return None
    if len(starts) > 1:
        first, last = (format_instant(at, zone_of(zone)) for at in (min(starts), max(starts)))
        raise NotAccepted(
            f"{path} has rows of {len(starts)} partitions, from {first} to {last}; write one file or more for each {grain}"
        )
    return replace(file, partition_us=next(iter(starts)))


def _outside(path: Path, rows: int, every: int, start: int, zone: str) -> None:
    raise NotAccepted(
        f"{path}: {rows:,} of its {every:,} rows lie outside of what is reported, for example in the partition of "
        f"{format_instant(start, zone_of(zone))}; report that partition, too, or leave the rows out"
    )


_FLAT = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date",
}  # fmt: skip


def spark_type(kind: pa.DataType) -> str:
    """The type of a column of a Parquet file as Spark names it.

    >>> spark_type(pa.list_(pa.timestamp("us", "UTC")))
    'array<timestamp>'
    """
    if kind in _FLAT:
        return _FLAT[kind]
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    return str(kind)


def unchanged(listed: Iterable[tuple[str, int, int]], files: Sequence[DataFile]) -> None:
    """Refuse a file that was handed over before with other content: kept versions still show it. `listed` has (path, size, rows)."""
    known = {path: (size, rows) for path, size, rows in listed}
    for file in files:
        if known.get(file.path, (file.size_bytes, file.records)) != (file.size_bytes, file.records):
            raise NotAccepted(
                f"{file.path} was handed over before with other content, which versions that are kept still show; "
                "files that were handed over must not change: write the new rows into a new file"
            )
