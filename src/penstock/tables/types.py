"""Spark's short type names as trees, and their DuckLake counterparts.

A type is parsed once into a `Type`; nested types have named children (`element` of an array, `key` and
`value` of a map, the fields of a struct), which is also how DuckLake stores them: one row a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from penstock.errors import PenstockError
from penstock.model.schema import Schema

# What is known of a data file of a table, and of its columns.

HIDDEN_PREFIX = "_penstock_"
"""Top-level columns so named are in the file only: no schema lists them, and DuckDB does not see them."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Of one leaf column. `None` is always "not known". `min` and `max` are DuckLake's text forms."""

    values: int | None = None
    """Values that are not null, as DuckLake counts them."""
    nulls: int | None = None
    min: str | None = None
    max: str | None = None
    contains_nan: bool | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file that is, or is to be, part of a table.

    `stats` has one entry a leaf column, nested ones by dotted path (`a.element`, `m.key`, `s.field`); it is
    empty in files read back from the catalogue. `content` is the newest snapshot whose rows the file holds:
    compaction keeps it, so that a reader of "what came after snapshot n" does not see old rows again; 0 means
    the snapshot that publishes it. `digest` is that of its rows (see `digest_of`); empty if nobody knows.
    """

    path: str
    partition_us: int
    records: int
    size_bytes: int
    footer_bytes: int
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
    content: int = 0
    id: int = 0
    begin: int = 0
    physical: str = ""
    digest: str = ""
    # Another program wrote it, and it is not known in which partition it lies: it may have rows of any.
    unplaced: bool = False


def digest_text(total: int) -> str:
    return f"{total % (1 << 64):016x}"


def digest_of(files: Iterable[DataFile]) -> str | None:
    """Whether a partition has the same rows as before, whatever files they are in: each row has a number, and their sum is
    the digest of the rows in any order. None if that of one of the files is not known.

    >>> def file(records: int, digest: str) -> DataFile:
    ...     return DataFile("f.parquet", 0, records, 1, 1, digest=digest)
    >>> digest_of([file(2, digest_text(7)), file(1, digest_text(-3))]) == digest_of([file(3, digest_text(4))])
    True
    >>> digest_of([file(2, digest_text(7)), file(1, "")]) is None
    True
    """
    total = 0
    for file in files:
        if not file.digest:
            return None
        total += int(file.digest, 16)
    return digest_text(total)


class UnknownType(PenstockError):
    """A type that the catalogue cannot hold."""


@dataclass(frozen=True, slots=True)
class Type:
    """One node: `name` is `array`, `struct`, `map` or the whole text of a flat type."""

    name: str
    children: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        inner = [child for _, child in self.children]
        if self.name == "struct":
            return f"struct<{','.join(f'{_quoted(name)}:{child}' for name, child in self.children)}>"
        if self.name in ("array", "map"):
            return f"{self.name}<{','.join(map(str, inner))}>"
        return self.name

    @property
    def decimal(self) -> tuple[int, int] | None:
        match = _DECIMAL.fullmatch(self.name)
        return (int(match[1]), int(match[2])) if match else None


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LAKE_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PLAIN_NAME = re.compile(r"\w+")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[<>,:()]|[^\s<>,:()`]+)")

_ALIASES = {
    "bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
    "real": "float", "varchar": "string", "char": "string", "timestamp_ltz": "timestamp",
    "dec": "decimal", "numeric": "decimal",
}  # fmt: skip

_TO_LAKE = {
    "boolean": "boolean", "tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64",
    "float": "float32", "double": "float64", "string": "varchar", "binary": "blob", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "array": "list", "struct": "struct", "map": "map",
}  # fmt: skip

# Types that only DuckDB makes; Spark reads their Parquet form as the next wider type of its own.
_FROM_LAKE = {lake: spark for spark, lake in _TO_LAKE.items()} | {
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)", "json": "string",
    "timestamp_s": "timestamp_ntz", "timestamp_ms": "timestamp_ntz", "timestamp_us": "timestamp_ntz",
}  # fmt: skip


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=4096)
def parse(text: str) -> Type:
    """The tree of a Spark type.

    >>> str(parse("MAP<string, array<struct<a: INTEGER, b: decimal(12, 2)>>>"))
    'map<string,array<struct<a:int,b:decimal(12,2)>>>'
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens).replace(" ", "") != re.sub(r"\s+", "", text):
        raise UnknownType(f"cannot read the type {text!r}: expected a Spark type such as array<bigint>")
    parsed, rest = _parse(tokens, text)
    if rest:
        raise UnknownType(f"cannot read the type {text!r}: {' '.join(rest)!r} is left over")
    return parsed


