"""What was just written is read from memory, and that is the same as reading its file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.spark.session import session_in
from penstock.engine.updates import rows as files
from penstock.engine.updates.recent import RecentRows
from penstock.engine.updates.rows import Writer, local, read_files
from penstock.model.grain import parse_grain
from penstock.model.schema import Column, Schema
from tests.conftest import Write
from tests.engine.test_collected import HIDDEN, rows_of_all_types

SCHEMA: Schema = (Column("k", "string"), Column("n", "bigint"))


def made(folder: Path, name: str, *numbers: int) -> tuple[str, pa.Table]:
    path = folder / name
    path.write_text("")
    return str(path), pa.table({"k": ["a"] * len(numbers), "n": pa.array(numbers, pa.int64())})


def test_rows_of_files_that_are_kept(tmp_path: Path) -> None:
    recent = RecentRows(1 << 20, 1 << 10)
    one, two = made(tmp_path, "one", 1, 2), made(tmp_path, "two", 3)
    for path, rows in (one, two):
        recent.keep(path, rows, SCHEMA)
    found = recent.rows([one[0], two[0]], (Column("N", "bigint"),))
    assert found is not None and found.to_pydict() == {"N": [1, 2, 3]}
    # Only if all of it is there, as it is wanted, and still on the disk.
    assert recent.rows([one[0], str(tmp_path / "other")], SCHEMA) is None
    assert recent.rows([one[0]], (Column("n", "int"),)) is None
    assert recent.rows([one[0]], (*SCHEMA, Column("new", "string"))) is None
    assert recent.rows([], SCHEMA) is None
    Path(one[0]).unlink()
    assert recent.rows([one[0]], SCHEMA) is None


def test_files_whose_columns_may_or_may_not_be_null(tmp_path: Path) -> None:
    """Of a count Spark says that it is never null; of the same column read from a file it does not."""
    recent = RecentRows(1 << 20, 1 << 10)
    one, (two, counted) = made(tmp_path, "one", 1, 2), made(tmp_path, "two", 3)
    never = counted.cast(pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)]))
    recent.keep(*one, SCHEMA)
    recent.keep(two, never, SCHEMA)
    found = recent.rows([one[0], two], SCHEMA)
    assert found is not None and found.column("n").to_pylist() == [1, 2, 3]


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    every = [made(tmp_path, str(number), *range(10)) for number in range(5)]
    size = every[0][1].nbytes
    recent = RecentRows(3 * size, 2 * size)
    for path, rows in every[:3]:
        recent.keep(path, rows, SCHEMA)
    assert recent.rows([every[0][0]], SCHEMA) is not None
    recent.keep(*every[3], SCHEMA)
    # The one that nobody asked for goes first; never is there more than the limit.
    assert [recent.rows([path], SCHEMA) is not None for path, _ in every] == [True, False, True, True, False]
    assert recent.size_bytes == 3 * size
    recent.keep(*made(tmp_path, "large", *range(50)), SCHEMA)
    assert recent.size_bytes == 3 * size
    assert recent.rows([every[n][0] for n in (0, 2, 3)], SCHEMA) is None, "together too much to be handed over"


def test_all_types_are_the_same_from_memory(spark: SparkSession, tmp_path: Path) -> None:
    session = session_in(spark, "Europe/Berlin")
    recent = RecentRows(1 << 20, 1 << 20)
    frame = rows_of_all_types(session).drop("c18")  # a name that only Spark writes
    writer = Writer(1 << 20, recent.keep)
    staged = writer.stage(frame, tmp_path / "job", str(tmp_path), "at", parse_grain("day", "UTC"), 0, HIDDEN)
    schema = (*staged.schema, *staged.hidden)
    paths = [str(tmp_path / file.path) for file in staged.files]
    assert recent.rows(paths, schema) is None, "nested values come from their file"
    schema = tuple(column for column in schema if "<" not in column.type)
    kept = recent.rows(paths, schema)
    assert kept is not None
    mine, read = local(session, kept, schema), read_files(session, paths, schema, 0)
    assert mine.schema == read.schema
    said = [sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect()) for frame in (mine, read)]
    assert said[0] == said[1] and len(said[0]) == 3


TOML = """
name = "chain"
[feeds.ev]
path = "landing/*.csv"
format = "csv"
columns = "k string, ts timestamp, n bigint"
time = "ts"
partition = "day"
settle = "0s"
"""
FILES = {
    "penstock.toml": TOML,
    "tables/daily.sql": '-- partition = "day"\n-- time = "day"\nSELECT k, date_trunc(\'day\', ts) AS day, sum(n) AS n, max(n) AS most '
    "FROM ev GROUP BY 1, 2",
    "tables/total.sql": "SELECT k, sum(n) AS n, max(most) AS most FROM daily GROUP BY 1",
}


def deliver(folder: Path, name: str, *rows: str) -> None:
    staged = folder / "landing" / f".{name}"
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("k,ts,n\n" + "".join(f"{row}\n" for row in rows))
    staged.rename(folder / "landing" / name)


def test_a_chain_reads_no_file_that_it_wrote_and_never_an_old_one(
    spark: SparkSession, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(FILES)
    reads: list[str] = []
    read = files.read_files
    for module in ("derive", "recent"):
        monkeypatch.setattr(
            f"penstock.engine.updates.{module}.read_files",
            lambda session, paths, *more: reads.extend(paths) or read(session, paths, *more),
        )
    with Warehouse(folder, spark=spark) as warehouse:

        def total() -> list[tuple[object, ...]]:
            return sorted(tuple(row) for row in warehouse.table("total").collect())

        with warehouse.running() as runtime:
            deliver(folder, "1.csv", "a,2024-01-01T01:00:00Z,1", "b,2024-01-01T02:00:00Z,5")
            runtime.run(until_idle=True)
            deliver(folder, "2.csv", "a,2024-01-01T03:00:00Z,2", "a,2024-01-02T03:00:00Z,7")
            runtime.run(until_idle=True)
            assert total() == [("a", 10, 7), ("b", 5, 5)]
            assert reads == []
            # A file with other content, one that is withdrawn, and a partition that is made again.
            deliver(folder, "2.csv", "a,2024-01-01T03:00:00Z,3")
            runtime.run(until_idle=True)
            assert total() == [("a", 4, 3), ("b", 5, 5)]
            warehouse.withdraw("landing/1.csv")
            runtime.run(until_idle=True)
            assert total() == [("a", 3, 3)]
            deliver(folder, "3.csv", "b,2024-01-01T03:00:00Z,1")
            runtime.run(until_idle=True)
            assert total() == [("a", 3, 3), ("b", 1, 1)]
