"""Looking for files beside everything else: each is known soon, and a feed that cannot be looked at keeps nobody from the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.app import Warehouse
from penstock.engine.arrivals import intake
from penstock.engine.arrivals import watcher as module
from penstock.engine.arrivals.intake import Arrivals
from penstock.engine.arrivals.watcher import Lookout
from tests.conftest import Write
from tests.waiting import LONG_S

FEED = """
    [feeds.{name}]
    path = "{name}/**/*.csv"
    format = "csv"
    columns = "k string"
    settle = "0s"
"""


@contextmanager
def looking(folder: Path, wake: Callable[[], None]) -> Iterator[tuple[Warehouse, Lookout]]:
    with Warehouse(folder) as warehouse:
        declared = warehouse.declared
        arrivals = Arrivals(
            warehouse.store, declared.declarations.folder, list(declared.feeds.values()), declared.feed_schemas.get, warehouse.clock.now_us
        )  # fmt: skip
        lookout = Lookout(arrivals, 0.01, wake)
        lookout.start()
        try:
            yield warehouse, lookout
        finally:
            lookout.stop()
            arrivals.close()


def arrived(warehouse: Warehouse) -> list[str]:
    with warehouse.store.read() as conn:
        events = [event for _, event in warehouse.store.events(conn)]
    return sorted(event.file.uri for event in events if event.kind == "file-arrived")  # type: ignore[union-attr]


class News:
    """Waits for what is to come; the wall clock only says when to give up."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        self._event.set()

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(int(LONG_S / 0.02)):
            if holds():
                return
            self._event.wait(0.02)
            self._event.clear()
        raise AssertionError("it never came")


def test_files_are_found_where_they_come(project: Write) -> None:
    folder = project({"penstock.toml": 'name = "p"\n' + FEED.format(name="a") + FEED.format(name="b")})
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        expected = []
        # In a folder that is not there yet, in new ones below it, renamed into place.
        for number, name in enumerate(["a/1.csv", "b/x/y/2.csv", "a/z/3.csv", "b/4.csv"]):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            (folder / "away").write_text(f"k\n{number}\n")
            (folder / "away").rename(path)
            expected.append(name)
            news.until(lambda: lookout.found() >= 0 and arrived(warehouse) == sorted(expected))


def test_it_says_when_there_is_no_more(project: Write) -> None:
    folder = project(
        {"penstock.toml": 'name = "p"\n' + FEED.format(name="a"), "a/1.csv": "k\na\n", "a/2.csv": "k\nb\n"}
    )
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        news.until(lambda: lookout.found() == 0 and lookout.is_done(idle=True))
        assert arrived(warehouse) == ["a/1.csv", "a/2.csv"]
        # A file that is there when the others are done is found before it says so again.
        (folder / "a/3.csv").write_text("k\nc\n")
        news.until(lambda: lookout.found() == 0 and lookout.is_done(idle=True))
        assert arrived(warehouse) == ["a/1.csv", "a/2.csv", "a/3.csv"]
        assert not lookout.is_done(idle=False)


