"""A number for each row, computed by Spark in the same pass as the row. Their sum tells whether a partition has the same rows as
before (`tables.types.digest_of`)."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.model.schema import Schema, ddl
from penstock.tables.types import Type, UnknownType, digest_text, parse

NUMBER = "_penstock_number"
_FLAT = frozenset(
    ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"]
)  # fmt: skip
# Nested values are compared as text, with all that tells them apart.
_AS_TEXT = "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
_HALF = 1 << 32


def row_number(schema: Schema) -> str | None:
    """The number of a row with these columns, as SQL; None if it has a type of which nothing is known."""
    try:
        kinds = [(f"`{column.name.replace('`', '``')}`", parse(column.type)) for column in schema]
    except UnknownType:
        return None
    if not all(_known(kind) for _, kind in kinds):
        return None
    values = [f"to_json(struct({name}), {_AS_TEXT})" if kind.children else name for name, kind in kinds]
    # Spark passes over what is null; and names and types are part of the rows.
    parts = [
        f"'{sha256(ddl(schema).encode()).hexdigest()}'",
        *(f"{name} is null, {value}" for (name, _), value in zip(kinds, values, strict=True)),
    ]
    return f"xxhash64({', '.join(parts)})"


def _known(kind: Type) -> bool:
    if kind.children:
        return all(_known(child) for _, child in kind.children)
    return kind.name in _FLAT or kind.decimal is not None


def digest_of_numbers(numbers: pa.ChunkedArray) -> str:
    return digest_text(int(np.sum(numbers.to_numpy().view(np.uint64), dtype=np.uint64)))


def summed(rows: DataFrame, number: str) -> DataFrame:
    """One row with the sum of the numbers of many, in halves that do not overflow."""
    low = f"pmod({NUMBER}, {_HALF}L)"
    sums = f"coalesce(sum(({NUMBER} - {low}) div {_HALF}L), 0L) as high", f"coalesce(sum({low}), 0L) as low"
    return rows.selectExpr(f"{number} as {NUMBER}").selectExpr(*sums)


def digest_of_sums(high: int, low: int) -> str:
    return digest_text(high * _HALF + low)
