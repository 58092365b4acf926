"""What this process has just written, kept for who reads it next: the next level of a chain is made seconds later, and reads those files and no other.

A file never changes, and no other file ever has its name. So what is kept of it is right for as long as anything reads it; what is rewritten,
merged or withdrawn has other files, and these are asked for by their own names.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.updates.rows import local, read_files
from penstock.model.graph import Graph
from penstock.model.schema import Column, Schema
from penstock.requests.job import Job


@dataclass(frozen=True)
class _Kept:
    rows: pa.Table
    # By the name in small letters, as Spark finds columns.
    columns: dict[str, Column]


class RecentRows:
    """Rows by their file. When they are too many, those go first that nobody wanted for the longest time."""

    def __init__(self, most_bytes: int, most_bytes_of_one: int) -> None:
        self._most_bytes = most_bytes
        # Of what is larger, reading the file costs less than to hand it to the JVM.
        self._most_bytes_of_one = most_bytes_of_one
        self._files: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def keep(self, path: str, rows: pa.Table, schema: Schema) -> None:
        if rows.nbytes > self._most_bytes_of_one:
            return
        with self._lock:
            if path not in self._files:
                # Whether a column may be null differs from file to file: of a count, Spark says that it is not.
                fields = [field.with_nullable(True).remove_metadata() for field in rows.schema]
                rows = pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))
                self._files[path] = _Kept(rows, {column.name.lower(): column for column in schema})
                self._bytes += rows.nbytes
            while self._bytes > self._most_bytes:
                _, gone = self._files.popitem(last=False)
                self._bytes -= gone.rows.nbytes

    def rows(self, paths: Sequence[str], schema: Schema) -> pa.Table | None:
        """The rows of all these files; None if some are not kept, had columns of other types, or values are nested."""
        found = []
        with self._lock:
            for path in paths:
                kept = self._files.get(path)
                names = _names(kept, schema) if kept is not None else None
                if kept is None or names is None:
                    return None
                self._files.move_to_end(path)
                found.append(kept.rows.select(names))
        if not found or sum(rows.nbytes for rows in found) > self._most_bytes_of_one:
            return None
        # What is no longer on the disk is not to be had from memory: who asks for it is to be told.
        if not all(Path(path).exists() for path in paths):
            return None
        wanted = [column.name for column in schema]
        return pa.concat_tables(rows.rename_columns(wanted) for rows in found)

    def read(self, session: SparkSession, paths: Sequence[str], schema: Schema, size_bytes: int) -> DataFrame:
        """The rows of published files, from memory where they are there."""
        rows = self.rows(paths, schema)
        return read_files(session, paths, schema, size_bytes) if rows is None else local(session, rows, schema)


def _names(kept: _Kept, schema: Schema) -> list[str] | None:
    """What the columns are called in a file, if it has all of them as they are wanted."""
    # Nested values with nulls do not come into the JVM as they are.
    if any("<" in column.type for column in schema):
        return None
    found = [kept.columns.get(column.name.lower()) for column in schema]
    if any(one is None or one.type != column.type for one, column in zip(found, schema, strict=True)):
        return None
    return [one.name for one in found if one is not None]


# One scan for a group of tables: what several of them read is read once, and kept in memory (or on disk, if it is large) while they are made


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
