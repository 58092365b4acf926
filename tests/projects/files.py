"""Delivered files: how rows are written in each format."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.projects.calendar import local, moment

Row = Sequence[Any]

ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "array<bigint>": pa.list_(pa.int64()),
    "struct<x:bigint,y:string>": pa.struct([("x", pa.int64()), ("y", pa.string())]),
}


def time_text(us: int | str, style: str, zone: str) -> str:
    """An instant as text, in UTC or with the zone's offset."""
    if isinstance(us, str):  # without offset, as clocks show it
        return us
    fraction = us % 1_000_000
    if style == "z":
        text = f"{moment(us):%Y-%m-%dT%H:%M:%S}"
        return text + (f".{fraction:06d}" if fraction else "") + "Z"
    there = local(us, zone)
    text = f"{there:%Y-%m-%d %H:%M:%S}" + (f".{fraction:06d}" if fraction else "")
    offset = there.strftime("%z")
    return f"{text.replace(' ', 'T')}{offset[:3]}:{offset[3:5]}"


def _text(value: Any, kind: str, style: str, zone: str) -> str:
    if value is None:
        return ""
    if kind == "timestamp":
        return time_text(value, style, zone)
    if kind == "boolean":
        return "true" if value else "false"
    return str(value)


def _json(value: Any, kind: str, style: str, zone: str) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        return time_text(value, style, zone)
    if kind == "decimal(10,2)":
        return float(value)
    return value


def _arrow(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        return moment(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "timestamp_ntz":
        return datetime.fromisoformat(value)
    if kind == "decimal(10,2)":
        return Decimal(value)
    return value


def content(feed: Mapping[str, Any], zone: str, rows: Sequence[Row]) -> tuple[bytes, list[int]]:
    """The bytes of a file with these rows, and the line at which each begins."""
    columns = feed["columns"]
    style = feed.get("style", "z")
    if feed["format"] == "csv":
        out = io.StringIO()
        sep = feed["settings"].get("options", {}).get("sep", ",")
        writer = csv.writer(out, lineterminator="\n", delimiter=sep)
        writer.writerow([name for name, _ in columns])
        at = []
        for row in rows:
            at.append(out.getvalue().count("\n") + 1)
            writer.writerow([_text(value, kind, style, zone) for value, (_, kind) in zip(row, columns, strict=True)])
        return out.getvalue().encode(), at
    if feed["format"] == "json":
        lines = []
        for row in rows:
            found = {name: _json(value, kind, style, zone) for value, (name, kind) in zip(row, columns, strict=True)}
            lines.append(json.dumps(found, ensure_ascii=False) + "\n")
        return "".join(lines).encode(), list(range(1, len(rows) + 1))
    arrays = [pa.array([_arrow(row[at], kind) for row in rows], ARROW[kind]) for at, (_, kind) in enumerate(columns)]
    sink, found = io.BytesIO(), pa.table(arrays, names=[name for name, _ in columns])
    if feed["format"] == "orc":
        orc.write_table(found, sink)
    else:
        pq.write_table(found, sink)
    return sink.getvalue(), list(range(1, len(rows) + 1))


def read(feed: Mapping[str, Any], rows: Sequence[Row]) -> list[list[Any]]:
    """The values that a reader finds in a file with these rows."""
    if feed["format"] != "csv":
        return [list(row) for row in rows]
    null = feed["settings"].get("options", {}).get("nullValue", "")
    return [[None if value in ("", null) else value for value in row] for row in rows]


def write(path: Path, data: bytes, mtime_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(".writing")
    staged.write_bytes(data)
    os.utime(staged, (mtime_s, mtime_s))
    staged.rename(path)
