"""A first look at a delivered file, without Spark: is it whole, readable, and of the shape that was declared?

What is found here concerns the whole file, which is then set aside with the reason. Single bad rows are found while
loading. The look also gives the checksum by which a file is known.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from penstock.declare.config import BINARY, FeedConfig
from penstock.engine.arrivals import records as text_records
from penstock.engine.arrivals.as_json import check_xml
from penstock.engine.arrivals.records import Malformed, TextForm, check_quotes, header, opened, records
from penstock.engine.spark.links import compression
from penstock.model.schema import Schema

_CHUNK = 1 << 20
# A compressed file that unpacks to more than this and to so many times its size is meant to fill a disk.
UNPACKED_BYTES = 1 << 30
MOST_UNPACKED = 100
_WHOLE_NUMBERS = ["tinyint", "smallint", "int", "bigint"]


@dataclass(frozen=True, slots=True)
class Look:
    checksum: str
    # Not a row in it, not even a header.
    empty: bool = False


def checksum_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def look_at(path: Path, config: FeedConfig, schema: Schema | None) -> Look:
    """Raises `Malformed` where the file must be set aside."""
    if path.stat().st_size == 0:
        return Look(checksum_of(path), empty=True)
    if config.format in (*BINARY, "xml"):
        check_shape(path, config, schema)
        return Look(checksum_of(path))
    form = TextForm.of(config)
    digest, blank = _read_text(path, form)
    if not blank:
        check_shape(path, config, schema)
        if form.csv:
            check_quotes(path, form)
    return Look(digest, blank)


def check_shape(path: Path, config: FeedConfig, schema: Schema | None) -> None:
    """Whether a file has the columns that it should have, as far as its beginning or its footer tells."""
    if path.stat().st_size == 0:
        return
    if config.format in BINARY:
        _look_at_columns(stored_schema(path, config.format), schema)
    elif config.format == "xml":
        check_xml(path, config, schema)
    elif config.format == "fixed":
        next(records(path, TextForm.of(config)), None)
    elif config.format == "json":
        _look_at_json((record for _, record in records(path, TextForm.of(config))), schema)
    elif (form := TextForm.of(config)).header and schema is not None:
        _check_header(header(path, form), schema)


def _read_text(path: Path, form: TextForm) -> tuple[str, bool]:
    """Checksum, and whether there is nothing but blanks; the whole file is decoded so that a bad byte is found before
    anything is loaded."""
    decoder = codecs.getincrementaldecoder(form.encoding)()
    digest = hashlib.sha256()
    blank = True
    line = 1
    packed = path.stat().st_size if compression(path) else None
    size = since = 0
    try:
        with opened(path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                text = decoder.decode(chunk)
                if line == 1 and "\0" in text[:4096]:
                    raise Malformed("holds binary data, expected text")
                blank = blank and not text.strip("\ufeff \t\r\n")
                size += len(chunk)
                if packed is not None and size > max(UNPACKED_BYTES, MOST_UNPACKED * packed):
                    raise Malformed(
                        f"unpacks to more than {UNPACKED_BYTES >> 20:,} MB, over {MOST_UNPACKED} times its size"
                    )
                end = chunk.find(b"\n")
                since += len(chunk) if end < 0 else end  # within a chunk no line is too long
                if since > text_records.LONGEST_RECORD_BYTES:
                    raise Malformed(f"line {line} is longer than {text_records.LONGEST_RECORD_BYTES >> 20} MB")
                since = since if end < 0 else len(chunk) - 1 - chunk.rfind(b"\n")
                line += chunk.count(b"\n")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Malformed(
            f"not {form.encoding} text near line {line}: {error.reason} at byte 0x{error.object[error.start]:02x}"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the disk's fault, not the file's
        raise Malformed(f"cannot be unpacked: {error}") from None
    # What is compressed has another content than the file's bytes; a file is known by those.
    return digest.hexdigest()[:32] if not compression(path) else checksum_of(path), blank


def _check_header(found: tuple[str, ...], schema: Schema) -> None:
    expected = [column.name for column in schema]
    have, want = {name.lower() for name in found}, {name.lower() for name in expected}
    if have != want or len(found) != len(expected):
        raise Malformed(
            "wrong columns: "
            + "; ".join(_differences(found, expected))
            + f" (found {', '.join(found)[:300] or 'nothing'})"
        )


def _differences(found: tuple[str, ...], expected: list[str]) -> Iterator[str]:
    have, want = {name.lower() for name in found}, {name.lower() for name in expected}
    if missing := [name for name in expected if name.lower() not in have]:
        yield f"missing {', '.join(missing)}"
    if "" in have:
        yield "a column without a name"
    if extra := [name for name in found if name and name.lower() not in want]:
        yield f"unexpected {', '.join(extra)[:200]}"
    if len(have) < len(found):
        yield "a column stands twice"


def _look_at_json(found: Iterator[str], schema: Schema | None) -> None:
    """The first object tells, or the first that has a declared column."""
    try:
        first = json.loads(next(found, ""))
    except ValueError as error:
        raise Malformed(f"the first line is not a JSON object: {error}") from None
    if not isinstance(first, dict):
        raise Malformed(f"the first line is a JSON {type(first).__name__}, expected an object per line")
    if not schema:
        return
    declared = {column.name.lower(): column.name for column in schema}
    for record in _objects(first, found):
        for name in record:
            expected = declared.get(name.lower(), name)
            if expected != name and expected not in record:
                raise Malformed(f"wrong columns: found {name}, expected {expected} (in JSON the case counts)")
        if set(record) & set(declared.values()):
            return
    raise Malformed(
        f"wrong columns: found {', '.join(first)[:300] or 'nothing'}; expected {', '.join(column.name for column in schema)}"
    )


def _objects(first: dict[str, object], found: Iterator[str]) -> Iterator[dict[str, object]]:
    yield first
    for text in found:
        with suppress(ValueError):
            record = json.loads(text)
            if isinstance(record, dict):
                yield record


def _look_at_columns(found: pa.Schema, schema: Schema | None) -> None:
    if schema is None:
        return
    fields = {field.name.lower(): field.type for field in found}
    missing = [column.name for column in schema if column.name.lower() not in fields]
    if missing:
        raise Malformed(f"wrong columns: missing {', '.join(missing)} (found {', '.join(found.names)[:300]})")
    for column in schema:
        arrow = fields[column.name.lower()]
        kind = spark_type(arrow)
        if kind is None and not pa.types.is_nested(arrow):
            raise Malformed(f"column {column.name} has type {arrow}, which cannot be read; expected {column.type}")
        if kind is not None and not _readable_as(kind, column.type):
            raise Malformed(f"column {column.name} has type {kind}, expected {column.type}")


def stored_schema(path: Path, kind: str = "parquet") -> pa.Schema:
    """The columns that a file says to have."""
    try:
        return pq.read_schema(path) if kind == "parquet" else orc.ORCFile(path).schema
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        name = {"parquet": "Parquet", "orc": "ORC"}[kind]
        raise Malformed(f"not a whole {name} file: {str(error).splitlines()[0]}") from None


def spark_type(kind: pa.DataType) -> str | None:
    """Spark's name of a simple Arrow type, `void` where there are only nulls; None for nested ones, which Spark itself checks,
    and for those it does not have."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    simple = {
        "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
        "double": "double", "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
        "large_binary": "binary", "binary_view": "binary", "date32[day]": "date", "date64[ms]": "date", "uint8": "smallint",
        "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)", "null": "void",
    }  # fmt: skip
    return simple.get(str(kind))


def _readable_as(found: str, wanted: str) -> bool:
    if found in (wanted, "void") or {found, wanted} == {"timestamp", "timestamp_ntz"}:
        return True
    if found in _WHOLE_NUMBERS and wanted in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(found) <= _WHOLE_NUMBERS.index(wanted)
    if (found, wanted) == ("float", "double"):
        return True
    if not (found.startswith("decimal") and wanted.startswith("decimal")):
        return False
    (digits, scale), (most, after) = (map(int, re.findall(r"\d+", kind)) for kind in (found, wanted))
    return after >= scale and most - after >= digits - scale
