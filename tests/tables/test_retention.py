"""Old versions go; every snapshot that remains is complete."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.tables import Expired, TableChange

from .conftest import DAY_US, T0_US, Lake, columns, make_lake, rows

S = columns(id="bigint")


def overwrite(lake: Lake, table: str, value: int) -> int:
    return lake.publish(TableChange(table, S, None, [lake.write(table, rows(id=[value]))]))


def expire(lake: Lake, table: str, keep: int | None = None, older_than_us: int | None = None) -> list[str]:
    with lake.begin() as conn:
        gone = lake.catalogue.expire(conn, table, keep, older_than_us, lake.clock_us)
    for path in gone:
        Path(path).unlink()
    with lake.begin() as conn:
        lake.catalogue.forget(conn, gone)
    return gone


def snapshots(lake: Lake) -> list[int]:
    return [row[0] for row in lake.query("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]


def check_complete(lake: Lake, truth: dict[int, dict[str, list[int]]]) -> None:
    """DuckDB reads each snapshot that is left as it was when it was made."""
    con = lake.duckdb()
    for snapshot in [row[0] for row in con.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()]:
        for table, ids in truth.get(snapshot, {}).items():
            found = con.execute(f"SELECT coalesce(list(id ORDER BY id), []) FROM {table} AT (VERSION => {snapshot})")
            assert found.fetchall() == [(ids,)], (snapshot, table)
    con.close()


def test_the_last_versions_are_kept(lake: Lake) -> None:
    for value in range(1, 6):
        overwrite(lake, "t", value)
    assert len(expire(lake, "t", keep=2)) == 3
    assert snapshots(lake) == [0, 4, 5]
    assert lake.query("SELECT id FROM t") == [(5,)]
    assert lake.query("SELECT id FROM t AT (VERSION => 4)") == [(4,)]
    with pytest.raises(duckdb.Error):
        lake.query("SELECT id FROM t AT (VERSION => 3)")
    with pytest.raises(Expired, match="from 4 on"):
        lake.files("t", 3)
    assert [file.id for file in lake.files("t", 4)]
    assert expire(lake, "t", keep=2) == []
    assert len(list(Path(lake.catalogue.folder("t")).glob("*.parquet"))) == 2
    assert lake.scalar("SELECT count(*) FROM ducklake_file_column_stats") == 2
    with lake.begin() as conn:
        assert lake.catalogue.scheduled(conn) == []


def test_by_age_and_by_both(lake: Lake) -> None:
    for value in range(1, 6):
        overwrite(lake, "t", value)
    # Snapshot n was made n seconds after the start.
    assert expire(lake, "t", keep=4, older_than_us=T0_US + 4_000_000) != []
    assert snapshots(lake) == [0, 2, 3, 4, 5]
    assert len(expire(lake, "t", older_than_us=T0_US + 4_000_000)) == 2
    assert snapshots(lake) == [0, 4, 5]
    assert len(expire(lake, "t", older_than_us=lake.clock_us + 10 * DAY_US)) == 1
    assert snapshots(lake) == [0, 5]
    assert expire(lake, "t") == []


def test_a_pin_holds_until_it_lapses(lake: Lake) -> None:
    for value in range(1, 6):
        overwrite(lake, "t", value)
    with lake.begin() as conn:
        lake.catalogue.pin(conn, 2, "reader", lake.clock_us + DAY_US)
        lake.catalogue.pin(conn, 2, "reader", lake.clock_us + 2 * DAY_US)
        lake.catalogue.pin(conn, 3, "gone", lake.clock_us)
        with pytest.raises(PenstockError, match="newest is 5"):
            lake.catalogue.pin(conn, 6, "reader", 1)
    assert len(expire(lake, "t", keep=1)) == 3
    assert snapshots(lake) == [0, 2, 5]
    assert lake.query("SELECT id FROM t AT (VERSION => 2)") == [(2,)]
    assert [file.begin for file in lake.files("t", 2)] == [2]
    with lake.begin() as conn:
        lake.catalogue.unpin(conn, "reader")
    assert len(expire(lake, "t", keep=1)) == 1
    assert snapshots(lake) == [0, 5]


def test_snapshots_that_no_table_needs(lake: Lake) -> None:
    for value in range(1, 4):
        overwrite(lake, "t", value)
        overwrite(lake, "u", value)
    expire(lake, "t", keep=1)
    with lake.begin() as conn:
        assert lake.catalogue.expire_snapshots(conn, lake.clock_us) == []
    # u keeps all: Penstock still reads it where DuckDB has no snapshot any more.
    assert 0 in snapshots(lake)
    assert [file.begin for file in lake.files("u", 2)] == [2]
    expire(lake, "u", keep=1)
    with lake.begin() as conn:
        lake.catalogue.expire_snapshots(conn, lake.clock_us)
    assert snapshots(lake) == [6]
    assert lake.query("SELECT t.id, u.id FROM t, u") == [(3, 3)]


def test_a_table_that_duckdb_dropped_goes(lake: Lake) -> None:
    overwrite(lake, "t", 1)
    overwrite(lake, "u", 1)
    con = lake.duckdb()
    con.execute("DROP TABLE u")
    con.close()
    overwrite(lake, "t", 2)
    expire(lake, "t", keep=1)
    with lake.begin() as conn:
        gone = lake.catalogue.expire_snapshots(conn, lake.clock_us)
    assert [Path(path).parent.name for path in gone] == ["u"]
    assert lake.scalar("SELECT count(*) FROM ducklake_table") == 1
    assert lake.query("SELECT id FROM t") == [(2,)]


def test_a_table_that_only_duckdb_writes(lake: Lake) -> None:
    con = lake.duckdb()
    con.execute("CREATE TABLE t (id BIGINT)")
    for value in (1, 2, 3):
        con.execute(f"BEGIN; DELETE FROM t; INSERT INTO t VALUES ({value}); COMMIT")
    con.close()
    assert len(expire(lake, "t", keep=1)) == 2
    with pytest.raises(Expired):
        lake.files("t", 2)
    overwrite(lake, "t", 4)
    assert lake.query("SELECT id FROM t") == [(4,)]


def test_compaction_is_no_version(lake: Lake) -> None:
    lake.publish(TableChange("t", S, (), [lake.write("t", rows(id=[1])), lake.write("t", rows(id=[2]))]))
    lake.append("t", S, rows(id=[3]))
    small = lake.files("t")
    merged = replace(lake.write("t", rows(id=[1, 2, 3])), content=max(file.content for file in small))
    lake.publish(TableChange("t", S, (), [merged], [file.id for file in small]))
    assert expire(lake, "t", keep=2) == []
    assert len(expire(lake, "t", keep=1)) == 3
    assert lake.query("SELECT list(id ORDER BY id) FROM t") == [([1, 2, 3],)]


def test_a_crash_between_commit_and_deletion_loses_nothing(lake: Lake) -> None:
    overwrite(lake, "t", 1)
    overwrite(lake, "t", 2)
    with lake.begin() as conn:
        gone = lake.catalogue.expire(conn, "t", 1, None, lake.clock_us)
    with lake.begin() as conn:
        assert lake.catalogue.scheduled(conn) == gone
        assert lake.catalogue.scheduled(conn, before_us=lake.clock_us - 1) == []
        assert list(lake.catalogue.unknown_files(conn)) == []
    # Or DuckDB deletes them.
    con = lake.duckdb()
    con.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    con.close()
    assert not Path(gone[0]).exists()
    with lake.begin() as conn:
        assert lake.catalogue.scheduled(conn) == []


def test_files_that_no_transaction_published(lake: Lake) -> None:
    overwrite(lake, "t", 1)
    staged = lake.write("t", rows(id=[2]))
    stranger = lake.write("never", rows(id=[3]))
    with lake.begin() as conn:
        assert sorted(lake.catalogue.unknown_files(conn)) == [
            lake.catalogue.locate("never", stranger),
            lake.catalogue.locate("t", staged),
        ]
    lake.publish(TableChange("t", S, (), [staged]), TableChange("never", S, (), [stranger]))
    with lake.begin() as conn:
        assert list(lake.catalogue.unknown_files(conn)) == []


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("tu"), st.integers(0, 2)),
        st.tuples(st.just("replace"), st.sampled_from("tu"), st.integers(0, 2)),
        st.tuples(st.just("expire"), st.sampled_from("tu"), st.integers(1, 3)),
        st.tuples(st.just("pin"), st.just("t"), st.integers(0, 3)),
        st.tuples(st.just("prune"), st.just("t"), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_what_remains_is_complete(
    tmp_path_factory: pytest.TempPathFactory, request: Any, actions: list[tuple[str, str, int]]
) -> None:
    maker = make_lake("sqlite", request, tmp_path_factory.mktemp("lake"))
    lake = next(maker)
    now: dict[str, dict[int, list[int]]] = {}
    truth: dict[int, dict[str, list[int]]] = {}
    pins: set[int] = set()
    for number, (action, table, value) in enumerate(actions):
        if action in ("append", "replace"):
            partition = value * DAY_US
            file = lake.write(table, rows(id=[number]), partition)
            replaced = [(partition, partition + DAY_US)] if action == "replace" else ()
            snapshot = lake.publish(TableChange(table, S, replaced, [file]))
            held = now.setdefault(table, {})
            held[value] = ([] if action == "replace" else held.get(value, [])) + [number]
            truth[snapshot] = {name: sorted(chain(*kept.values())) for name, kept in now.items()}
        elif action == "expire":
            expire(lake, table, keep=value)
        elif action == "pin":
            with lake.begin() as conn:
                there = snapshots_of(conn)
                chosen = there[-min(len(there), value + 1)]
                lake.catalogue.pin(conn, chosen, "test", lake.clock_us + DAY_US)
                pins.add(chosen)
        else:
            with lake.begin() as conn:
                for path in lake.catalogue.expire_snapshots(conn, lake.clock_us):
                    Path(path).unlink()
    check_complete(lake, truth)
    with lake.begin() as conn:
        assert pins <= set(snapshots_of(conn))
        assert list(lake.catalogue.unknown_files(conn)) == []
    maker.close()


def snapshots_of(conn: Any) -> list[int]:
    return [row[0] for row in conn.exec_driver_sql("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")]