def _parse(tokens: list[str], text: str) -> tuple[Type, list[str]]:
    if not tokens:
        raise UnknownType(f"cannot read the type {text!r}: it ends too early")
    name, rest = tokens[0].lower(), tokens[1:]
    name = _ALIASES.get(name, name)
    if name in ("array", "map", "struct") and rest[:1] == ["<"]:
        return _parse_nested(name, rest[1:], text)
    arguments: list[str] = []
    if rest[:1] == ["("]:
        end = rest.index(")") if ")" in rest else len(rest)
        arguments, rest = [token for token in rest[1:end] if token != ","], rest[end + 1 :]
    if name == "decimal":
        precision, scale = ([*arguments, "0"] if len(arguments) == 1 else arguments or ["10", "0"])[:2]
        return Type(f"decimal({int(precision)},{int(scale)})"), rest
    if name not in _TO_LAKE or name in ("array", "map", "struct"):
        flat = ", ".join(sorted(set(_TO_LAKE) - {"array", "map", "struct"}))
        raise UnknownType(
            f"type {tokens[0]!r} in {text!r} is not known; expected one of {flat}, decimal(p,s), "
            "array<t>, map<k,v>, struct<name:t>. Cast the column to one of them."
        )
    return Type(name), rest


def _parse_nested(name: str, rest: list[str], text: str) -> tuple[Type, list[str]]:
    fixed = {"array": ["element"], "map": ["key", "value"], "struct": []}[name]
    children: list[tuple[str, Type]] = []
    while rest[:1] != [">"]:
        if children:
            if rest[:1] != [","]:
                raise UnknownType(f"cannot read the type {text!r}: a ',' or '>' is missing")
            rest = rest[1:]
        if name == "struct":
            label, rest = (rest[0] if rest else ""), rest[1:]
            label = label[1:-1].replace("``", "`") if label.startswith("`") else label
            rest = rest[1:] if rest[:1] == [":"] else rest
        else:
            label = fixed[len(children)] if len(children) < len(fixed) else "?"
        child, rest = _parse(rest, text)
        if [token.lower() for token in rest[:2]] == ["not", "null"]:
            rest = rest[2:]
        children.append((label, child))
    if name == "struct" and len({label.lower() for label, _ in children}) < len(children):
        raise UnknownType(f"the type {text!r} has two fields of one name in a struct: give each a name of its own")
    if not children or (fixed and len(children) != len(fixed)):
        raise UnknownType(f"cannot read the type {text!r}: {name} has {len(children)} parts")
    return Type(name, tuple(children)), rest[1:]


def to_lake(node: Type) -> str:
    """DuckLake's name of this node alone; children have rows of their own."""
    return _TO_LAKE.get(node.name, node.name)


def from_lake(name: str, children: tuple[tuple[str, Type], ...] = ()) -> Type:
    match = _LAKE_DECIMAL.fullmatch(name)
    if match:
        return Type(f"decimal({match[1]},{match[2]})")
    spark = _FROM_LAKE.get(name)
    if spark is None:
        raise UnknownType(
            f"a column has DuckLake type {name!r}, which Spark has not; "
            "alter the column in DuckDB to a type that Spark has, such as VARCHAR"
        )
    return Type(spark, children)


# Errors of the catalogue.


class Conflict(PenstockError):
    """Someone else changed the catalogue first. Roll the transaction back, look again, try again."""


class Expired(PenstockError):
    """The snapshot asked for is older than what is kept."""


class SchemaConflict(PenstockError):
    """The new rows do not fit the table as it is."""


class RowsDeletedInPlace(PenstockError):
    """DuckDB marked rows of a file as deleted; a plain list of files cannot say so."""


# What callers hand to the catalogue.

Interval = tuple[int, int]
"""Half-open, microseconds UTC, of partition starts."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a publication.

    `replace` says which partitions' live files end now: `()` none (an append), `None` the whole table.
    `drop_ids` are single files that end (compaction); if one of them is not live any more, the publication is
    refused.
    """

    table: str
    schema: Schema
    replace: Sequence[Interval] | None
    add: Sequence[DataFile]
    drop_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """Who made a snapshot and why; `extra` is stored as JSON."""

    author: str | None = None
    message: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
