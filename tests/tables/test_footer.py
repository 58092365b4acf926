from __future__ import annotations

import math
import struct
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.tables import ColumnStats, DataFile
from penstock.tables.footer import read_footer
from penstock.tables.known import ColumnRange, widen

from .conftest import rows


def footer(tmp_path: Path, table: pa.Table, **options: object) -> DataFile:
    path = tmp_path / "sub" / "f.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **options)
    return read_footer(str(path), 7, str(tmp_path))


def test_counts_and_sizes(tmp_path: Path) -> None:
    file = footer(tmp_path, rows(a=[1, None, 3], _penstock_sum_a=[1, 2, 3], _penstock_n=[1, 1, 1]))
    content = (tmp_path / "sub" / "f.parquet").read_bytes()
    assert (file.path, file.partition_us, file.records) == ("sub/f.parquet", 7, 3)
    assert file.size_bytes == len(content)
    assert file.footer_bytes == struct.unpack("<I", content[-8:-4])[0]
    assert file.physical == "_penstock_sum_a,_penstock_n"


def test_bounds_are_over_all_row_groups(tmp_path: Path) -> None:
    file = footer(tmp_path, rows(a=[5, 1, None, 9], s=["é", "b", "zz", None]), row_group_size=1)
    assert (file.stats["a"].values, file.stats["a"].nulls) == (3, 1)
    assert (file.stats["a"].min, file.stats["a"].max) == ("1", "9")
    assert (file.stats["s"].min, file.stats["s"].max) == ("b", "é")


def test_text_forms(tmp_path: Path) -> None:
    file = footer(
        tmp_path,
        rows(
            b=[True, False],
            f=pa.array([1.1, -2.5], pa.float32()),
            d=pa.array([Decimal("-2.50"), Decimal("123456789012345678901234567890123456.78")], pa.decimal128(38, 2)),
            day=pa.array([date(2024, 2, 1), date(1969, 12, 31)]),
            at=pa.array([1_500_000, 0], pa.timestamp("us", "UTC")),
            local=pa.array([1_000_000, 0], pa.timestamp("us")),
            nanos=pa.array([1_001, 2_001], pa.timestamp("ns")),
            raw=[b"a", b"b"],
        ),
    )
    bounds = {name: (stats.min, stats.max) for name, stats in file.stats.items()}
    assert bounds["b"] == ("0", "1")
    assert bounds["f"] == ("-2.5", "1.100000023841858")
    assert bounds["d"] == ("-2.50", "123456789012345678901234567890123456.78")
    assert bounds["day"] == ("1969-12-31", "2024-02-01")
    assert bounds["at"] == ("1970-01-01 00:00:00+00", "1970-01-01 00:00:01.5+00")
    assert bounds["local"] == ("1970-01-01 00:00:00", "1970-01-01 00:00:01")
    assert bounds["nanos"] == ("1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000003")
    assert bounds["raw"] == (None, None)


def test_unknown_is_not_guessed(tmp_path: Path) -> None:
    file = footer(tmp_path, rows(a=[1, 2]), write_statistics=False)
    assert (file.stats["a"].nulls, file.stats["a"].min) == (None, None)
    nul = footer(tmp_path, rows(s=["a\0", "b"]))
    assert (nul.stats["s"].min, nul.stats["s"].max) == (None, "b")


def test_nested_leaves_have_dotted_names(tmp_path: Path) -> None:
    nested = rows(
        s=pa.array([{"a": 1, "l": [{"q": 5}, {"q": 2}]}]),
        m=pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
    )
    stats = footer(tmp_path, nested).stats
    assert set(stats) == {"s.a", "s.l.element.q", "m.key", "m.value"}
    assert (stats["s.l.element.q"].min, stats["s.l.element.q"].max) == ("2", "5")


def test_names_that_could_be_two_columns_have_no_statistics(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1], "a": [{"b": 2}], "c": [3]})
    assert set(footer(tmp_path, table).stats) == {"c"}


def test_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    pq.write_table(rows(a=[1]), tmp_path / "f.parquet")
    with pytest.raises(PenstockError, match="not under its table's folder"):
        read_footer(str(tmp_path / "f.parquet"), 0, str(tmp_path / "other"))


def stats_of(values: list[float | None]) -> ColumnStats:
    there = [value for value in values if value is not None]
    ordered = [value for value in there if not math.isnan(value)]
    return ColumnStats(
        values=len(there),
        nulls=len(values) - len(there),
        min=repr(min(ordered)) if ordered else None,
        max=repr(max(ordered)) if ordered else None,
        contains_nan=len(ordered) < len(there),
    )


FILES = st.lists(st.lists(st.none() | st.floats(), max_size=4), min_size=1, max_size=4)


@given(FILES)
def test_a_table_is_bounded_by_all_its_files(files: list[list[float | None]]) -> None:
    known: ColumnRange | None = None
    for file in files:
        known = widen(known, stats_of(file), "float64")
    assert known is not None
    everything = [value for file in files for value in file]
    assert known.contains_null == any(value is None for value in everything)
    assert known.contains_nan == any(value is not None and math.isnan(value) for value in everything)
    for value in everything:
        if value is not None and not math.isnan(value):
            assert known.min is None or float(known.min) <= value
            assert known.max is None or float(known.max) >= value


def test_once_unknown_always_unknown() -> None:
    known = widen(None, ColumnStats(values=1, nulls=0), "int64")
    assert widen(known, ColumnStats(values=1, nulls=0, min="1", max="1"), "int64").min is None
    assert (
        widen(ColumnRange(False, None, "2024-01-01", "2024-01-01"), ColumnStats(1, 0, "1 BC", "x"), "date").max is None
    )
    assert widen(ColumnRange(False, None, "1", "9"), None, "int64") == ColumnRange(True, None, "1", "9")
