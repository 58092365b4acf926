"""Files that change while they are being loaded, looked at, or taken up again: whoever comes second must notice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.arrivals import intake as arrivals
from penstock.engine.commands.feeds import retry
from penstock.engine.declarations import restored_state
from penstock.store.store import Fenced
from tests.engine.crashing import DELIVERIES, Delivery, InlineRuntime, Site, check, make_site, stats
from tests.oracle import attach, rows
from tests.waiting import LONG_S

SAME_SIZE: Delivery = {"stats/s1.csv": stats(("a", "01T22:05", 20), ("b", "01T22:25", 9), ("a", "01T22:50", 5))}
OTHER_SIZE: Delivery = {"stats/s1.csv": stats(("a", "01T21:05", 10))}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


def at(site: Site, name: str, then: Callable[[], None]) -> Any:
    """Do something the first time that a point of that name is passed while statistics are loaded."""
    done: list[str] = []

    def watch(_number: int, passed: str) -> None:
        if passed == name and not done and (site.folder / "warehouse" / "main" / "stats").exists():
            done.append(passed)
            then()

    return site.point.watched(watch)


@pytest.mark.parametrize("moment", ["half a file written", "staged", "computed", "durable", "published"])
@pytest.mark.parametrize("change", [SAME_SIZE, OTHER_SIZE], ids=["same size", "other size"])
@pytest.mark.parametrize("noticed", ["at once", "later"])
def test_a_file_that_is_rewritten_while_it_is_loaded(site: Site, moment: str, change: Delivery, noticed: str) -> None:
    site.deliver(DELIVERIES[0])
    with site.running() as process:

        def rewrite() -> None:
            site.deliver(change)
            if noticed == "at once":
                process.arrivals.scan()

        with at(site, moment, rewrite):
            process.run(until_idle=True)
    check(site)


def test_a_file_that_is_looked_at_while_its_load_is_published(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()
    look_at = arrivals.look_at

    def slow(*args: Any) -> Any:
        looking.set()
        go_on.wait(LONG_S)
        return look_at(*args)

    site.deliver(DELIVERIES[0])
    with site.running() as process:
        scan = threading.Thread(target=process.arrivals.scan)

        def computed() -> None:
            site.deliver(SAME_SIZE)
            monkeypatch.setattr(arrivals, "look_at", slow)
            scan.start()
            looking.wait(LONG_S)

        def published() -> None:
            go_on.set()
            scan.join(LONG_S)

        with at(site, "published", published), both(site, at(site, "computed", computed)):
            process.run(until_idle=True)
        assert not scan.is_alive() and go_on.is_set()
    check(site)


class both:
    """Two watches at once."""

    def __init__(self, site: Site, second: Any) -> None:
        self._site, self._first, self._second = site, site.point.watch, second

    def __enter__(self) -> None:
        self._second.__enter__()
        inner, first = self._site.point.watch, self._first

        def watch(number: int, name: str) -> None:
            first(number, name)
            inner(number, name)

        self._site.point.watch = watch

    def __exit__(self, *error: Any) -> None:
        self._second.__exit__(*error)


def test_a_quarantined_file_is_taken_up_once_however_often_one_asks(site: Site) -> None:
    site.deliver({**DELIVERIES[0], "stats/s9.csv": "router,when\na,b\n"})
    site.work([])
    site.deliver({"stats/s9.csv": stats(("a", "01T23:50", 70))})
    with site.running() as process:
        before = restored_state(process.store)
        now_us = site.clock.now_us()
        assert retry(site.warehouse, process.store, before, [], now_us).taken == ("landing/stats/s9.csv",)
        process.run(until_idle=True)
        assert retry(site.warehouse, process.store, before, [], now_us).taken == ()
        process.run(until_idle=True)
    check(site)


@pytest.mark.parametrize("how", ["by itself", "by request"])
def test_a_file_that_was_good_then_bad_then_good_again(site: Site, how: str) -> None:
    site.deliver(DELIVERIES[0])
    site.work([{"stats/s1.csv": "half a fi"}])
    site.deliver(OTHER_SIZE)
    if how == "by request":
        with site.running() as process:
            asked = retry(site.warehouse, process.store, restored_state(process.store), [], site.clock.now_us())
            assert asked.taken == ("landing/stats/s1.csv",)
    site.work([])
    check(site)


def test_a_rewritten_file_of_a_feed_without_times(site: Site) -> None:
    settings = site.folder / "penstock.toml"
    notes = '[feeds.notes]\npath = "landing/notes/*.csv"\nformat = "csv"\ncolumns = "note string"\nsettle = "0s"\n'
    settings.write_text(settings.read_text() + notes)
    site.deliver({"notes/n1.csv": "note\nuno\n", "notes/n2.csv": "note\ndos\n"})
    site.work([DELIVERIES[0], {"notes/n1.csv": "note\none\n", "notes/n3.csv": "note\ntres\n"}])
    check(site)
    with attach(site.folder) as con:
        assert rows(con, "SELECT note FROM lake.notes") == [("dos",), ("one",), ("tres",)]


def test_a_process_that_was_replaced_publishes_nothing(site: Site) -> None:
    site.deliver(DELIVERIES[0])
    with site.running() as old:

        def taken_over() -> None:
            with old.store.write() as conn:
                old.store.set_fact(conn, "owner", "run-another")

        with pytest.raises(Fenced, match="run-another"), at(site, "durable", taken_over):
            old.run(until_idle=True)
        with old.store.read() as conn:
            assert [event.kind for _, event in old.store.events(conn)][-1] == "update-started"
            assert old.catalogue.tables(conn) == []
            assert list(old.catalogue.unknown_files(conn))
    # It says nothing more at its end either.
    store = site.warehouse.declarations.store_url
    assert store
    with site.running() as process:
        with process.store.read() as conn:
            kinds = [event.kind for _, event in process.store.events(conn)]
            assert "run-stopped" not in kinds
            assert list(process.catalogue.unknown_files(conn)) == []
        process.run(until_idle=True)
    check(site)


def test_a_process_that_was_replaced_starts_nothing(site: Site) -> None:
    with site.running() as old:
        with old.store.write() as conn:
            old.store.set_fact(conn, "owner", "run-another")
        site.deliver(DELIVERIES[0])
        with pytest.raises(Fenced):
            old.run(until_idle=True)
        assert not started(old)


def started(process: InlineRuntime) -> bool:
    with process.store.read() as conn:
        return any(event.kind == "update-started" for _, event in process.store.events(conn))
