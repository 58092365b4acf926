"""DuckDB writes to the same lake, and both go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.schema import Column
from penstock.tables import Catalogue, RowsDeletedInPlace, TableChange

from .conftest import DAY_US, T0_US, Lake, columns, rows

S = columns(id="bigint", name="string")


def append(lake: Lake, number: int, partition_us: int = 0) -> int:
    return lake.append("t", S, rows(id=[number], name=["ours"]), partition_us)


def theirs(lake: Lake, *statements: str) -> None:
    con = lake.duckdb()
    for statement in statements:
        con.execute(statement)
    con.close()


def ids(lake: Lake, suffix: str = "") -> list[int]:
    found: list[int] = lake.query(f"SELECT list(id ORDER BY id) FROM t {suffix}")[0][0]
    return found


def test_both_insert(lake: Lake) -> None:
    append(lake, 1, DAY_US)
    theirs(lake, "INSERT INTO t VALUES (2, 'theirs')")
    # Seen at once, though we wrote nothing since.
    assert [file.records for file in lake.files("t")] == [1, 1]
    assert [file.begin for file in lake.files("t", added_after=1)] == [2]
    assert append(lake, 3, DAY_US) == 3
    assert ids(lake) == [1, 2, 3]
    assert lake.scalar("SELECT next_row_id FROM ducklake_table_stats") == 3
    assert len({row[0] for row in lake.query("SELECT rowid FROM t")}) == 3
    # Of unknown partition: listed for each, replaced with the whole table only.
    assert [file.begin for file in lake.files("t", within=[(DAY_US, 2 * DAY_US)])] == [1, 2, 3]
    assert [file.begin for file in lake.files("t", within=[(0, DAY_US)])] == [2]
    lake.publish(TableChange("t", S, [(0, 9 * DAY_US)], []))
    assert ids(lake) == [2]
    lake.publish(TableChange("t", S, None, []))
    assert lake.query("SELECT count(*) FROM t") == [(0,)]
    assert lake.files("t") == []


def test_small_inserts_are_files(lake: Lake) -> None:
    append(lake, 1)
    theirs(lake, "INSERT INTO t VALUES (2, 'x')")
    assert lake.scalar("SELECT count(*) FROM ducklake_data_file") == 2
    assert lake.scalar("SELECT count(*) FROM ducklake_inlined_data_tables") == 0


def test_they_create_and_alter(lake: Lake) -> None:
    theirs(lake, "CREATE TABLE t (id BIGINT, name VARCHAR)", "INSERT INTO t VALUES (1, 'theirs')")
    append(lake, 2)
    theirs(lake, "ALTER TABLE t ADD COLUMN more INTEGER", "INSERT INTO t VALUES (3, 'theirs', 33)")
    with lake.begin() as conn:
        wide = lake.catalogue.schema(conn, "t")
    assert wide == (*S, Column("more", "int"))
    lake.append("t", wide, rows(id=[4], name=["ours"], more=[44]))
    assert lake.query("SELECT id, more FROM t ORDER BY id") == [(1, None), (2, None), (3, 33), (4, 44)]


def test_they_end_files(lake: Lake) -> None:
    append(lake, 1)
    append(lake, 2)
    theirs(lake, "DELETE FROM t")
    assert lake.files("t") == []
    assert [file.begin for file in lake.files("t", 2)] == [1, 2]
    append(lake, 3)
    assert ids(lake) == [3]
    assert [file.begin for file in lake.files("t")] == [4]
    with lake.begin() as conn:
        assert len(lake.catalogue.expire(conn, "t", 1, None, lake.clock_us)) == 2


def test_rows_deleted_in_place_are_not_read_back(lake: Lake) -> None:
    lake.append("t", S, rows(id=[1, 2], name=["a", "b"]))
    theirs(lake, "DELETE FROM t WHERE id = 1")
    with pytest.raises(RowsDeletedInPlace, match="ducklake_rewrite_data_files"):
        lake.files("t")
    assert [file.records for file in lake.files("t", 1)] == [2]
    theirs(lake, "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    assert [file.records for file in lake.files("t")] == [1]
    append(lake, 9)
    assert ids(lake) == [2, 9]


def test_their_maintenance(lake: Lake) -> None:
    for number in range(4):
        append(lake, number)
    theirs(
        lake,
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_expire_snapshots('lake', older_than => now())",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    )
    assert sum(file.records for file in lake.files("t")) == 4
    append(lake, 4)
    assert ids(lake) == [0, 1, 2, 3, 4]
    assert sum(file.records for file in lake.files("t")) == 5
    with lake.begin() as conn:
        assert list(lake.catalogue.unknown_files(conn)) == []


def test_a_lake_of_theirs_becomes_ours(lake: Lake) -> None:
    theirs(lake, 'CREATE TABLE "odd name" (id BIGINT, name VARCHAR)', "INSERT INTO \"odd name\" VALUES (1, 'theirs')")
    with lake.begin() as conn:
        lake.catalogue.create(conn, T0_US)
    lake.append("odd name", S, rows(id=[2], name=["ours"]))
    assert lake.query('SELECT list(id ORDER BY id) FROM "odd name"') == [([1, 2],)]
    files = lake.files("odd name")
    assert len(files) == 2
    assert all(Path(lake.catalogue.locate("odd name", file)).exists() for file in files)
    with lake.begin() as conn:
        assert list(lake.catalogue.unknown_files(conn)) == []
    lake.publish(TableChange("odd name", S, None, []))
    with lake.begin() as conn:
        # DuckDB's snapshots bear the time of the real clock, which is ahead of the test's.
        gone = lake.catalogue.expire(conn, "odd name", None, lake.clock_us + 100_000 * DAY_US, lake.clock_us)
    assert sorted(gone) == sorted(lake.catalogue.locate("odd name", file) for file in files)


def test_an_open_duckdb_sees_what_we_publish(lake: Lake) -> None:
    if lake.extension == "sqlite_scanner":
        pytest.skip("two SQLite libraries in one process do not see each other's locks")
    append(lake, 1)
    con = lake.duckdb()
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
    wide = (*S, Column("more", "array<int>"))
    lake.append("t", wide, rows(id=[2], name=["x"], more=[[1, 2]]))
    assert con.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, "ours", None), (2, "x", [1, 2])]
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (3, 'theirs', NULL)")
    append_wide = lake.append("t", wide, rows(id=[4], name=["x"], more=[[1, 2]]))
    con.execute("COMMIT")
    assert append_wide == 3
    assert con.execute("SELECT list(id ORDER BY id) FROM t").fetchall() == [([1, 2, 3, 4],)]
    con.close()
    assert Catalogue(lake.catalogue.data_path).folder("t") == lake.catalogue.folder("t")
