"""A first look at a delivered file, without Spark: is it whole, readable, and of the shape that was declared?

What is found here concerns the whole file, which is then set aside with the reason. Single bad rows are found while
loading. The look also gives the checksum by which a file is known.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.declare.config import FeedConfig
from penstock.engine.links import compression
from penstock.model.schema import Schema

_CHUNK = 1 << 20
_WHOLE_NUMBERS = ["tinyint", "smallint", "int", "bigint"]


class Malformed(Exception):
    """The file cannot be loaded as it is; the message is the reason that users see."""


@dataclass(frozen=True, slots=True)
class Look:
    checksum: str
    # The order of columns in a CSV file's header; empty for other formats.
    header: tuple[str, ...] = ()


def checksum_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def look_at(path: Path, config: FeedConfig, schema: Schema | None) -> Look:
    """Raises `Malformed` where the file must be set aside."""
    if path.stat().st_size == 0:
        raise Malformed("the file is empty")
    if config.format == "parquet":
        _look_at_parquet(path, schema)
        return Look(checksum_of(path))
    digest, first = _read_text(path, str(config.options.get("encoding", "utf-8")))
    if config.format == "json":
        _look_at_json(first, schema)
        return Look(digest)
    return Look(digest, _look_at_csv(first, config, schema))


def header_of(path: Path, config: FeedConfig) -> tuple[str, ...]:
    """The columns of a CSV file, in its own order."""
    with _opened(path) as stream:
        line = stream.readline(_CHUNK).decode(str(config.options.get("encoding", "utf-8")), "replace")
    return _look_at_csv(line, config, None)


def _opened(path: Path) -> IO[bytes]:
    opened = {"": open, ".gz": gzip.open, ".bz2": bz2.open}[compression(path)]
    return opened(path, "rb")  # type: ignore[operator,no-any-return]


def _read_text(path: Path, encoding: str) -> tuple[str, str]:
    """Checksum and first line; the whole file is decoded so that a bad byte is found before anything is loaded."""
    decoder = codecs.getincrementaldecoder(encoding)()
    digest = hashlib.sha256()
    first = ""
    line = 1
    try:
        with _opened(path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                text = decoder.decode(chunk)
                if "\n" not in first:
                    first += text
                line += chunk.count(b"\n")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Malformed(
            f"not {encoding} text near line {line}: {error.reason} at byte 0x{error.object[error.start]:02x}"
        ) from None
    except (OSError, EOFError) as error:
        raise Malformed(f"cannot be read: {error}") from None
    if "\0" in first[:4096]:
        raise Malformed("holds binary data, expected text")
    # What is compressed has another content than the file's bytes; a file is known by those.
    return digest.hexdigest()[:32] if not compression(path) else checksum_of(path), first.split("\n", 1)[0].rstrip("\r")


def _look_at_csv(first: str, config: FeedConfig, schema: Schema | None) -> tuple[str, ...]:
    if str(config.options.get("header", True)).lower() == "false":
        return ()
    separator = str(config.options.get("sep", config.options.get("delimiter", ",")))
    quote = str(config.options.get("quote", '"'))
    found = tuple(
        name.strip().lstrip("\ufeff") for name in next(csv.reader([first], delimiter=separator, quotechar=quote), [])
    )
    if schema is None:
        return found
    expected = [column.name for column in schema]
    have, want = {name.lower() for name in found}, {name.lower() for name in expected}
    if have != want or len(found) != len(expected):
        raise Malformed(
            "wrong columns: "
            + "; ".join(_differences(found, expected))
            + f" (found {', '.join(found)[:300] or 'nothing'})"
        )
    return found


def _differences(found: tuple[str, ...], expected: list[str]) -> Iterator[str]:
    have, want = {name.lower() for name in found}, {name.lower() for name in expected}
    if missing := [name for name in expected if name.lower() not in have]:
        yield f"missing {', '.join(missing)}"
    if extra := [name for name in found if name.lower() not in want]:
        yield f"unexpected {', '.join(extra)[:200]}"
    if len(have) < len(found):
        yield "a column stands twice"


def _look_at_json(first: str, schema: Schema | None) -> None:
    if not first.strip():
        raise Malformed("the first line is blank, expected one JSON object per line")
    try:
        record = json.loads(first)
    except ValueError as error:
        raise Malformed(f"the first line is not a JSON object: {error}") from None
    if not isinstance(record, dict):
        raise Malformed(f"the first line is a JSON {type(record).__name__}, expected an object per line")
    if schema and not {column.name for column in schema} & set(record):
        raise Malformed(
            f"wrong columns: found {', '.join(record)[:300]}; expected {', '.join(column.name for column in schema)}"
        )


def _look_at_parquet(path: Path, schema: Schema | None) -> None:
    try:
        found = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise Malformed(f"not a whole Parquet file: {str(error).splitlines()[0]}") from None
    if schema is None:
        return
    fields = {field.name.lower(): field.type for field in found}
    missing = [column.name for column in schema if column.name.lower() not in fields]
    if missing:
        raise Malformed(f"wrong columns: missing {', '.join(missing)} (found {', '.join(found.names)[:300]})")
    for column in schema:
        kind = spark_type(fields[column.name.lower()])
        if kind is not None and not _readable_as(kind, column.type):
            raise Malformed(f"column {column.name} has type {kind}, expected {column.type}")


def spark_type(kind: pa.DataType) -> str | None:
    """Spark's name of a simple Arrow type; None for nested ones, which Spark itself checks."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    simple = {
        "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
        "double": "double", "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
        "date32[day]": "date",
    }  # fmt: skip
    return simple.get(str(kind))


def _readable_as(found: str, wanted: str) -> bool:
    if found == wanted or {found, wanted} == {"timestamp", "timestamp_ntz"}:
        return True
    if found in _WHOLE_NUMBERS and wanted in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(found) <= _WHOLE_NUMBERS.index(wanted)
    if (found, wanted) == ("float", "double"):
        return True
    return found.startswith("decimal") and wanted.startswith("decimal")
