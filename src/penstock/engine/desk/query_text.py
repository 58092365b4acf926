"""What the text of a query asks: which tables, which of their partitions, what kind of work. Read once for all who send the same text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession

from penstock.control.query_inputs import Touched
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

# Texts of queries that are remembered.
_TEXTS = 1_000


class Understood(NamedTuple):
    read: ReadQuery
    shape: PlanShape
    # Its answer follows from the versions that it reads.
    steady: bool


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

    def understood(self, sql: str) -> Understood:
        """Raises `SqlProblem` if it cannot be a query."""
        known = self._known.get(sql)
        if known is None:
            read = read_query(sql, self._schemas, self._functions)
            known = self._known[sql] = Understood(read, shape_of(read), is_steady(read))
            while len(self._known) > _TEXTS:
                self._known.pop(next(iter(self._known)), None)
        return known

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
