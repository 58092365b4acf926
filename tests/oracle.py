"""The outside oracle: DuckDB reads the published tables through its own ducklake extension, and computes what they should
hold from the raw feed files. Neither path has anything of ours in it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension


def attach(project: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the project's lake attached as `lake`.

    On a copy of the catalogue: two SQLite libraries in one process do not see each other's locks. (Tests of the
    catalogue itself attach the real one.)"""
    copy = Path(tempfile.mkdtemp()) / "catalogue.db"
    with closing(sqlite3.connect(project / ".penstock" / "penstock.db")) as original:
        original.execute("VACUUM INTO ?", (str(copy),))
    con = duckdb.connect()
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name, con=con)
        con.load_extension(name)
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"ATTACH 'ducklake:sqlite:{copy}' AS lake (READ_ONLY)")
    return con


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return sorted(con.execute(sql).fetchall(), key=lambda row: tuple(str(value) for value in row))


def assert_same(con: duckdb.DuckDBPyConnection, published: str, expected: str, why: str = "") -> None:
    """Two queries give the same rows, as multisets."""
    got, want = rows(con, published), rows(con, expected)
    missing = _difference(want, got)
    extra = _difference(got, want)
    assert not missing and not extra, (
        f"{why}\nmissing: {missing[:5]}\nextra: {extra[:5]}\n({len(got)} rows, expected {len(want)})"
    )


def _difference(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    rest = list(right)
    found = []
    counts: dict[Any, int] = {}
    for row in rest:
        counts[repr(row)] = counts.get(repr(row), 0) + 1
    for row in left:
        if counts.get(repr(row), 0):
            counts[repr(row)] -= 1
        else:
            found.append(row)
    return found
