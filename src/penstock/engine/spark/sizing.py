"""How a job runs, by the bytes that it reads and the slots that there are: a small one as the session is set up, a large one planned again as it runs,
with files that are worth opening."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

MB = 1 << 20
# Below this much input one task and one file are best.
SMALL_BYTES = 48 * MB
# A task of a shuffle is to read about so much; one that is too small is put together with others.
_TASK_BYTES = 16 * MB
_MOST_TASKS = 4096
# Before compression of columns, which makes about half of it: files of 128 to 512 MB, where there is as much for each slot.
_LEAST_FILE, _MOST_FILE = 64 * MB, 768 * MB
# What one task reads of large files, if there is as much for each slot.
_LEAST_SPLIT, _MOST_SPLIT = 128 * MB, 512 * MB
# A table that is sent to every executor.
_LEAST_SENT, _MOST_SENT = 10 * MB, 64 * MB


_ADAPTIVE = "spark.sql.adaptive.enabled"
# Said of a session while it must not plan again.
_ONCE = "spark.penstock.plannedOnce"


@contextmanager
def planned_once(session: SparkSession) -> Iterator[None]:
    """No query is planned again while it runs, however large. Spark then leaves out nothing that it finds to be joined with nothing."""
    before = str(session.conf.get(_ADAPTIVE))
    session.conf.set(_ONCE, "true")
    session.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        session.conf.set(_ADAPTIVE, before)
        session.conf.unset(_ONCE)


def settings_for(input_bytes: int, slots: int) -> dict[str, str]:
    """Of a large job."""
    tasks = max(2 * slots, -(-input_bytes // _TASK_BYTES))
    file = max(_LEAST_FILE, min(_MOST_FILE, input_bytes // (2 * slots)))
    # What is sent costs each executor its memory, what is shuffled instead costs the whole input.
    sent = max(_LEAST_SENT, min(_MOST_SENT, input_bytes // 50))
    return {
        _ADAPTIVE: "true",
        "spark.sql.shuffle.partitions": str(min(tasks, _MOST_TASKS)),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(file),
        "spark.sql.files.maxPartitionBytes": str(max(_LEAST_SPLIT, min(_MOST_SPLIT, input_bytes // (8 * slots)))),
        "spark.sql.adaptive.autoBroadcastJoinThreshold": str(sent),
        # Rows are sorted by their partition: one open file at a time.
        "spark.sql.maxConcurrentOutputFileWriters": "0",
    }


class Sizing:
    """The settings of one session, job by job. What the project sets itself stays."""

    def __init__(self, session: SparkSession, given: Collection[str] = ()) -> None:
        self._session = session
        self._given = given
        # As they were before the first large job.
        self._before: dict[str, str | None] = {}

    def fit(self, input_bytes: int) -> bool:
        """Set up the session for a job that reads so much; true if it is a large one."""
        if input_bytes <= SMALL_BYTES:
            if self._before:
                self._restore(self._fixed())
            return False
        fixed = self._fixed()
        for key, value in settings_for(input_bytes, self._session.sparkContext.defaultParallelism).items():
            if key not in fixed:
                self._before.setdefault(key, self._session.conf.get(key, None))
                self._session.conf.set(key, value)
        return True

    def _fixed(self) -> Collection[str]:
        """What is not ours to set, now."""
        return {*self._given, _ADAPTIVE} if self._session.conf.get(_ONCE, None) else self._given

    def _restore(self, fixed: Collection[str]) -> None:
        for key, value in self._before.items():
            if key in fixed:
                continue
            if value is None:
                self._session.conf.unset(key)
            else:
                self._session.conf.set(key, value)
        self._before = {key: value for key, value in self._before.items() if key in fixed}
