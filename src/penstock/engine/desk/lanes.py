"""The lanes on which queries run: threads, each with a Spark session. What runs can be stopped at any time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.engine.desk.answer import ResultRows
from penstock.engine.desk.reads import Reading
from penstock.engine.desk.ticket import QueryTicket
from penstock.engine.spark.queries import SparkReader, cancel
from penstock.engine.updates.executor import explain_error
from penstock.model.time import SECOND_US

if TYPE_CHECKING:
    from penstock.engine.desk.front import Front


@dataclass(eq=False)
class Run:
    """One run on Spark, for all queries that ask the same. Without members it is for nobody, and stopped."""

    members: list[QueryTicket]
    started_us: int
    group: str = field(default_factory=lambda: f"query-{uuid.uuid4().hex[:12]}")

    def __post_init__(self) -> None:
        self.first = self.members[0]

    def left_s(self, now_us: int) -> float:
        return max(0.05, self.first.run.mean_s - (now_us - self.started_us) / SECOND_US)


class Lanes:
    def __init__(self, front: Front, session: Callable[[], SparkSession], count: int) -> None:
        self._front = front
        self._session = session
        self.runs: list[Run] = []
        self._threads = [
            InheritableThread(target=self._work, name=f"penstock-query-{number}") for number in range(count)
        ]
        self._begun = False

    def begin(self) -> None:
        """Threads start with the first query: not everyone who could ask does."""
        if not self._begun:
            self._begun = True
            for thread in self._threads:
                thread.daemon = True
                thread.start()

    def close(self) -> None:
        for run in list(self.runs):
            cancel(self._session(), run.group)
        for thread in self._threads if self._begun else ():
            thread.join(timeout=30)

    def leave(self, asked: QueryTicket) -> None:
        """A query does not want its run any more; the last one ends it."""
        for run in self.runs:
            if asked in run.members:
                run.members.remove(asked)
                if not run.members:
                    cancel(self._session(), run.group)

    def _work(self) -> None:
        front = self._front
        reader: SparkReader | None = None
        while (run := front.next_run()) is not None:
            try:
                if reader is None:
                    reader = SparkReader(self._session(), front.warehouse, front.store, front.catalogue)
                self._answer(reader, run)
            except Exception as error:
                reader = None  # its session may have ended
                for asked in list(run.members):
                    front.fail(asked, explain_error(error))
            finally:
                front.over(run)

    def _answer(self, reader: SparkReader, run: Run) -> None:
        front, asked = self._front, run.first
        reading, size_bytes = front.pin(run)
        try:
            if not front.worth_running(run, reading):
                return
            kept = front.kept(asked, reading)
            if kept is not None:
                front.answered(run, reading, kept, None)
                return
            reader.bind(run.group, asked.sql[:200])
            rows = self._rows(reader, run, reading)
            if run.members:
                front.answered(run, reading, rows, size_bytes)
        finally:
            front.unpin(run)

    def _rows(self, reader: SparkReader, run: Run, reading: Reading) -> ResultRows:
        front, asked = self._front, run.first
        frame = reader.frame(asked.read, reading, asked.touched)
        try:
            rows = reader.collect(frame, min(asked.limit, front.settings.inline_rows))
            larger = rows.truncated and asked.as_files and asked.limit > front.settings.inline_rows
            if not larger or not run.members:
                return rows
            return reader.write(frame, asked.limit, front.results_folder / asked.id)
        finally:
            reader.forget(asked.read)
