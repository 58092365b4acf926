"""Small results: their rows come into this process, and pyarrow writes the files. That takes half the time of Spark's own writer, which has a
committer, temporary folders and a task for it.

Nobody can tell the files apart. What pyarrow would write otherwise than Spark is Spark's to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.engine.spark.session import select
from penstock.engine.updates.row_digest import NUMBER, digest_of_numbers
from penstock.model.schema import Schema
from penstock.tables import DataFile
from penstock.tables.footer import footer_of
from penstock.tables.types import Type, UnknownType, parse

PARTITION = "_penstock_p"
# What a row takes in memory besides its texts.
_VALUE_BYTES = 8
_TOO_LARGE = "the rows are too many to be collected"
_CODECS = {
    "snappy": "snappy", "none": "none", "uncompressed": "none", "gzip": "gzip", "zstd": "zstd", "brotli": "brotli", "lz4_raw": "lz4",
    "lz4raw": "lz4",
}  # fmt: skip
_SUFFIXES = {"snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd", "brotli": ".br", "lz4": ".lz4raw", "none": ""}


def codec_of(name: str) -> str | None:
    """A compression of Spark's as pyarrow calls it; None if it has no such."""
    return _CODECS.get(name.lower())


def collects(schema: Schema, notes: str) -> bool:
    """Whether rows of these columns are the same to Spark and to pyarrow. What Spark refuses to write, it is asked to: it says why. `notes`
    are the columns as Spark notes them in a file."""
    if not schema or "parquet.field.id" in notes or _twice(column.name for column in schema):
        return False
    try:
        return all(_plain(parse(column.type)) for column in schema)
    except UnknownType:
        return False


def _plain(kind: Type) -> bool:
    names = [name for name, _ in kind.children] if kind.name == "struct" else []
    return not _twice(names) and all(_plain(child) for _, child in kind.children)


def _twice(names: Iterable[str]) -> bool:
    found = [name.lower() for name in names]
    return len(set(found)) < len(found)


def collect(
    frame: DataFrame, schema: Schema, start: str, most_bytes: int, number: str | None = None
) -> pa.Table | None:
    """The rows, each with the start of its partition and a number of its own (expressions), or None if they are more than about so
    many bytes.

    Nothing is added up over the rows: each says by itself whether it fits. That the bytes of a row times its number stay below a limit means,
    for rows of about one size, that all of them do; and for any rows, that they are never more than some 15 times as much."""
    nth = "((monotonically_increasing_id() & 8589934591L) + 1L)"
    size = " + ".join(_size(_quoted(column.name), parse(column.type)) for column in schema)
    guarded = f"if({nth} * ({size}) <= {most_bytes}L, {start}, cast(raise_error('{_TOO_LARGE}') as bigint))"
    numbers = [f"{number} as {NUMBER}"] if number is not None else []
    rows = select(frame, ["*", *numbers, f"{guarded} as {PARTITION}"])
    try:
        # What `toArrow` does but for its last step, which fails where a struct is null whose fields are not.
        return pa.Table.from_batches(rows._collect_as_arrow(empty_list_if_zero_records=False))  # type: ignore[operator]
    except (PySparkException, Py4JJavaError) as error:
        if _TOO_LARGE in str(error) or "spark.driver.maxResultSize" in str(error):
            return None
        raise


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _size(value: str, kind: Type) -> str:
    """About how many bytes a value takes, as SQL."""
    if kind.name in ("string", "binary"):
        return f"{_VALUE_BYTES}L + coalesce(octet_length({value}), 0)"
    if kind.name == "struct":
        return " + ".join(_size(f"{value}.{_quoted(name)}", child) for name, child in kind.children)
    if kind.name == "array" and kind.children[0][1].name not in ("string", "binary", "array", "map", "struct"):
        return f"{_VALUE_BYTES}L * (1 + coalesce(size({value}), 0))"
    if kind.children:
        return f"{_VALUE_BYTES}L + coalesce(octet_length(cast({value} as string)), 0)"
    return f"{_VALUE_BYTES}L"


def write(
    rows: pa.Table, notes: str, folder: Path, root: str, partitioned: bool, codec: str
) -> Iterator[tuple[str, pa.Table, DataFile]]:
    """One file for each partition of collected rows, named and placed as Spark does it: its path, its rows, and what it says of itself."""
    starts = rows.column(PARTITION).to_numpy()
    numbers = rows.column(NUMBER) if NUMBER in rows.column_names else None
    rows = rows.drop_columns([PARTITION, NUMBER] if numbers is not None else [PARTITION])
    noted = {"org.apache.spark.version": pyspark.__version__, "org.apache.spark.sql.parquet.row.metadata": notes}
    rows = rows.cast(
        pa.schema([pa.field(field.name, _loose(field.type), field.nullable) for field in rows.schema], noted)
    )
    for start, part, digest in _parts(rows, starts, numbers):
        place = folder / f"{PARTITION}={start}" if partitioned else folder
        path = str(place / f"part-00000-{uuid4()}.c000{_SUFFIXES[codec]}.parquet")
        yield path, part, _write(part, digest, path, root, start, codec)


def _loose(kind: pa.DataType) -> pa.DataType:
    """Fields within others may be null: pyarrow does not write a field that never is within one that is."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _loose(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type), pa.field("value", _loose(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _loose(kind.value_type)))
    return kind


def _parts(
    rows: pa.Table, starts: np.ndarray[Any, Any], numbers: pa.ChunkedArray | None
) -> Iterator[tuple[int, pa.Table, str]]:
    """The rows of each partition, in their order, with their digest."""
    if not len(starts):
        return
    if (starts == starts[0]).all():
        yield int(starts[0]), rows, digest_of_numbers(numbers) if numbers is not None else ""
        return
    order = np.argsort(starts, kind="stable")
    rows, starts = rows.take(pa.array(order)), starts[order]
    numbers = numbers.take(pa.array(order)) if numbers is not None else None
    cuts = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
    for low, high in pairwise(cuts):
        digest = digest_of_numbers(numbers.slice(low, high - low)) if numbers is not None else ""
        yield int(starts[low]), rows.slice(low, high - low), digest


def _write(rows: pa.Table, digest: str, path: str, root: str, start: int, codec: str) -> DataFile:
    leaves = [
        leaf for name, column in zip(rows.column_names, rows.columns, strict=True) for leaf in _leaves(name, column)
    ]
    # The least and the largest of values that are no numbers are not those of a column that has some.
    odd = {path for path, values in leaves if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()}
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=codec,
        store_schema=False,
        store_decimal_as_integer=True,
        write_statistics=[path for path, _ in leaves if path not in odd] if odd else True,
    )
    content = sink.getvalue()
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return replace(footer_of(pa.BufferReader(content), path, start, root), digest=digest)


def _leaves(path: str, values: pa.ChunkedArray | pa.Array) -> Iterator[tuple[str, pa.ChunkedArray | pa.Array]]:
    """The values of each column of a Parquet file, by its path there."""
    kind = values.type
    if not pa.types.is_nested(kind):
        yield path, values
        return
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from _leaves(f"{path}.{field.name}", whole.field(number))
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", whole.keys)
        yield from _leaves(f"{path}.key_value.value", whole.items)
    else:
        yield from _leaves(f"{path}.list.element", whole.flatten())
