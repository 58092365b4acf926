"""Files come, go and come back; what can be loaded is loaded, and what cannot is told."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import Event
from penstock.engine.arrivals.intake import Arrivals
from tests.conftest import Write
from tests.oracle import attach, rows
from tests.waiting import until

PROJECT = {
    "penstock.toml": """
        name = "arrivals"
        [feeds.c]
        path = "landing/**/*.csv"
        format = "csv"
        columns = "k string"
        settle = "50ms"
    """,
}


def _arrivals(warehouse: Warehouse) -> Arrivals:
    declared = warehouse.declared
    return Arrivals(
        warehouse.store, declared.declarations.folder, list(declared.feeds.values()), declared.feed_schemas.get, warehouse.clock.now_us
    )  # fmt: skip


def _told(warehouse: Warehouse) -> list[tuple[str, str, str | None]]:
    def about(event: Event) -> tuple[str, str, str | None]:
        return event.kind, event.file.uri, getattr(event, "reason", None)  # type: ignore[union-attr]

    with warehouse.store.read() as conn:
        return [about(event) for _, event in warehouse.store.events(conn) if event.kind.startswith("file-")]


def _scan(arrivals: Arrivals) -> None:
    until(lambda: arrivals.scan() >= 0 and not arrivals.unsettled, "files to settle")


def test_links_are_not_followed_unless_the_feed_says_so(project: Write) -> None:
    """Neither to files nor to folders: what may be read is decided by the project, not by who may deliver."""
    folder = project(PROJECT | {"secret/key.csv": "k\nsecret\n"})
    landing = folder / "landing"
    landing.mkdir(exist_ok=True)
    (landing / "a.csv").write_text("k\na\n")
    (landing / "link.csv").symlink_to(folder / "secret/key.csv")
    (landing / "sub").symlink_to(folder / "secret")
    (landing / "round.csv").symlink_to(landing / "round.csv")
    with Warehouse(folder) as warehouse:
        arrivals = _arrivals(warehouse)
        _scan(arrivals)
        _scan(arrivals)
        told = {(kind, name): reason for kind, name, reason in _told(warehouse)}
        assert len(_told(warehouse)) == 4
        assert {name for kind, name in told if kind == "file-arrived"} == {"landing/a.csv"}
        assert {name for kind, name in told if kind == "file-quarantined"} == {
            f"landing/{name}" for name in ("link.csv", "sub", "round.csv")
        }
        assert "follow_links = true" in str(told["file-quarantined", "landing/sub"])
        # The file itself in the place of the link.
        (landing / "link.csv").unlink()
        (landing / "link.csv").write_text("k\nb\n")
        _scan(arrivals)
        assert _told(warehouse)[4:] == [("file-arrived", "landing/link.csv", None)]


def test_what_is_a_file_and_when(project: Write) -> None:
    toml = PROJECT["penstock.toml"].replace("settle", "follow_links = true\n        settle")
    folder = project(PROJECT | {"penstock.toml": toml})
    landing = folder / "landing"
    (landing / "sub").mkdir(parents=True)
    (landing / "sub/a.csv").write_text("k\na\n")
    (landing / "folder.csv").mkdir()
    (landing / "ahead.csv").write_text("k\nb\n")
    os.utime(landing / "ahead.csv", (time.time() + 10**6,) * 2)
    (landing / "link.csv").symlink_to(landing / "sub/a.csv")
    (landing / "broken.csv").symlink_to(landing / "nowhere")
    (landing / "round.csv").symlink_to(landing / "round.csv")
    (landing / "sub/up").symlink_to(landing)
    os.mkfifo(landing / "pipe.csv")
    with Warehouse(folder) as warehouse:
        arrivals = _arrivals(warehouse)
        _scan(arrivals)
        is_folder = "is a folder, expected a file; for the files in it write landing/**/*.csv/*"
        expected = {
            ("file-quarantined", "landing/folder.csv", is_folder),
            *(("file-arrived", f"landing/{name}.csv", None) for name in ("sub/a", "ahead", "link")),
        }
        assert set(_told(warehouse)) == expected and len(_told(warehouse)) == 4
        # Told once, and a file in its place is taken.
        _scan(arrivals)
        (landing / "folder.csv").rmdir()
        (landing / "folder.csv").write_text("k\nc\n")
        _scan(arrivals)
        _scan(arrivals)
        assert _told(warehouse)[4:] == [("file-arrived", "landing/folder.csv", None)]


def test_hostile_files_are_set_aside(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in a file, looking at it takes bounded time and memory, and concerns no other file."""
    monkeypatch.setattr("penstock.engine.arrivals.records.LONGEST_RECORD_BYTES", 1 << 20)
    monkeypatch.setattr("penstock.engine.arrivals.inspect.UNPACKED_BYTES", 4 << 20)
    json_feed = PROJECT["penstock.toml"].replace("*.csv", "*.csv*") + (
        """
        [feeds.j]
        path = "landing/*.json"
        format = "json"
        columns = "k string"
        settle = "50ms"
        """
    )
    folder = project(PROJECT | {"penstock.toml": json_feed})
    landing = folder / "landing"
    landing.mkdir()
    (landing / "bomb.csv.gz").write_bytes(gzip.compress(b"k\n" + b"a\n" * (64 << 20)))
    (landing / "line.csv").write_bytes(b"k\n" + b"a" * (3 << 20) + b"\n")
    (landing / "quoted.csv").write_bytes(b'k\n"' + b"a\n" * (2 << 20))
    (landing / "header.csv").write_text("k" * 200_000 + "\na\n")
    (landing / "deep.json").write_text("[" * 200_000)
    (landing / "deeper.json").write_text('{"a":' * 200_000)
    (landing / "good.csv").write_text("k\na\n")
    with Warehouse(folder) as warehouse:
        arrivals = _arrivals(warehouse)
        _scan(arrivals)
        told = {name.removeprefix("landing/"): str(reason) for kind, name, reason in _told(warehouse) if "quar" in kind}
        assert [name for kind, name, _ in _told(warehouse) if kind == "file-arrived"] == ["landing/good.csv"]
    assert told["bomb.csv.gz"] == "unpacks to more than 4 MB, over 100 times its size"
    assert told["line.csv"] == "line 2 is longer than 1 MB"
    assert told["quoted.csv"] == "the record that begins in line 2 is longer than 1 MB; is a quote missing?"
    assert told["header.csv"].startswith("wrong columns: missing k; unexpected kkk") and len(told["header.csv"]) < 1000
    assert "JSON" in told["deep.json"] or "nest" in told["deep.json"]
    assert set(told) == {"bomb.csv.gz", "line.csv", "quoted.csv", "header.csv", "deep.json", "deeper.json"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_and_tried_again(project: Write) -> None:
    folder = project(PROJECT | {"landing/a.csv": "k\na\n"})
    (folder / "landing/a.csv").chmod(0)
    with Warehouse(folder) as warehouse:
        arrivals = _arrivals(warehouse)
        _scan(arrivals)
        _scan(arrivals)
        assert _told(warehouse) == [
            ("file-quarantined", "landing/a.csv", "cannot be read: Permission denied; it is tried again")
        ]
        (folder / "landing/a.csv").chmod(0o600)
        _scan(arrivals)
        assert _told(warehouse)[1:] == [("file-arrived", "landing/a.csv", None)]


@pytest.mark.spark
def test_a_file_that_goes_before_its_load_is_loaded_when_it_returns(project: Write, spark: SparkSession) -> None:
    folder = project(PROJECT | {"landing/a.csv": "k\na\n", "landing/b.csv": "k\nb\n"})
    away, back = folder / "away", folder / "landing/a.csv"
    with Warehouse(folder, spark=spark) as warehouse:
        with warehouse.running() as runtime:
            _scan(runtime.arrivals)
            back.rename(away)
            runtime.run(until_idle=True)
            (missing,) = runtime.controller.state.quarantine.values()
            assert missing.reason == "the file vanished before it was loaded"
            away.rename(back)
            runtime.run(until_idle=True)
            assert not runtime.controller.state.quarantine
        assert rows(attach(folder), "SELECT k FROM lake.c") == [("a",), ("b",)]
        # Gone after its load, and back: nothing new.
        back.rename(away)
        warehouse.run(until_idle=True)
        away.rename(back)
        warehouse.run(until_idle=True)
        assert rows(attach(folder), "SELECT k FROM lake.c") == [("a",), ("b",)]
        # The same while nobody runs.
        new = Path(folder, "landing/n.csv")
        new.write_text("k\nn\n")
        with warehouse.running() as runtime:
            _scan(runtime.arrivals)
        new.rename(away)
        warehouse.run(until_idle=True)
        away.rename(new)
        warehouse.run(until_idle=True)
        assert rows(attach(folder), "SELECT k FROM lake.c") == [("a",), ("b",), ("n",)]