def test_a_disk_that_does_not_answer_keeps_nobody_from_the_others(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        {"penstock.toml": 'name = "p"\n' + FEED.format(name="a") + FEED.format(name="b") + FEED.format(name="c")}
    )
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
        (folder / name / "1.csv").write_text("k\na\n")
    stat, answers, hangs = os.stat, threading.Event(), threading.Event()

    def slow(path: object, *args: object, **more: object) -> os.stat_result:
        if threading.current_thread().name == "penstock-lookout" and str(path).startswith(
            (f"{folder}/a", f"{folder}/b")
        ):
            hangs.set()
            answers.wait(LONG_S)
        return stat(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    monkeypatch.setattr(os, "stat", slow)
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        news.until(lambda: lookout.found() >= 0 and arrived(warehouse) == ["c/1.csv"])
        assert hangs.is_set() and not lookout.is_done(idle=True)
        (folder / "c/2.csv").write_text("k\nb\n")
        news.until(lambda: lookout.found() >= 0 and arrived(warehouse) == ["c/1.csv", "c/2.csv"])
        answers.set()
        news.until(lambda: lookout.found() >= 0 and len(arrived(warehouse)) == 4)
        news.until(lambda: lookout.found() == 0 and lookout.is_done(idle=True))


def test_what_goes_wrong_in_the_thread_is_told(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project({"penstock.toml": 'name = "p"\n' + FEED.format(name="a")})

    def broken(*_: object) -> int:
        raise RuntimeError("the store is gone")

    monkeypatch.setattr(Arrivals, "log", broken)
    news = News()
    with looking(folder, news) as (_, lookout), pytest.raises(RuntimeError, match="the store is gone"):
        news.until(lambda: lookout.found() > 0)


def test_odd_entries_stop_nobody(project: Write) -> None:
    """A name that is not UTF-8 and a text that nests too deep are told, and the file beside them comes."""
    folder = project({"penstock.toml": 'name = "p"\n' + FEED.format(name="a").replace("csv", "json")})
    (folder / "a").mkdir()
    with open(os.fsencode(folder / "a") + b"/caf\xe9.json", "w") as stream:
        stream.write('{"k": "a"}\n')
    (folder / "a/deep.json").write_text('{"k":' + "[" * 200_000 + "]" * 200_000 + "}\n")
    (folder / "a/good.json").write_text('{"k": "a"}\n')
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        news.until(lambda: lookout.found() == 0 and lookout.is_done(idle=True))
        assert arrived(warehouse) == ["a/good.json"]
        with warehouse.store.read() as conn:
            told = {
                event.file.uri: event.reason
                for _, event in warehouse.store.events(conn)
                if event.kind == "file-quarantined"
            }  # type: ignore[union-attr]
        assert told["a/caf\\xe9.json"] == "has a name that is not UTF-8; rename it"
        assert "RecursionError" in told["a/deep.json"] and len(told) == 2


def test_it_is_not_done_before_what_it_found_is_on_record(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project({"penstock.toml": 'name = "p"\n' + FEED.format(name="a"), "a/1.csv": "k\na\n"})
    log, logs, goes_on = Arrivals._log, threading.Event(), threading.Event()

    def slow(*args: object) -> int:
        logs.set()
        goes_on.wait(LONG_S)
        return log(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Arrivals, "_log", slow)
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        assert logs.wait(LONG_S)
        assert not any(lookout.is_done(idle=True) for _ in range(20))
        goes_on.set()
        news.until(lambda: lookout.found() == 0 and lookout.is_done(idle=True))
        assert arrived(warehouse) == ["a/1.csv"]


def test_many_files_that_are_on_record_are_told_from_those_that_are_not(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        {"penstock.toml": 'name = "p"\n' + FEED.format(name="a"), "a/1.csv": "k\na\n", "a/é.csv": "k\na\n"}
    )
    with Warehouse(folder) as warehouse:
        declared = warehouse.declared

        def scan() -> int:
            feeds = list(declared.feeds.values())
            return Arrivals(
                warehouse.store, declared.declarations.folder, feeds, declared.feed_schemas.get, warehouse.clock.now_us
            ).scan()

        assert scan() == 2
        monkeypatch.setattr("penstock.engine.arrivals.intake._MANY", 0)
        assert scan() == 0
        (folder / "a/1.csv").write_text("k\nb\nc\n")
        (folder / "a/2.csv").write_text("k\nd\n")
        assert scan() == 2


def test_a_feed_is_looked_at_as_often_as_it_says(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = 'name = "p"\n' + FEED.format(name="often") + FEED.format(name="seldom") + '    look_every = "1h"\n'
    folder = project({"penstock.toml": toml, "seldom/1.csv": "k\n1\n"})
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(intake.time, "monotonic", lambda: now[0])
    news = News()
    with looking(folder, news) as (warehouse, lookout):
        # The first look is at once.
        news.until(lambda: arrived(warehouse) == ["seldom/1.csv"])
        (folder / "seldom/2.csv").write_text("k\n2\n")
        for number in range(5):
            now[0] += 700
            (folder / f"often/{number}.csv").parent.mkdir(exist_ok=True)
            (folder / f"often/{number}.csv").write_text("k\n2\n")
            news.until(lambda number=number: f"often/{number}.csv" in arrived(warehouse))  # type: ignore[misc]
            assert "seldom/2.csv" not in arrived(warehouse)
        now[0] += 100
        news.until(lambda: "seldom/2.csv" in arrived(warehouse))
        # Who waits until there is no more has it looked at.
        (folder / "seldom/3.csv").write_text("k\n3\n")
        now[0] += 1
        lookout.is_done(True)
        news.until(lambda: "seldom/3.csv" in arrived(warehouse))
