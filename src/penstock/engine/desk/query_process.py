"""Queries in processes of their own, one for each lane: whatever a query does, it can be ended, and nothing else ends with it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, cast

from penstock.engine.desk.query_worker import received, rows_heard, send
from penstock.engine.desk.question import Question, ResultRows
from penstock.errors import PenstockError

# So much work a query that was cancelled may take to end by itself, and so long where the machine is too busy for that. A process that is killed
# has to start again, which is more work than most queries are.
GRACE_S = 1.0
_LONGEST_GRACE_S = 5.0
_STARTING_S = 600.0
_LOOK_S = 1.0
# What a query process is told of the environment: enough to start Java and Python. Passwords of stores are often in there.
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "JAVA_HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "SPARK_LOCAL_IP")  # fmt: skip
# Updates go first: while both want the cores, a thread that updates gets about ten times as much as one that answers.
BEHIND_UPDATES = 10
_JAVA = "spark.driver.extraJavaOptions"
_DIES = "-XX:+ExitOnOutOfMemoryError"


class QueryEnded(PenstockError):
    """The process that ran a query is gone."""


@dataclass(frozen=True)
class ProcessSettings:
    # In here each process has a folder of its own, which goes with it.
    scratch: Path
    spark: Mapping[str, str | int | bool]
    zone: str = "UTC"
    functions: Sequence[str] = ()
    # The memory of its Java.
    memory: str = "1g"
    # What it may have on disk at a time: answers, and what it cannot keep in memory.
    disk_bytes: int = 8 << 30
    # How far it steps back when others want the cores.
    nice: int = 0


class QueryProcess:
    """A `Reader`. Only the lane asks it; anyone may cancel."""

    def __init__(self, settings: ProcessSettings, is_wanted: Callable[[], bool] = lambda: True) -> None:
        # Looked at while it starts, which takes long.
        self._is_wanted = is_wanted
        self._disk_bytes = settings.disk_bytes
        settings.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="lane-", dir=settings.scratch))
        self._writing = threading.Lock()
        self._running: str | None = None
        self._why = ""
        with (self._folder / "process.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.engine.desk.query_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")},
                # A group of its own, which ends as a whole; but the session of this process, as shares of cores go by sessions.
                process_group=0,
            )
        self._in = cast(BinaryIO, self._process.stdin)
        self._out = cast(BinaryIO, self._process.stdout)
        try:
            self._tell({**_setup(settings), "scratch": str(self._folder)})
            self._hear(monotonic() + _STARTING_S)
        except BaseException:
            self.close()
            raise

    def answer(self, question: Question) -> ResultRows:
        with self._writing:
            self._running = question.group
        try:
            self._tell(question.plain())
            told = self._hear(None, Path(question.folder) if question.folder else None)
            return rows_heard(told, self._out.read(told["bytes"]))
        except QueryEnded:
            self.close()
            raise
        finally:
            with self._writing:
                self._running = None

    def cancel(self, group: str) -> None:
        with suppress(QueryEnded):
            self._tell({"cancel": group})
        self._look_later(group, _worked_s(self._process.pid), monotonic())

    def _look_later(self, group: str, worked_s: float, since_s: float) -> None:
        timer = threading.Timer(GRACE_S, self._end_if, (group, worked_s, since_s))
        timer.daemon = True
        timer.start()

    def _end_if(self, group: str, worked_s: float, since_s: float) -> None:
        with self._writing:
            if self._running != group:
                return
            if _worked_s(self._process.pid) - worked_s < GRACE_S and monotonic() - since_s < _LONGEST_GRACE_S - GRACE_S:
                self._look_later(group, worked_s, since_s)
            else:
                self._kill("it did not stop when it was told to")

    def close(self) -> None:
        self._kill("it was closed")
        self._process.wait()
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _tell(self, told: Mapping[str, Any]) -> None:
        with self._writing:
            try:
                send(self._in, told)
            except (OSError, ValueError):
                raise self._ended() from None

    def _hear(self, until: float | None, folder: Path | None = None) -> dict[str, Any]:
        """The next message. While it is waited for, the process is watched."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        while not poll.poll(_LOOK_S * 1000):
            if until is not None and not self._is_wanted():
                self._kill("it is not wanted any more")
            elif until is not None and monotonic() > until:
                self._kill("it did not start")
            elif _size(self._folder) + _size(folder) > self._disk_bytes:
                self._kill(f"it needed more than {self._disk_bytes >> 20:,} MB on disk (queries.disk_bytes)")
        told = received(self._out)
        if told is None:
            raise self._ended()
        if "error" in told:
            raise QueryFailed(told["error"])
        return told

    def _ended(self) -> QueryEnded:
        self._process.wait()
        why = self._why or "it was too large for the memory of its process (queries.memory)"
        return QueryEnded(f"the query was ended: {why}")


class QueryFailed(PenstockError):
    """Spark could not compute it. The text says why."""


def _setup(settings: ProcessSettings) -> dict[str, Any]:
    spark = dict(settings.spark)
    options = spark.pop("driver.extraJavaOptions", spark.pop(_JAVA, ""))
    # Where memory ends, it dies at once rather than half.
    spark |= {_JAVA: f"{options} {_DIES}".strip(), "spark.driver.memory": settings.memory}
    spark.pop("driver.memory", None)
    spark["spark.driver.maxResultSize"] = "256m"
    return {"spark": spark, "zone": settings.zone, "functions": list(settings.functions), "nice": settings.nice}


def _size(folder: Path | None) -> int:
    total = 0
    for path in folder.rglob("*") if folder is not None else ():
        with suppress(OSError):  # it is gone
            total += path.lstat().st_size
    return total


_TICKS = os.sysconf("SC_CLK_TCK")


def _worked_s(group: int) -> float:
    """The work that a group of processes has done; where the system does not say, as if it worked all the time."""
    total = 0
    try:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return monotonic()
    for entry in entries:
        with suppress(OSError, ValueError, IndexError):  # it is gone
            # The name of a program may have any character, also a bracket.
            told = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(told[2]) == group:
                total += int(told[11]) + int(told[12])
    return total / _TICKS
