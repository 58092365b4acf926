"""What the text of a query asks: which tables, which of their partitions, what kind of work. Read once for all who send the same text."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pyspark.sql import SparkSession

from penstock.control.query_inputs import Touched
from penstock.declare.sql.facts import SqlProblem
from penstock.declare.sql.parse import Text
from penstock.declare.sql.read import ReadQuery, read_query
from penstock.declare.sql.touched import Timed, is_steady, shape_of, touched
from penstock.declare.sql.view import sources
from penstock.declare.warehouse import Definitions
from penstock.engine.desk.answer import python_rows
from penstock.engine.desk.versions import Candidate, QueryError, QueryResult, Version, agree
from penstock.engine.spark.queries import quarantines
from penstock.engine.spark.session import session_in
from penstock.engine.updates.rows import read_files
from penstock.model.grain import zone_of
from penstock.queries.predict import PlanShape
from penstock.tables.replica import Manifest, Replica

T = TypeVar("T")

# Of the texts that are remembered, the characters in all: what is known of one takes some hundred times as much memory.
_REMEMBERED = 1_000_000
# Seconds of work that reading a text may take.
_READING_S = 3.0


class Understood(NamedTuple):
    read: ReadQuery
    shape: PlanShape
    # Its answer follows from the versions that it reads.
    steady: bool


class _TooLong(BaseException):
    pass


def in_time(work: Callable[[], T], seconds: float) -> T | None:
    """What a thread finds with so much work; None if it takes more: then it is interrupted wherever it is."""
    thread, lock = threading.get_ident(), threading.Lock()
    clock = time.pthread_getcpuclockid(thread)
    until = time.clock_gettime(clock) + seconds
    over = threading.Event()
    sent = False

    def watch() -> None:
        nonlocal sent
        while not over.wait(0.1):
            with lock:
                if not over.is_set() and time.clock_gettime(clock) > until:
                    sent = True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TooLong))
                    return

    def settle() -> None:
        with lock:
            over.set()
        while sent:  # it is on its way, and must not meet anything else
            time.sleep(0.001)

    threading.Thread(target=watch, name="penstock-reading", daemon=True).start()
    try:
        try:
            found = work()
        except Exception:
            settle()
            raise
        settle()
        return found
    except _TooLong:
        return None


class Texts:
    def __init__(self, warehouse: Definitions, functions: tuple[str, ...]) -> None:
        self._functions = functions
        self._own = frozenset(warehouse.definitions)
        self._schemas = {
            **{name: one.columns for name, one in warehouse.definitions.items()},
            **quarantines(warehouse),
        }
        self._timed = {
            name: Timed(one.time, one.table.grain)
            for name, one in warehouse.definitions.items()
            if one.time is not None
        }
        self._zone = zone_of(warehouse.zone)
        self._known: dict[str, Understood] = {}
        self._characters = 0
        self._lock = threading.Lock()

    def understood(self, sql: str) -> Understood:
        """Raises `SqlProblem` if it cannot be a query."""
        known = self._known.get(sql)
        if known is None:
            known = in_time(lambda: self._read(sql), _READING_S)
            if known is None:
                raise SqlProblem(
                    [Text(sql, "query", 1).problem(0, "it takes too long to read", "expected a simpler one")]
                )
            with self._lock:
                if sql not in self._known:
                    self._known[sql] = known
                    self._characters += len(sql)
                while self._characters > _REMEMBERED:
                    self._characters -= len(oldest := next(iter(self._known)))
                    del self._known[oldest]
        return known

    def _read(self, sql: str) -> Understood:
        read = read_query(sql, self._schemas, self._functions)
        found = Understood(read, shape_of(read), is_steady(read))
        self.touched(read, 0)
        return found

    def touched(self, read: ReadQuery, now_us: int) -> Touched:
        """The partitions of the tables of the project that it can touch if it is asked now."""
        found = touched(read, self._timed, now_us, self._zone)
        return {name: found[name] for name in read.tables if name in self._own}


# Reading at a replica: from its own manifests and files, at versions that agree with each other. Neither the catalogue nor
# the store is asked, so that it also works where the warehouse itself cannot be reached.


def query_replica(session: SparkSession, replica: Replica, sql: str, limit: int, zone: str) -> QueryResult:
    own = session_in(session, zone)
    there = replica.versions()
    known = {name.lower(): name for name in there}
    names = []
    for name in sources(sql, file="query"):
        if name.lower() not in known:
            had = ", ".join(sorted(there)) or "nothing"
            raise QueryError(f"replica {replica.name} does not have `{name}` (yet); it has {had}")
        names.append(known[name.lower()])
    manifests = {name: _whole(replica, name, sorted(there[name], reverse=True)) for name in names}
    chosen = agree({name: [_candidate(one) for one in found] for name, found in manifests.items()})
    consistent = chosen is not None
    picked: dict[str, Manifest] = {}
    for name, found in manifests.items():
        picked[name] = next(one for one in found if chosen is None or one.snapshot == chosen[name].snapshot)
    for name, one in picked.items():
        paths = [replica.locate(name, file) for file in one.files]
        frame = read_files(own, paths, one.schema, sum(file.size_bytes for file in one.files))
        frame.createOrReplaceTempView(name)
    frame = own.sql(sql)
    found = frame.limit(limit + 1).toArrow()
    edges = [one.complete_us for one in picked.values() if one.complete_us is not None]
    return QueryResult(
        tuple(frame.columns),
        tuple(field.dataType.simpleString() for field in frame.schema.fields),
        python_rows(found.slice(0, limit), zone),
        found.num_rows > limit,
        min(edges, default=None),
        consistent,
        tuple(Version(n, m.snapshot, m.complete_us, m.at_us, m.snapshot, consistent) for n, m in picked.items()),
    )


def _whole(replica: Replica, table: str, snapshots: Sequence[int]) -> list[Manifest]:
    """The versions of a table that have all their files, newest first."""
    found = [one for snapshot in snapshots if replica.whole(one := replica.manifest(table, snapshot))]
    if not found:
        raise QueryError(
            f"replica {replica.name} lost files of `{table}`; `penstock run`, or `penstock replicas --sync`, copies them again"
        )
    return found


def _candidate(manifest: Manifest) -> Candidate:
    return Candidate(manifest.snapshot, manifest.complete_us, manifest.at_us, manifest.reflects)
