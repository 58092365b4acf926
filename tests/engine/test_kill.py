"""`kill -9` of the real process on Spark, at random moments of fixed seeds, while a feed goes on all the time."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.engine.crashing import EXPECTED, PROJECT, Points, Site, alerts, check, stats, write_project
from tests.waiting import LONG_S, until

PYTHON_VIEW = """
    import time
    from pathlib import Path

    import penstock as ps

    FOLDER = Path(__file__).parent.parent


    @ps.table(partition="hour", time="seen")
    def noted(alerts, severe):
        while (FOLDER / "hold").exists():
            (FOLDER / "held").touch()
            time.sleep(0.01)
        return alerts.join(severe, ["router", "seen", "severity"], "left_anti").select("router", "seen")
"""
QUICK_START = """
[spark]
"driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"driver.memory" = "1g"
"""
NOTED = "SELECT router, seen FROM {alerts} WHERE severity < 2"


class Feeds(Thread):
    """Delivers files as long as it is let: mostly new ones, some late, some again, some corrected."""

    def __init__(self, folder: Path, seed: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._landing = folder / "landing"
        self._chance = random.Random(seed)
        self._pause_s = pause_s
        self._over = Event()
        self._count = 0
        self._now = datetime(2024, 3, 1, 20, tzinfo=UTC)
        self._put("routers/r1.csv", "router,site\na,north\nb,south\nc,east\n")
        self.deliver()

    def run(self) -> None:
        while not self._over.wait(self._pause_s):
            self.deliver()

    def end(self) -> None:
        self._over.set()
        self.join()

    def deliver(self) -> None:
        self._count += 1
        self._now += timedelta(minutes=self._chance.randrange(5, 50))
        self._put(f"stats/s{self._count:04}.csv", stats(*(self._reading(self._now) for _ in range(6))))
        found = [(self._router(), self._minute(self._now), self._chance.randrange(5)) for _ in range(3)]
        self._put(f"alerts/a{self._count:04}.json", alerts(*found))
        number = self._chance.randrange(1, self._count + 1)
        match self._chance.randrange(8):
            case 0:
                long_ago = self._now - timedelta(hours=self._chance.randrange(2, 12))
                self._put(f"stats/s{self._count:04}-late.csv", stats(*(self._reading(long_ago) for _ in range(2))))
            case 1:
                again = self._landing / f"stats/s{number:04}.csv"
                self._put(f"stats/s{number:04}.csv", again.read_text())
            case 2:
                corrected = (
                    datetime(2024, 3, 1, 21, tzinfo=UTC) + (self._now - datetime(2024, 3, 1, 21, tzinfo=UTC)) / 2
                )
                self._put(f"stats/s{number:04}.csv", stats(*(self._reading(corrected) for _ in range(5))))

    def _router(self) -> str:
        return self._chance.choice("abc")

    def _minute(self, around: datetime) -> str:
        return (around + timedelta(minutes=self._chance.randrange(30))).strftime("%dT%H:%M")

    def _reading(self, around: datetime) -> tuple[str, str, int]:
        return self._router(), self._minute(around), self._chance.randrange(1000)

    def _put(self, name: str, content: str) -> None:
        path = self._landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(content)
        unfinished.replace(path)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "project"
    settings = PROJECT["penstock.toml"] + QUICK_START.replace("\n", "\n        ")
    write_project(folder, PROJECT | {"penstock.toml": settings, "tables/python.py": PYTHON_VIEW})
    yield Site(folder, Points())


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", "run", "--quiet", "--project", str(folder), *options]


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock run` with a process group of its own; nothing of it is left behind."""
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(command(folder), stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def events(folder: Path, kind: str) -> list[int]:
    """The numbers of all events of a kind in the log."""
    path = folder / ".penstock" / "penstock.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as con:
        try:
            return [row[0] for row in con.execute("SELECT number FROM penstock_event WHERE kind = ?", [kind])]
        except sqlite3.OperationalError:  # not made yet
            return []


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if int(lines["PPid"]) == pid:
            found.append(int(lines["Pid"]))
    return found


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def last_words(folder: Path) -> str:
    return (folder / "run.log").read_text()[-2000:] if (folder / "run.log").exists() else ""


def kill_at_random(site: Site, kills: int, seed: int) -> None:
    folder = site.folder
    chance = random.Random(seed)
    feeds = Feeds(folder, seed, pause_s=1.0)
    feeds.start()
    orphans: list[int] = []
    interrupted = 0
    for number in range(kills):
        before = len(events(folder, "update-started"))
        with running(folder) as process:
            if number % 5 == 4:  # while it starts
                time.sleep(chance.uniform(0.5, 8))
            elif number == 2:  # while an update runs, for sure
                (folder / "hold").touch()
                until(lambda p=process: (folder / "held").exists() or p.poll() is not None, "the update that is held")
            else:
                began = len(events(folder, "update-started"))
                until(
                    lambda b=began, p=process: len(events(folder, "update-started")) > b or p.poll() is not None,
                    "the first update",
                )
                time.sleep(chance.uniform(0, 3))
            if number == 0:
                refused(folder, process.pid)
            assert process.poll() is None, last_words(folder)
            started = children(process.pid)
            if number % 2:
                # Only Python: its JVM is an orphan now, which may still write files but publishes nothing.
                process.kill()
                orphans += started
            else:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        (folder / "hold").unlink(missing_ok=True)
        done = len(events(folder, "update-finished")) + len(events(folder, "update-failed"))
        interrupted += len(events(folder, "update-started")) > done and len(events(folder, "update-started")) > before
        if number == 1:
            told = len(events(folder, "update-finished"))
            until(lambda o=tuple(orphans): not any(map(alive, o)), "the orphaned JVM to end")
            assert len(events(folder, "update-finished")) == told
    feeds.end()
    try:
        until(lambda: not any(map(alive, orphans)), "orphaned JVMs to end")
    finally:
        for pid in filter(alive, orphans):
            os.kill(pid, signal.SIGKILL)
    assert interrupted, "no kill came while an update ran"
    final = subprocess.run(command(folder, "--until-idle"), capture_output=True, text=True, timeout=LONG_S, check=False)
    assert final.returncode == 0, final.stderr
    check(site, EXPECTED | {"noted": NOTED})


def refused(folder: Path, holder: int) -> None:
    """A second process is told who runs the project."""
    second = subprocess.run(command(folder), capture_output=True, text=True, timeout=LONG_S, check=False)
    assert second.returncode == 7
    assert f"process {holder} " in " ".join(second.stderr.split()), second.stderr


def test_killed_at_random_moments(site: Site) -> None:
    kill_at_random(site, kills=4, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_many_random_moments(site: Site, seed: int) -> None:
    kill_at_random(site, kills=25, seed=100 + seed)
