"""Faults of the world are waited out: nothing is lost, nobody's attempts are used up, and it goes on by itself."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.pool import NullPool

from penstock.control.events import Event, FaultEnded, FaultMet, UpdateFailed
from tests.engine.crashing import DELIVERIES, Delivery, InlineRuntime, Site, check, make_site
from tests.tables.conftest import postgres  # noqa: F401

EVERYTHING: Delivery = {name: content for files in DELIVERIES for name, content in files.items()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr("penstock.engine.runtime.STORE_PAUSE_S", 0.01)
    monkeypatch.setattr("penstock.engine.runtime.LONGEST_STORE_PAUSE_S", 0.02)
    return make_site(tmp_path, monkeypatch)


def events(process: InlineRuntime) -> list[Event]:
    with process.store.read() as conn:
        return [each for _, each in process.store.events(conn)]


def check_told(process: InlineRuntime, part: str) -> None:
    """The fault is on record, and over; no update failed for it."""
    found = events(process)
    assert not [each for each in found if isinstance(each, UpdateFailed)]
    assert {each.part for each in found if isinstance(each, FaultMet | FaultEnded)} == {part}
    assert isinstance([each for each in found if isinstance(each, FaultMet | FaultEnded)][-1], FaultEnded)
    assert not process.controller.state.faults.open


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk of its own at this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return ballast


def test_a_full_disk_of_the_warehouse(site: Site) -> None:
    with small_disk(site.folder / "warehouse", "3m"):
        with site.running() as process:
            site.deliver(DELIVERIES[0])
            process.run(until_idle=True)
            ballast = fill(site.folder / "warehouse")

            def seen(_number: int, happened: Event) -> None:
                if isinstance(happened, FaultMet) and len([e for e in events(process) if isinstance(e, FaultMet)]) == 3:
                    ballast.unlink()

            process.on_event = seen
            for files in DELIVERIES[1:]:
                site.deliver(files)
            process.run(until_idle=True)
            check_told(process, "storage")
        check(site)


def test_a_warehouse_folder_that_is_away(site: Site) -> None:
    """Nothing is written into what is there instead, such as the empty folder under a mount."""
    there, away = site.folder / "warehouse", site.folder / "away"
    with site.running() as process:
        site.deliver(DELIVERIES[0])
        process.run(until_idle=True)
        there.rename(away)
        there.mkdir()

        def seen(_number: int, happened: Event) -> None:
            if isinstance(happened, FaultMet) and away.exists():
                assert not list(there.iterdir())
                there.rmdir()
                away.rename(there)

        process.on_event = seen
        for files in DELIVERIES[1:]:
            site.deliver(files)
        process.run(until_idle=True)
        check_told(process, "storage")
    check(site)


@pytest.mark.parametrize("seed", range(12))
def test_a_full_disk_of_the_store(site: Site, seed: int) -> None:
    """At any moment: also between a decision and its record, and before an update is published."""
    chance = random.Random(seed)
    with site.running() as process:
        full = False

        def pages(connection: object, *_: object) -> None:
            most = 1 if full else 1 << 30  # no less than there are
            connection.execute(f"PRAGMA max_page_count={most}").close()  # type: ignore[attr-defined]

        event.listen(process.store.engine, "checkout", pages)
        met: list[str] = []

        def on_fault(fault: object) -> None:
            nonlocal full
            met.append(str(fault))
            full = False

        process.on_fault = on_fault
        for files in DELIVERIES:
            site.deliver(files)
            at = chance.randrange(5, 250)

            def watch(number: int, _name: str, at: int = at) -> None:
                nonlocal full
                full = full or number == at

            with site.point.watched(watch):
                process.run(until_idle=True)
        full = False
        process.run(until_idle=True)
        assert met and all("full" in reason for reason in met)
        check_told(process, "store")
    check(site)


@pytest.mark.parametrize("seed", range(6))
def test_connections_to_the_server_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, seed: int
) -> None:
    """At any moment, as when a database restarts: a transaction may have been committed though nobody heard of it."""
    place = request.getfixturevalue("postgres")(f"cut{seed}")
    monkeypatch.setattr("penstock.engine.runtime.STORE_PAUSE_S", 0.01)
    site = make_site(tmp_path, monkeypatch)
    settings = site.folder / "penstock.toml"
    store = f'name = "crashing"\n[store]\nurl = "postgresql://penstock@{place}"\n'
    settings.write_text(settings.read_text().replace('name = "crashing"\n', store))
    other = create_engine(f"postgresql+psycopg://penstock@{place}", poolclass=NullPool)
    chance = random.Random(seed)
    with site.running() as process:
        told: list[object] = []
        process.on_fault = told.append
        for files in DELIVERIES:
            site.deliver(files)
            at = {chance.randrange(20, 400) for _ in range(3)}

            def watch(number: int, _name: str, at: set[int] = at) -> None:
                if number in at:
                    with other.begin() as conn:
                        conn.exec_driver_sql(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                        )

            with site.point.watched(watch):
                process.run(until_idle=True)
        assert told
        process.run(until_idle=True)
        check_told(process, "store")
    check(site)


def test_files_that_cannot_be_read_now(site: Site) -> None:
    """A landing folder that is away for a while: what was in it is loaded when it is back."""
    landing, away = site.folder / "landing", site.folder / "away"
    with site.running() as process:
        site.deliver(DELIVERIES[0])
        process.run(until_idle=True)
        site.deliver(DELIVERIES[1])
        process.lookout.found()
        landing.rename(away)
        process.run(until_idle=True)
        away.rename(landing)
        site.deliver(DELIVERIES[2])
        process.run(until_idle=True)
    check(site)


def test_what_is_not_the_world(site: Site) -> None:
    """An error of a view uses up its attempts."""
    broken = site.folder / "tables" / "severe.sql"
    broken.write_text(broken.read_text().replace("severity FROM", "CAST(router AS INT) AS severity FROM"))
    site.deliver(DELIVERIES[0])
    with site.running() as process:
        process.run(until_idle=True)
        found = events(process)
        assert [each.table for each in found if isinstance(each, UpdateFailed)] == ["severe"] * 4
        assert not [each for each in found if isinstance(each, FaultMet)]
