"""What a Parquet file says about itself: counts, sizes and statistics, from its footer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.errors import PenstockError
from penstock.tables.ddl import plain_text_of, text_of
from penstock.tables.types import HIDDEN_PREFIX, ColumnStats, DataFile


def read_footer(path: str, partition_us: int, root: str) -> DataFile:
    """The file at `path` (absolute, or a URI), which lies under `root`, its table's folder."""
    if "://" in path:
        system, name = fs.FileSystem.from_uri(path)
    else:
        system, name = fs.LocalFileSystem(), path
    with system.open_input_file(name) as source:
        return footer_of(source, path, partition_us, root)


def footer_of(source: pa.NativeFile, path: str, partition_us: int, root: str) -> DataFile:
    """The same, of a file that is open, or that was just written from memory."""
    relative = _relative(path, root)
    size = source.size()
    footer = pq.read_metadata(source)
    arrow = footer.schema.to_arrow_schema()
    hidden = ",".join(name for name in arrow.names if name.startswith(HIDDEN_PREFIX))
    return DataFile(
        path=relative,
        partition_us=partition_us,
        records=footer.num_rows,
        size_bytes=size,
        footer_bytes=footer.serialized_size,
        stats=_statistics(footer, arrow),
        physical=hidden,
    )


def _relative(path: str, root: str) -> str:
    base = root.rstrip("/") + "/"
    if not path.startswith(base):
        raise PenstockError(f"file {path} is not under its table's folder {base}; write it there before publishing")
    return path[len(base) :] if "://" in path else PurePath(path[len(base) :]).as_posix()


def _leaves(prefix: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """In the order of Parquet's own leaves."""
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{prefix}.{child.name}", child.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{prefix}.key", kind.key_type)
        yield from _leaves(f"{prefix}.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{prefix}.element", kind.value_type)
    else:
        yield prefix, kind


def _statistics(footer: pq.FileMetaData, arrow: pa.Schema) -> dict[str, ColumnStats]:
    leaves = [leaf for column in arrow for leaf in _leaves(column.name, column.type)]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    # An empty struct has no leaf in Parquet either; should the two ever disagree, unknown beats wrong.
    if len(leaves) != footer.num_columns:
        return {}
    found: dict[str, ColumnStats] = {}
    ambiguous: set[str] = set()
    for index, (name, kind) in enumerate(leaves):
        if name in found:
            ambiguous.add(name)
        found[name] = _leaf([group.column(index) for group in groups], kind)
    # A column "a.b" beside a struct a with a field b.
    return {name: stats for name, stats in found.items() if name not in ambiguous}


def _leaf(chunks: list[pq.ColumnChunkMetaData], kind: pa.DataType) -> ColumnStats:
    values: int | None = 0
    nulls: int | None = 0
    bounds: list[tuple[Any, Any]] = []
    bounded = True
    physical = chunks[0].physical_type if chunks else ""
    decode = _decoder(kind, physical)
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            values = nulls = None
        elif values is not None and nulls is not None:
            values += statistics.num_values
            nulls += statistics.null_count
        if statistics is not None and statistics.has_min_max and decode is not None:
            low, high = decode(statistics.min_raw), decode(statistics.max_raw)
            # Engines do not agree whether a NaN is larger than all numbers, or no bound at all.
            bounded = bounded and low == low and high == high
            bounds.append((low, high))
        elif statistics is None or not statistics.has_null_count or statistics.num_values:
            bounded = False
    low = high = None
    if bounded and bounds:
        low = _text(min(low for low, _ in bounds), kind, upper=False)
        high = _text(max(high for _, high in bounds), kind, upper=True)
    size = sum(chunk.total_compressed_size for chunk in chunks)
    return ColumnStats(values, nulls, low, high, None, size)


def _decoder(kind: pa.DataType, physical: str) -> Callable[[Any], Any] | None:
    """From Parquet's raw bound to a value that compares as the column does; `None` where there is no such
    order.
    """
    if physical == "INT96":
        return None
    if pa.types.is_decimal(kind):
        return _unscaled if physical == "FIXED_LEN_BYTE_ARRAY" or physical == "BYTE_ARRAY" else int
    known = (
        pa.types.is_boolean(kind), pa.types.is_signed_integer(kind), pa.types.is_floating(kind),
        pa.types.is_string(kind), pa.types.is_large_string(kind), pa.types.is_date32(kind),
        pa.types.is_timestamp(kind),
    )  # fmt: skip
    if not any(known) or pa.types.is_float16(kind):
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda raw: raw if isinstance(raw, bytes) else str(raw).encode()
    return lambda raw: raw


def _unscaled(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _text(value: Any, kind: pa.DataType, upper: bool) -> str | None:
    try:
        if pa.types.is_boolean(kind):
            return "1" if value else "0"
        if pa.types.is_decimal(kind):
            # scaleb would round to the context's 28 digits; a decimal may have 38.
            digits = Decimal(value).as_tuple()
            return f"{Decimal((digits.sign, digits.digits, -kind.scale)):f}"
        if pa.types.is_floating(kind):
            # All digits, also of a float: DuckDB's short form of a float is no bound once the column is a
            # double.
            return repr(float(value))
        if pa.types.is_date(kind):
            return str(date(1970, 1, 1) + timedelta(days=value))
        if pa.types.is_timestamp(kind):
            return _moment(value, kind, upper)
        if isinstance(value, bytes):
            text = value.decode()
            # PostgreSQL's text cannot hold a zero byte.
            return None if "\0" in text else text
    except (OverflowError, UnicodeDecodeError):
        return None  # Outside Python's years 1 to 9999, or a bound cut inside a character: not known.
    return str(int(value))


def _moment(value: int, kind: pa.TimestampType, upper: bool) -> str:
    if kind.unit == "ns":
        at_us = -(-value // 1000) if upper else value // 1000
    else:
        at_us = value * {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit]
    return text_of(at_us) if kind.tz else plain_text_of(at_us)
