"""Rows that this process writes itself and rows that Spark writes: nobody can tell the files apart."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.app import Warehouse
from penstock.engine.spark.session import session_in
from penstock.engine.updates.row_digest import digest_of_sums, row_number, summed
from penstock.engine.updates.rows import RowsProblem, Staged, Writer
from penstock.model.grain import WHOLE, Grain, parse_grain
from penstock.model.schema import Column
from penstock.tables.types import digest_of
from tests.conftest import Write

HIDDEN = ["_penstock_file", "_penstock_sum"]
# Columns, and their values in some rows.
COLUMNS = {
    "boolean": ["true", "false", "null"],
    "tinyint": ["-128", "127", "null"],
    "smallint": ["-32768", "32767", "null"],
    "int": ["-2147483648", "2147483647", "null"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "null"],
    "float": ["-0.0", "'infinity'", "null"],
    "double": ["0.0", "'NaN'", "1e300"],
    "string": ["''", "'naïve \\u0000 text'", "null"],
    "binary": ["X''", "X'00ff'", "null"],
    "date": ["'0001-01-01'", "'1582-10-10'", "'9999-12-31'"],
    "timestamp": ["'0001-01-02 00:00:00'", "'2024-10-27 02:30:00.123456'", "null"],
    "timestamp_ntz": ["'1582-10-10 12:00:00'", "'2024-03-31 02:30:00.000001'", "null"],
    "decimal(3,2)": ["-9.99", "9.99", "null"],
    "decimal(18,6)": ["-999999999999.999999", "0", "null"],
    "decimal(38,10)": ["-9999999999999999999999999999.9999999999", "0.0000000001", "null"],
    "array<int>": ["array()", "array(1, null)", "null"],
    "array<array<string>>": ["array(array('a'), null)", "array()", "null"],
    "map<string,timestamp>": ["map()", "map('a', timestamp'2024-01-01 00:00:00', 'b', null)", "null"],
    "struct<x:int,`y z`:decimal(5,1)>": ["named_struct('x', 1, 'y z', 1.5)", "named_struct('x', null, 'y z', null)", "null"],
    "array<struct<d:double>>": ["array(named_struct('d', double('NaN')))", "array(null)", "null"],
    "struct<m:map<int,array<date>>>": ["named_struct('m', map(1, array(date'2024-02-29')))", "null", "null"],
}  # fmt: skip


def rows_of_all_types(session: SparkSession) -> DataFrame:
    lines = [
        ", ".join(f"cast({values[row]} as {kind}) as `c{n}`" for n, (kind, values) in enumerate(COLUMNS.items()))
        for row in range(3)
    ]
    # Columns and fields that are never null, too; and three partitions, one of them twice.
    also = "named_struct('never', 1L) as never, 'x' as sure, if({row} = 1, null, named_struct('in', 2)) as may"
    parts = [
        f"select timestamp'2024-02-29 12:00:00' + make_interval(0,0,0,{row % 2},0,0,0) as at, {line}, {also.format(row=row)}, "
        f"{row}L as _penstock_file, cast({row} as decimal(20,2)) as _penstock_sum"
        for row, line in enumerate(lines)
    ]
    return session.sql(" union all ".join(parts))


def both(rows: DataFrame, folder: Path, time: str | None, grain: Grain) -> tuple[Staged, Staged]:
    mine = Writer(1 << 20).stage(rows, folder / "mine" / "job", str(folder / "mine"), time, grain, 0, HIDDEN)
    sparks = Writer(0).stage(rows, folder / "spark" / "job", str(folder / "spark"), time, grain, 1, HIDDEN)
    return mine, sparks


def known(staged: Staged) -> list[object]:
    """What the catalogue gets to know, but for sizes."""
    files = sorted(staged.files, key=lambda file: file.partition_us)
    found: list[object] = [staged.schema, staged.hidden]
    for file in files:
        stats = {name: replace(each, size_bytes=None) for name, each in file.stats.items()}
        found.append((file.partition_us, file.records, file.physical, Path(file.path).parent.name, stats))
    return found


def schema_text(path: str) -> str:
    """Fields within others may all be null in ours."""
    text = str(pq.ParquetFile(path).schema).split("\n", 2)[2]
    return re.sub(r"(?m)^(    .*)required", r"\1optional", re.sub(r"(?m)^    +required (?=.* key )", "    key ", text))


@pytest.mark.parametrize("grain", [WHOLE, parse_grain("day", "Europe/Berlin")])
def test_all_types_are_the_same_to_all_readers(spark: SparkSession, tmp_path: Path, grain: Grain) -> None:
    session = session_in(spark, "Europe/Berlin")
    rows = rows_of_all_types(session)
    mine, sparks = both(rows, tmp_path, "at", grain)
    assert len(mine.files) == (1 if grain is WHOLE else 2) and not mine.twice
    for one, other in zip(known(mine), known(sparks), strict=True):
        if isinstance(one, tuple) and isinstance(other, tuple) and isinstance(one[-1], dict):
            # Of numbers that are none, at most how many there are is told.
            for name in [name for name in ("c6", "c19.element.d") if one[-1][name].min is None]:
                assert one[-1].pop(name).max is other[-1].pop(name).max is None
        assert one == other
    paths = [
        sorted(str(tmp_path / name / file.path) for file in staged.files)
        for name, staged in (("mine", mine), ("spark", sparks))
    ]
    for one_path, other_path in zip(*paths, strict=True):
        assert schema_text(one_path) == schema_text(other_path)
        first, second = pq.ParquetFile(one_path), pq.ParquetFile(other_path)
        assert first.metadata.metadata == second.metadata.metadata
        chunks = [file.metadata.row_group(0).column(0).compression for file in (first, second)]
        assert chunks == ["SNAPPY", "SNAPPY"]
        assert repr(first.read().to_pylist()) == repr(second.read().to_pylist())
    # Spark, by what the file says, and with a filter that looks at statistics: a NaN is larger than all numbers.
    frames = [session.read.parquet(*each) for each in paths]
    assert frames[0].schema == frames[1].schema
    for condition in ("true", "c6 > 1e301", "c3 < 0", "c7 is null", "c12 = 9.99"):
        found = [
            sorted(row[0] for row in frame.where(condition).selectExpr("to_json(struct(*))").collect())
            for frame in frames
        ]
        assert found[0] == found[1] and found[0]
    with duckdb.connect() as duck:
        for condition in ("true", "c6 > 1e301", "c3 < 0"):
            answers = [
                duck.execute(f"select * from read_parquet({each}, hive_partitioning = false) where {condition} order by _penstock_file").fetchall()
                for each in paths
            ]  # fmt: skip
            assert repr(answers[0]) == repr(answers[1]) and answers[0]


def test_no_rows_and_rows_without_a_time(spark: SparkSession, tmp_path: Path) -> None:
    mine, sparks = both(rows_of_all_types(spark).where("c3 > 5 and c3 < 4"), tmp_path, None, WHOLE)
    assert known(mine) == known(sparks) and not mine.files and not (tmp_path / "mine" / "job").exists()
    nowhere = spark.sql("select cast(null as timestamp) as at, 1 as n")
    for limit in (0, 1 << 20):
        with pytest.raises(RowsProblem, match="have no time"):
            Writer(limit).stage(nowhere, tmp_path / f"{limit}", str(tmp_path), "at", parse_grain("day", "UTC"), 0)


def test_what_spark_refuses_is_refused_in_the_same_words(spark: SparkSession, tmp_path: Path) -> None:
    for sql in ("select 1 as a, 2 as A", "select make_interval(1) as a"):
        said = []
        for limit in (0, 1 << 20):
            with pytest.raises(Exception) as caught:
                Writer(limit).stage(spark.sql(sql), tmp_path / f"{limit}", str(tmp_path), None, WHOLE, 1)
            said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "none", "lz4_raw"])
def test_files_are_compressed_as_the_session_says(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    session = session_in(spark, "UTC")
    session.conf.set("spark.sql.parquet.compression.codec", codec)
    mine, sparks = both(session.sql("select 'text' as a"), tmp_path, None, WHOLE)
    found = [
        pq.ParquetFile(tmp_path / name / staged.files[0].path).metadata.row_group(0).column(0).compression
        for name, staged in (("mine", mine), ("spark", sparks))
    ]
    assert found[0] == found[1]
    suffixes = [re.sub(r"part-00000-[0-9a-f-]{36}", "", Path(staged.files[0].path).name) for staged in (mine, sparks)]
    assert suffixes[0] == re.sub(r"-c000", ".c000", suffixes[1])


@pytest.mark.parametrize(
    "sql",
    [
        "select cast(n % 9 as tinyint) as n from range(10) lateral view explode(sequence(1, 1000000)) as n",
        "select repeat('x', 1000000) as wide, id from range(100)",
        "select id, if(id = 500, repeat('x', 3000000), '') as wide from range(501)",
    ],
)
def test_a_result_that_turns_out_large_is_written_by_spark(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    writer = Writer(1 << 20)
    staged = writer.stage(spark.sql(sql), tmp_path / "job-1", str(tmp_path), None, WHOLE, 100)
    assert staged.twice and staged.rows == spark.sql(sql).count()
    # That is remembered; with less input it is tried again.
    assert not writer.stage(spark.sql("select 1 as n"), tmp_path / "job-2", str(tmp_path), None, WHOLE, 100).twice
    assert all("-c000." in path.name for path in tmp_path.rglob("part-*.parquet"))
    small = writer.stage(spark.sql("select 1 as n"), tmp_path / "job-3", str(tmp_path), None, WHOLE, 99)
    assert ".c000." in small.files[0].path


def test_refused_rows_are_counted_once_when_the_others_turn_out_many(spark: SparkSession, project: Write) -> None:
    folder = project(
        {
            "penstock.toml": """
                name = "large"
                [run]
                driver_bytes = 200
                [feeds.ev]
                path = "landing/*.csv"
                format = "csv"
                columns = "k string, n bigint"
                rules = ["n > 0"]
            """,
            "tables/many.sql": """
                -- feed = "ev"
                SELECT k, explode(sequence(1, 1000)) AS n FROM ev
            """,
            "landing/a.csv": "k,n\na,1\nb,2\nc,-1\nd,text\n",
        }
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        (status,) = (row for row in warehouse.status() if row.table == "many")
        assert (status.rows, status.quarantined_rows) == (2000, 2)


def test_the_digest_of_rows_is_the_same_whoever_wrote_them(spark: SparkSession, tmp_path: Path) -> None:
    session = session_in(spark, "Europe/Berlin")
    rows = rows_of_all_types(session).drop("c18")  # whose name of a field Spark does not quote
    mine, sparks = both(rows, tmp_path, "at", parse_grain("day", "Europe/Berlin"))
    number = row_number(mine.schema)
    assert number is not None and all(file.digest for file in mine.files)
    assert not any(file.digest for file in sparks.files)

    def digest(frame: DataFrame) -> str:
        (sums,) = summed(frame, number).collect()
        return digest_of_sums(sums["high"], sums["low"])

    def read(name: str, staged: Staged) -> DataFrame:
        return session.read.schema(rows.schema).parquet(*(str(tmp_path / name / file.path) for file in staged.files))

    known = digest_of(mine.files)
    # Backwards, in pieces, and with other numbers of files.
    other = read("spark", sparks).withColumn("_penstock_file", F.lit(7)).orderBy(F.desc("c0")).repartition(3)
    assert digest(read("mine", mine)) == digest(other) == known
    # What Spark's own hash passes over: which of two values is null, also within others.
    for change in (
        {"c4": F.col("c4") + F.when(F.col("c4") < 0, 1).otherwise(-1)},
        {"c3": F.expr("try_cast(c4 as int)"), "c4": F.expr("cast(c3 as bigint)")},
        {"c15": F.expr("if(c15 is null, null, array(null, 1))")},
        {"c7": F.expr("coalesce(c7, '')")},
        {"c17": F.expr("map('a', timestamp'2024-01-01 00:00:00.000001', 'b', null)")},
    ):
        assert digest(read("mine", mine).withColumns(change)) != known, change


def test_nothing_is_said_of_rows_of_types_that_are_not_known() -> None:
    assert row_number((Column("v", "variant"),)) is None
    assert row_number((Column("v", "array<interval day to second>"),)) is None
