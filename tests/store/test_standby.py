"""A process that stands by takes over from one that dies, is frozen, or loses its connection; what that one still does is fenced off."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from penstock.errors import PenstockError
from penstock.store import bounded
from penstock.store.lock import AlreadyRunning, RunLock
from penstock.store.store import Fenced, Store
from tests.tables.conftest import postgres as postgres
from tests.waiting import LONG_S, until

# Takes the project, or stands by for it; then writes as owner all the time, and says how each ended.
PROCESS = """
import sys, time
from pathlib import Path
from penstock.store.lock import RunLock
from penstock.store.store import Fenced, Store
from sqlalchemy.exc import DBAPIError
url, owner, folder = sys.argv[1:]
store = Store(url)
lock = RunLock(store, Path(folder) / "run.lock")
lock.acquire(owner, standby=True, on_wait=lambda who: print("waits", who, flush=True))
print("runs", flush=True)
while True:
    try:
        with store.write() as conn:
            store.check_owner(conn, owner)
            conn.exec_driver_sql("SELECT pg_sleep(0.01)")
            store.set_fact(conn, "work of " + owner, str(time.time()))
    except Fenced:
        print("fenced", flush=True)
        break
    except DBAPIError:
        pass
    time.sleep(0.02)
"""
_numbers = iter(range(10**6))


@pytest.fixture
def place(postgres: Callable[[str], str], tmp_path: Path) -> str:
    place = f"postgresql://penstock@{postgres(f'standby{next(_numbers)}')}"
    store = Store(place)
    store.create()
    store.close()
    return place


class Process:
    def __init__(self, url: str, owner: str, folder: Path) -> None:
        self.owner, self.said = owner, folder / f"{owner}.out"
        with self.said.open("w") as out:
            self.process = subprocess.Popen([sys.executable, "-c", PROCESS, url, owner, str(folder)], stdout=out)

    def says(self, word: str) -> bool:
        assert self.process.poll() in (None, 0, -signal.SIGKILL), f"{self.owner} ended by an error"
        return any(line.split()[0] == word for line in self.said.read_text().splitlines() if line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def process(url: str, owner: str, folder: Path) -> Iterator[Process]:
    made = Process(url, owner, folder)
    try:
        yield made
    finally:
        made.end()


def cut(url: str) -> None:
    """The connections of who runs the project end, as when a network fails."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database "
            "WHERE locktype = 'advisory' AND objid = 7306 AND granted AND datname = current_database()"
        )


def takes_over(url: str, how: str, first: Process, second: Process) -> float:
    """How long it takes until the second runs the project."""
    until(lambda: first.says("runs"), "the first to run")
    until(lambda: second.says("waits") or second.says("runs"), "the second to wait")
    assert not second.says("runs")
    began = monotonic()
    if how == "kill":
        first.process.kill()
    elif how == "stop":
        first.process.send_signal(signal.SIGSTOP)
    else:
        cut(url)
    until(lambda: second.says("runs"), f"the second to take over after {how}")
    took = monotonic() - began
    if how != "kill":
        first.process.send_signal(signal.SIGCONT)
        until(lambda: first.says("fenced"), "the first to be fenced")
        assert first.process.wait(LONG_S) == 0
    store = Store(url)
    try:
        with store.read() as conn:
            assert store.fact(conn, "owner") == second.owner
    finally:
        store.close()
    return took


@pytest.mark.parametrize("how", ["kill", "stop", "cut"])
def test_it_takes_over(place: str, tmp_path: Path, how: str) -> None:
    with process(place, "first", tmp_path) as first:
        until(lambda: first.says("runs"), "the first to run")
        with process(place, "second", tmp_path) as second:
            takes_over(place, how, first, second)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_times(place: str, tmp_path: Path) -> None:
    """Each takes over from the one before; within 15 s, by the clock of a machine that is not overloaded."""
    chance = random.Random(7)
    first = Process(place, "p0", tmp_path)
    until(lambda: first.says("runs"), "the first to run")
    took = []
    try:
        for number in range(1, 51):
            second = Process(place, f"p{number}", tmp_path)
            took.append(takes_over(place, chance.choice(["kill", "stop", "cut"]), first, second))
            first.end()
            first = second
    finally:
        first.end()
    print(f"taken over {len(took)} times, after {sum(took) / len(took):.1f} s, at most {max(took):.1f} s")
    assert max(took) < 15


def test_one_that_lives_keeps_it(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the other waits, and also if it is slow: the lease is renewed meanwhile."""
    monkeypatch.setattr("penstock.store.lock.LEASE_S", 0.8)
    monkeypatch.setattr("penstock.store.lock.RENEW_EVERY_S", 0.1)
    store, other = Store(place), Store(place)
    try:
        lock, second = RunLock(store, tmp_path / "run.lock"), RunLock(other, tmp_path / "run.lock")
        lock.acquire("mine")
        until_looked = [0]
        monkeypatch.setattr("penstock.store.lock.sleep", lambda s: until_looked.append(threading_wait(s)))
        with pytest.raises(StopIteration):
            second._stand_by(lambda _who: None)
        with store.read() as conn:
            store.check_owner(conn, "mine")
        monkeypatch.undo()
        with pytest.raises(AlreadyRunning):
            second.acquire("yours")
        lock.release()
        second.acquire("yours", standby=True)
        with pytest.raises(Fenced), store.read() as conn:
            store.check_owner(conn, "mine")
        second.release()
    finally:
        store.close()
        other.close()


@pytest.mark.parametrize("writes", [True, False], ids=["while it writes", "while it renews"])
def test_one_that_was_frozen_in_a_transaction(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """What it had locked keeps nobody from taking over."""
    monkeypatch.setattr("penstock.store.lock.LEASE_S", 0.4)
    frozen, other = Store(place), Store(place)
    took_over = False
    try:
        with frozen.write() if writes else frozen.engine.begin() as conn:
            frozen.set_fact(conn, "lease", "0")
            second = RunLock(other, tmp_path / "run.lock")
            Event().wait(0.5)
            second.acquire("yours", standby=True)
            with other.read() as told:
                other.check_owner(told, "yours")
            second.release()
            took_over = True
    except DBAPIError:
        pass  # the frozen one's connection was ended
    finally:
        frozen.close()
        other.close()
    assert took_over


_rounds = iter(range(4))


def threading_wait(seconds: float) -> int:
    """Sleeps, a few times."""
    import threading

    threading.Event().wait(seconds)
    return next(_rounds)


def test_it_needs_a_server(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/a.db")
    store.create()
    with pytest.raises(PenstockError, match="--standby needs a store on PostgreSQL"):
        RunLock(store, tmp_path / "run.lock").acquire("me", standby=True)
    store.close()


def test_a_server_that_is_paused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It acknowledges, but does not answer: who waits is told, and goes on when it is back."""
    monkeypatch.setattr(bounded, "PATIENCE_S", 1.0)
    store = Store(place)
    try:
        with store.read() as conn:
            pid = conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Exception, match="did not answer for 1 s"), store.read() as conn:
                store.last_number(conn)
        finally:
            os.kill(pid, signal.SIGCONT)
        with store.read() as conn:
            assert store.last_number(conn) == 0
    finally:
        store.close()
