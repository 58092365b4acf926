"""Files as Spark writes them: published, read by DuckDB, and read back by Spark under a wider schema."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.model.schema import Column, Schema, ddl
from penstock.tables import DataFile, TableChange
from penstock.tables.footer import read_footer

from .conftest import Lake

pytestmark = pytest.mark.spark

ROW = (
    7,
    Decimal("-12.34"),
    Decimal("12345678901234567890.123456"),
    datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 250000),
    date(2024, 2, 29),
    ["a", None],
    {"x": 1, "y": [0.5, 1.5]},
    {"k": {"z": 3}},
    bytearray(b"\0\1"),
    42,
)
TYPES = (
    "int", "decimal(6,2)", "decimal(30,6)", "timestamp", "timestamp_ntz", "date", "array<string>",
    "struct<x:int,y:array<double>>", "map<string,struct<z:int>>", "binary",
)  # fmt: skip
SCHEMA: Schema = tuple(Column(f"c{number}", kind) for number, kind in enumerate(TYPES))


def written(lake: Lake, frame: Any, name: str) -> list[DataFile]:
    folder = lake.catalogue.folder("t")
    frame.coalesce(1).write.mode("error").parquet(f"{folder}{name}")
    return [read_footer(str(path), 0, folder) for path in sorted(Path(folder, name).glob("*.parquet"))]


def test_files_of_spark(lake: Lake, spark: Any) -> None:
    hidden = (*SCHEMA, Column("_penstock_count", "bigint"))
    nothing = (None,) * len(ROW)
    frame = spark.createDataFrame([ROW, nothing], ddl(hidden)).repartition(1)
    files = written(lake, frame, "job-1")
    assert [file.physical for file in files] == ["_penstock_count"]
    stats = files[0].stats
    assert (stats["c1"].min, stats["c2"].max) == ("-12.34", "12345678901234567890.123456")
    assert stats["c3"].min == "2024-02-29 12:00:00.25+00"
    assert stats["c4"].min == "2024-02-29 12:00:00.25"
    assert stats["c5"].min == "2024-02-29"
    assert stats["c7.y.element"].max == "1.5"
    assert stats["c8.value.z"].min == "3"
    lake.publish(TableChange("t", SCHEMA, (), files))

    names = ", ".join("c3::VARCHAR" if column.name == "c3" else column.name for column in SCHEMA)
    expected = list(ROW[: len(SCHEMA)])
    expected[3], expected[9] = "2024-02-29 12:00:00.25+00", b"\0\1"
    assert lake.query(f"SELECT {names} FROM t WHERE c0 = 7") == [tuple(expected)]
    assert lake.query(f"SELECT {names} FROM t WHERE c5 IS NULL") == [(None,) * len(SCHEMA)]
    assert lake.query("SELECT c8['k'].z, c7.y[2] FROM t WHERE c1 < 0") == [(3, 1.5)]

    wide = (
        Column("c0", "bigint"),
        Column("c1", "decimal(12,4)"),
        *SCHEMA[2:7],
        Column("c7", "struct<x:bigint,y:array<double>,w:string>"),
        *SCHEMA[8:],
        Column("added", "string"),
    )
    newer = (2**40, Decimal("1.2345"), *ROW[2:7], {"x": 2**40, "y": [], "w": "w"}, *ROW[8:10], "new")
    lake.publish(TableChange("t", wide, (), written(lake, spark.createDataFrame([newer], ddl(wide)), "job-2")))
    assert lake.query("SELECT c0, c1, c7.x, c7.w, added FROM t WHERE c0 IS NOT NULL ORDER BY c0") == [
        (7, Decimal("-12.3400"), 1, None, None),
        (2**40, Decimal("1.2345"), 2**40, "w", "new"),
    ]
    paths = [lake.catalogue.locate("t", file) for file in lake.files("t")]
    read = spark.read.schema(ddl(wide)).parquet(*paths).where("c0 is not null").orderBy("c0")
    assert [(row.c0, row.c1, row.c7.x, row.c7.w, row.added) for row in read.collect()] == [
        (7, Decimal("-12.3400"), 1, None, None),
        (2**40, Decimal("1.2345"), 2**40, "w", "new"),
    ]
    shutil.rmtree(lake.catalogue.folder("t"))
