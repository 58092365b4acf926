"""Spark's storage memory, measured: what all executors may use, and what they use."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession


def storage_bytes(session: SparkSession) -> tuple[int, int]:
    """(at the most, in use)"""
    status: Any = session.sparkContext._jsc.sc().getExecutorMemoryStatus().values().iterator()
    most = left = 0
    while status.hasNext():
        pair = status.next()
        most, left = most + pair._1(), left + pair._2()
    return most, most - left


def rows_held(session: SparkSession, rdds: set[int]) -> tuple[int, int]:
    """(in memory, on disk): what Spark holds just now of some persisted rows."""
    memory = disk = 0
    for info in session.sparkContext._jsc.sc().getRDDStorageInfo() if rdds else ():
        if info.id() in rdds:
            memory, disk = memory + int(info.memSize()), disk + int(info.diskSize())
    return memory, disk


class StorageSampler:
    """The peak of storage memory while something runs, looked at every so often: `with StorageSampler(session) as peak`."""

    def __init__(self, session: SparkSession, every_s: float = 0.05) -> None:
        self._session = session
        self._every_s = every_s
        self._stop = Event()
        self._thread = Thread(target=self._sample, name="penstock-storage", daemon=True)
        self.before_bytes = self.peak_bytes = 0

    def __enter__(self) -> StorageSampler:
        self.before_bytes = self.peak_bytes = storage_bytes(self._session)[1]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self._every_s):
            self.peak_bytes = max(self.peak_bytes, storage_bytes(self._session)[1])
