"""Files, facts, versions, the saved state and the format: the rest of the contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.control.events import WarehouseDeclared
from penstock.model.tables import Feed, Table
from penstock.requests.job import FeedFile
from penstock.store.lock import AlreadyRunning, RunLock
from penstock.store.schema import FORMAT
from penstock.store.store import Fenced, Store, StoreError


def file(name: str, checksum: str = "c", size: int = 10, arrived: int = 5) -> FeedFile:
    return FeedFile(name, checksum, size, arrived)


# Files


def test_a_file_is_known_by_feed_and_name(store: Store) -> None:
    with store.write() as conn:
        store.put_file(conn, "stats", file("a.csv"), 100, "pending")
        store.put_file(conn, "alerts", file("a.csv", "other"), 100, "quarantined", "broken")
    with store.read() as conn:
        found = store.known_files(conn, "stats", ["a.csv", "b.csv"])
        assert list(found) == ["a.csv"]
        assert (found["a.csv"].checksum, found["a.csv"].status, found["a.csv"].reason) == ("c", "pending", None)
        assert store.known_files(conn, "alerts", ["a.csv"])["a.csv"].reason == "broken"
        assert store.known_files(conn, "stats", []) == {}


def test_many_files_at_once(store: Store) -> None:
    names = [f"f{number:05}.csv" for number in range(1203)]
    with store.write() as conn:
        for name in names:
            store.put_file(conn, "stats", file(name), 1, "pending")
        store.mark_loaded(
            conn, "stats", "stats", [file(name) for name in names[:-1]], {name: [(10, 21)] for name in names}
        )
    with store.read() as conn:
        assert sorted(store.known_files(conn, "stats", names)) == names
        assert len(store.loaded_within(conn, "stats", 10, 11)) == 1202


def test_a_touched_file_keeps_what_is_known_of_it(store: Store) -> None:
    with store.write() as conn:
        store.put_file(conn, "stats", file("a.csv"), 100, "pending")
        store.mark_loaded(conn, "stats", "stats", [file("a.csv")], {"a.csv": [(1, 3)]})
        store.touch_file(conn, "stats", "a.csv", 11, 200)
    with store.read() as conn:
        row = store.known_files(conn, "stats", ["a.csv"])["a.csv"]
        assert (row.size_bytes, row.mtime_ns, row.status) == (11, 200, "loaded")
        assert store.loaded_span(conn, "stats", "a.csv") == ((1, 3),)


@pytest.mark.parametrize("status", ["pending", "quarantined"])
def test_a_rewritten_file_keeps_the_times_that_are_loaded(store: Store, status: str) -> None:
    with store.write() as conn:
        store.put_file(conn, "stats", file("a.csv"), 100, "pending")
        store.mark_loaded(conn, "stats", "stats", [file("a.csv")], {"a.csv": [(1, 3)]})
        store.put_file(conn, "stats", file("a.csv", "new"), 200, status, "why")
    with store.read() as conn:
        row = store.known_files(conn, "stats", ["a.csv"])["a.csv"]
        assert (row.checksum, row.status) == ("new", status)
        assert store.loaded_span(conn, "stats", "a.csv") == ((1, 3),)
        assert store.loaded_within(conn, "stats", 0, 10) == []


def test_loaded_files_are_found_by_their_times(store: Store) -> None:
    with store.write() as conn:
        for name, span in {"a": [(0, 10)], "b": [(10, 20)], "c": [(5, 15)], "none": []}.items():
            found = file(name, arrived=-ord(name[0]))
            store.put_file(conn, "stats", found, 1, "pending")
            store.mark_loaded(conn, "stats", "stats", [found], {name: span})
        store.put_file(conn, "stats", file("waiting"), 1, "pending")
    with store.read() as conn:
        within = {(low, high): [row.uri for row in store.loaded_within(conn, "stats", low, high)]
                  for low, high in [(0, 5), (9, 10), (10, 11), (14, 15), (15, 99), (20, 99), (-9, 0)]}  # fmt: skip
    # Half-open, and in the order of arrival.
    assert within == {
        (0, 5): ["a"],
        (9, 10): ["c", "a"],
        (10, 11): ["c", "b"],
        (14, 15): ["c", "b"],
        (15, 99): ["b"],
        (20, 99): [],
        (-9, 0): [],
    }


def test_each_table_of_a_feed_holds_files_of_its_own(store: Store) -> None:
    with store.write() as conn:
        for name in ("a", "b", "bad"):
            store.put_file(conn, "stats", file(name), 1, "quarantined" if name == "bad" else "pending")
        store.mark_loaded(conn, "stats", "stats", [file("a"), file("b")], {"a": [(0, 10)], "b": [(0, 10)]})
        store.mark_loaded(conn, "large", "stats", [file("a")], {"a": [(5, 20)]})
    with store.read() as conn:
        assert [row.uri for row in store.loaded_within(conn, "stats", 0, 9)] == ["a", "b"]
        assert [row.uri for row in store.loaded_within(conn, "large", 0, 9)] == ["a"]
        assert [row.uri for row in store.loaded_within(conn, "large", 15, 16)] == ["a"]
        assert store.loaded_within(conn, "stats", 15, 16) == []
        # What must be made again if it changes is what any of them holds.
        assert store.loaded_span(conn, "stats", "a") == ((0, 20),)
        assert store.loaded_span(conn, "stats", "never") is None
        missing = {
            table: [row.uri for row in store.not_loaded(conn, table, "stats")] for table in ("stats", "large", "new")
        }
        assert missing == {"stats": [], "large": ["b"], "new": ["a", "b"]}


def test_content_that_comes_back_is_not_the_loaded_one(store: Store) -> None:
    with store.write() as conn:
        store.put_file(conn, "stats", file("a", "one", arrived=1), 1, "pending")
        store.mark_loaded(conn, "stats", "stats", [file("a", "one", arrived=1)], {"a": [(0, 10)]})
        store.put_file(conn, "stats", file("a", "two", arrived=2), 2, "pending")
        store.put_file(conn, "stats", file("a", "one", arrived=3), 3, "pending")
    with store.read() as conn:
        assert store.loaded_within(conn, "stats", 0, 9) == []
        assert [(row.uri, row.min_us, row.max_us) for row in store.not_loaded(conn, "stats", "stats")] == [("a", 0, 9)]


def test_a_store_that_knew_loaded_files_by_feed_only(store: Store) -> None:
    feed = Feed("stats")
    declared = WarehouseDeclared(
        0, (feed,), (Table("stats", feed="stats"), Table("large", feed="stats"), Table("sum")), 1, "fifo"
    )
    with store.write() as conn:
        # As format 1 had it.
        conn.execute(text("ALTER TABLE penstock_file ADD COLUMN min_us BIGINT"))
        conn.execute(text("ALTER TABLE penstock_file ADD COLUMN max_us BIGINT"))
        conn.execute(text("DROP TABLE penstock_loaded"))
        store.set_fact(conn, "format", "1")
        store.append(conn, [declared])
        for name, status in {"a": "loaded", "b": "pending", "c": "pending"}.items():
            store.put_file(conn, "stats", file(name), 1, status)
        conn.execute(text("UPDATE penstock_file SET min_us = 0, max_us = 9 WHERE uri <> 'c'"))
    store.create()
    store.create()
    with store.read() as conn:
        assert store.fact(conn, "format") == str(FORMAT)
        for table in ("stats", "large"):
            assert [row.uri for row in store.loaded_within(conn, table, 0, 9)] == ["a"]
            assert [row.uri for row in store.not_loaded(conn, table, "stats")] == ["b", "c"]
        # b was rewritten: what of it is loaded is still known.
        assert store.loaded_span(conn, "stats", "b") == ((0, 10),)
        assert store.loaded_span(conn, "stats", "c") is None


# Facts, versions, state


def test_a_fact_is_replaced_as_a_whole(store: Store) -> None:
    with store.write() as conn:
        assert store.fact(conn, "owner") is None
        store.set_fact(conn, "owner", "one")
        store.set_fact(conn, "owner", "two")
    with store.read() as conn:
        assert store.fact(conn, "owner") == "two"


def test_only_the_owner_goes_on(store: Store) -> None:
    with store.write() as conn:
        with pytest.raises(Fenced, match="none"):
            store.check_owner(conn, "one")
        store.set_fact(conn, "owner", "two")
        store.check_owner(conn, "two")
        with pytest.raises(Fenced, match="two"):
            store.check_owner(conn, "one")


def test_consistent_versions_newest_first(store: Store) -> None:
    with store.write() as conn:
        for snapshot in (1, 2, 3, 5):
            reflects = None if snapshot == 3 else {"stats": snapshot}
            store.put_version(conn, "hourly", snapshot, snapshot * 10, None, reflects, f"job-{snapshot}")
        store.put_version(conn, "daily", 4, 40, 99, {"stats": 1}, "job-4")
    with store.read() as conn:
        assert [row.snapshot for row in store.versions(conn, "hourly")] == [5, 2, 1]
        assert [row.snapshot for row in store.versions(conn, "hourly", upto=4)] == [2, 1]
        assert [row.snapshot for row in store.versions(conn, "hourly", limit=1)] == [5]
        assert [store.next_version(conn, "hourly", snapshot) for snapshot in (1, 2, 5)] == [2, 3, None]
        (daily,) = store.versions(conn, "daily")
        assert (daily.complete_us, json.loads(daily.reflects), daily.job) == (99, {"stats": 1}, "job-4")


def test_forgotten_versions(store: Store) -> None:
    def left(table: str) -> list[int]:
        return [row.snapshot for row in reversed(store.versions(conn, table))]

    with store.write() as conn:
        for snapshot in (1, 3, 6, 8):
            store.put_version(conn, "hourly", snapshot, snapshot * 10, None, {}, "j")
        store.put_version(conn, "hourly", 9, 90, None, None, "j")  # between two states of its sources
        store.put_version(conn, "daily", 2, 20, None, {}, "j")
        store.forget_versions(conn, "hourly", None, None)
        store.forget_versions(conn, "hourly", keep=9, older_than_us=None)
        assert left("hourly") == [1, 3, 6, 8]
        # The last three, but what is young enough stays in any case.
        store.forget_versions(conn, "hourly", keep=3, older_than_us=25)
        assert left("hourly") == [3, 6, 8]
        # The newest consistent one is never forgotten.
        store.forget_versions(conn, "hourly", keep=1, older_than_us=None)
        store.forget_versions(conn, "daily", keep=1, older_than_us=1000)
        assert (left("hourly"), left("daily")) == ([8], [2])


def test_one_state_is_saved_at_a_time(store: Store) -> None:
    with store.read() as conn:
        assert store.saved_state(conn) is None
    for number in (7, 12):
        with store.write() as conn:
            store.save_state(conn, number, {"format": 1, "text": "ä\n", "deep": [{"a": None}]})
    with store.read() as conn:
        assert store.saved_state(conn) == (12, {"format": 1, "text": "ä\n", "deep": [{"a": None}]})


def test_a_state_that_is_being_saved_is_not_seen(store: Store) -> None:
    with store.write() as conn:
        store.save_state(conn, 1, {"n": 1})
    with store.write() as conn:
        store.save_state(conn, 2, {"n": 2})
        with store.read() as other:
            assert store.saved_state(other) == (1, {"n": 1})


# The format


def test_opening_again_keeps_everything(store: Store, url: str) -> None:
    with store.write() as conn:
        store.set_fact(conn, "mine", "kept")
    again = Store(url)
    again.create()
    with again.read() as conn:
        assert again.fact(conn, "mine") == "kept"
        assert again.fact(conn, "format") == str(FORMAT)
    again.close()


def test_a_newer_format_is_refused_and_left_alone(store: Store, url: str) -> None:
    with store.write() as conn:
        store.set_fact(conn, "format", str(FORMAT + 1))
    again = Store(url)
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, this Penstock knows {FORMAT}: install the newer"):
        again.create()
    with again.read() as conn:
        assert again.fact(conn, "format") == str(FORMAT + 1)
    again.close()


def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(StoreError, match="neither sqlite"):
        Store("mysql://localhost/x")


# The lock

HOLD = """
import sys
from pathlib import Path
from penstock.store.lock import RunLock
from penstock.store.store import Store
lock = RunLock(Store(sys.argv[1]), Path(sys.argv[2]))
lock.acquire("run-theirs")
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time(store: Store, url: str, tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    mine = RunLock(store, path)
    theirs = subprocess.Popen(
        [sys.executable, "-c", HOLD, url, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert theirs.stdout is not None and theirs.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match=f"process {theirs.pid} on .*, since .* UTC.*kill {theirs.pid}"):
            mine.acquire("run-mine")
        with store.read() as conn:
            assert store.fact(conn, "owner") == "run-theirs"
    finally:
        os.kill(theirs.pid, signal.SIGKILL)
        theirs.wait()
    mine.acquire("run-mine")
    with store.read() as conn:
        assert store.fact(conn, "owner") == "run-mine"
        assert json.loads(store.fact(conn, "holder") or "")["pid"] == os.getpid()
    with pytest.raises(AlreadyRunning):
        RunLock(store, path).acquire("run-third")
    mine.release()
    third = RunLock(store, path)
    third.acquire("run-third")
    third.release()
