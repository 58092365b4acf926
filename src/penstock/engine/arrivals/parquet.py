"""Files that Spark cannot read as they are: Parquet with times in nanoseconds, columns of nothing, numbers without sign; ORC,
whose times without offset Spark reads by the clock of the machine.

They are written again as Parquet with the declared types, exactly, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import types as T

from penstock.engine.arrivals.inspect import stored_schema
from penstock.engine.arrivals.records import Malformed
from penstock.model.schema import Schema

_FLAT: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def converted_types(path: Path, schema: Schema) -> dict[str, pa.DataType]:
    """The columns of a file that must be written again, and as what. Empty if Spark can read the file."""
    found = {field.name.lower(): field for field in stored_schema(path)}
    old = _old_times(path)
    into = {}
    for column in schema:
        field = found.get(column.name.lower())
        if field is None or field.name in old:
            continue
        wanted = _converted(field.type, column.type)
        if wanted != field.type:
            into[field.name] = wanted
    return into


def _old_times(path: Path) -> set[str]:
    """Columns of the old type INT96, which Spark reads and Arrow takes for nanoseconds."""
    columns = pq.ParquetFile(path).schema
    each = (columns.column(number) for number in range(len(columns)))
    return {column.path.split(".")[0] for column in each if column.physical_type == "INT96"}


def _converted(kind: pa.DataType, wanted: str) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if pa.types.is_null(kind) or pa.types.is_unsigned_integer(kind) or pa.types.is_decimal(kind):
        if wanted.startswith("decimal"):
            digits, scale = map(int, wanted[len("decimal(") : -1].split(","))
            return pa.decimal128(digits, scale)
        return _FLAT.get(wanted, kind)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_converted(field.type, "")) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_converted(kind.value_type, "")))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_converted(kind.item_type, "")))
    return kind


def as_stored(found: pa.DataType, wanted: T.DataType | None, clocks: Iterator[bool]) -> T.DataType | None:
    """The wanted type, but with times without offset where a file has such, at any depth. `clocks`: for each of its simple columns, in order,
    whether it says what a clock showed."""
    if pa.types.is_struct(found):
        fields = {field.name.lower(): field for field in wanted.fields} if isinstance(wanted, T.StructType) else {}
        for part in found:
            field = fields.get(part.name.lower())
            kind = as_stored(part.type, field.dataType if field is not None else None, clocks)
            if field is not None and kind is not None:
                fields[part.name.lower()] = T.StructField(field.name, kind, field.nullable)
        return T.StructType(list(fields.values())) if isinstance(wanted, T.StructType) else wanted
    if pa.types.is_map(found):
        own = wanted if isinstance(wanted, T.MapType) else None
        key = as_stored(found.key_type, own.keyType if own else None, clocks)
        item = as_stored(found.item_type, own.valueType if own else None, clocks)
        return T.MapType(key, item, own.valueContainsNull) if own and key and item else wanted
    if pa.types.is_nested(found) and hasattr(found, "value_type"):
        array = wanted if isinstance(wanted, T.ArrayType) else None
        element = as_stored(found.value_type, array.elementType if array else None, clocks)
        return T.ArrayType(element, array.containsNull) if array and element else wanted
    clock = next(clocks, False)
    return T.TimestampNTZType() if clock and isinstance(wanted, T.TimestampType) else wanted


def write_converted(path: Path, into: Mapping[str, pa.DataType], target: Path) -> None:
    source = pq.ParquetFile(path)
    _write(source.schema_arrow, source.iter_batches(), into, target)


def write_orc(path: Path, schema: Schema, target: Path) -> None:
    """An ORC file as Parquet, stripe by stripe."""
    source = orc.ORCFile(path)
    wanted = {column.name.lower(): column.type for column in schema}
    into = {field.name: _converted(field.type, wanted.get(field.name.lower(), "")) for field in source.schema}
    _write(source.schema, (source.read_stripe(number) for number in range(source.nstripes)), into, target)


def _write(found: pa.Schema, batches: Iterator[pa.RecordBatch], into: Mapping[str, pa.DataType], target: Path) -> None:
    schema = pa.schema([field.with_type(into.get(field.name, field.type)) for field in found])
    with pq.ParquetWriter(target, schema) as writer:
        for batch in batches:
            columns = []
            for field, column in zip(schema, batch.columns, strict=True):
                try:
                    columns.append(column.cast(field.type) if field.name in into else column)
                except pa.ArrowInvalid as error:
                    fine = " finer than microseconds" if "lose data" in str(error) else f": {error}"
                    raise Malformed(f"column {field.name} has values{fine}; nothing is cut, so write it anew") from None
            writer.write_batch(pa.record_batch(columns, schema=schema))
