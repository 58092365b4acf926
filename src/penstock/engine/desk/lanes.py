"""The lanes on which queries run: threads, each with a reader of its own. What runs can be stopped at any time.

Lanes begin as queries come, up to `count`. When all of them are busy, a query of a profile that runs nothing gets a lane more: so no profile waits
because another one asks for long work.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.desk.question import Question, Reader
from penstock.engine.desk.reads import Reading
from penstock.engine.desk.result_files import delete
from penstock.engine.desk.sources import Sources
from penstock.engine.desk.ticket import QueryTicket
from penstock.engine.updates.executor import explain_error

if TYPE_CHECKING:
    from penstock.engine.desk.front import Front


@dataclass(eq=False)
class Run:
    """One run on Spark, for all queries that ask the same. Without members it is for nobody, and stopped."""

    members: list[QueryTicket]
    started_us: int
    group: str = field(default_factory=lambda: f"query-{uuid.uuid4().hex[:12]}")
    # On which it runs, once it does.
    reader: Reader | None = None
    # Whether it was the first that its lane answers.
    cold: bool = False

    def __post_init__(self) -> None:
        self.first = self.members[0]
        self.profiles = tuple(asked.profile for asked in self.members)

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.cancel(self.group)


class Lanes:
    """The front holds its lock around all of it but what the threads do."""

    def __init__(self, front: Front, make: Callable[[], Reader], count: int, more: int) -> None:
        self._front = front
        self._make = make
        self._sources = Sources(front.warehouse, front.store, front.catalogue)
        self._count = count
        self._more = more
        self._threads: list[threading.Thread] = []
        # Lanes that wait for work.
        self.idle = 0
        self.runs: list[Run] = []
        # Lanes that have answered something.
        self.warm = 0
        self._ready = threading.Semaphore(0)

    def prepare(self, count: int) -> None:
        """Have so many lanes ready."""
        while len(self._threads) < min(count, self._count):
            self._begin(True)

    def wait_ready(self) -> None:
        """Until one that was prepared is."""
        self._ready.acquire()

    def need(self, work: int) -> None:
        """So many runs wait: lanes begin with the first queries, as not everyone who could ask does."""
        while self.idle < work and len(self._threads) < self._count + self._more:
            self._begin(False)
            work -= 1

    @property
    def cold(self) -> int:
        return max(0, self._count - self.warm)

    def _begin(self, at_once: bool) -> None:
        name = f"penstock-query-{len(self._threads)}"
        thread = threading.Thread(target=self._work, args=(at_once,), name=name)
        thread.daemon = True
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        for run in list(self.runs):
            run.stop()
        for thread in self._threads:
            thread.join(timeout=30)

    def leave(self, asked: QueryTicket) -> None:
        """A query does not want its run any more; the last one ends it."""
        for run in self.runs:
            if asked in run.members:
                run.members.remove(asked)
                if not run.members:
                    run.stop()

    def _work(self, at_once: bool) -> None:
        front = self._front
        reader: Reader | None = None
        answered = 0
        try:
            if at_once:
                reader = self._started()
                self._ready.release()
            while (run := front.next_run()) is not None:
                try:
                    reader = reader or self._make()
                    run.cold = answered == 0
                    self._answer(reader, run)
                    answered += 1
                    self.warm += answered == 1
                except Exception as error:
                    for asked in list(run.members):
                        front.fail(asked, explain_error(error))
                    if reader is not None and not reader.is_alive:
                        reader.close()
                        self.warm -= answered > 0
                        answered = 0
                        reader = None if front.is_closing else self._started()
                finally:
                    # Until a lane is ready again, the profiles whose query ended it count as busy.
                    front.over(run)
        finally:
            if reader is not None:
                reader.close()

    def _started(self) -> Reader | None:
        """Where it does not start, the next query is told why."""
        try:
            return self._make()
        except Exception:
            return None

    def _answer(self, reader: Reader, run: Run) -> None:
        front, asked = self._front, run.first
        reading, size_bytes = front.pin(run)
        try:
            if not front.worth_running(run, reading):
                return
            kept = front.kept(asked, reading)
            if kept is not None:
                front.answered(run, reading, kept, None)
                return
            question = self._question(run, reading)
            if not front.begins(run, reader):
                return
            rows = reader.answer(question)
            if run.members:
                front.answered(run, reading, rows, size_bytes)
            else:
                delete(rows.files)
        finally:
            front.unpin(run)

    def _question(self, run: Run, reading: Reading) -> Question:
        asked, settings = run.first, self._front.settings
        return Question(
            run.group,
            asked.text,
            self._sources.views(asked.tables, reading, asked.touched),
            asked.limit,
            settings.inline_rows,
            settings.inline_bytes,
            str(self._front.results_folder / asked.id) if asked.as_files else None,
        )
