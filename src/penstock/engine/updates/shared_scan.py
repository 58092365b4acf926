"""One scan for a group of tables: what several of them read is read once, and kept in memory (or on disk, if it is large)
while they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.updates.rows import read_files
from penstock.model.graph import Graph
from penstock.model.schema import Schema
from penstock.requests.job import Job


def shared_sources(graph: Graph, job: Job) -> frozenset[str]:
    """The tables that more than one table of the job reads."""
    readers = Counter(source for each in job.each for source in {edge.source for edge in graph.into[each.table]})
    return frozenset(source for source, count in readers.items() if count > 1)


class SharedReads:
    def __init__(self, session: SparkSession, sources: frozenset[str]) -> None:
        self._session = session
        self._sources = sources
        self._frames: dict[tuple[object, ...], DataFrame] = {}

    def read(self, source: str, paths: Sequence[str], schema: Schema, size_bytes: int) -> DataFrame:
        if source not in self._sources or not paths:
            return read_files(self._session, paths, schema, size_bytes)
        key = (schema, *paths)
        if key not in self._frames:
            self._frames[key] = read_files(self._session, paths, schema, size_bytes).persist(
                StorageLevel.MEMORY_AND_DISK
            )
        return self._frames[key]

    def release(self) -> None:
        for frame in self._frames.values():
            frame.unpersist()
        self._frames.clear()
