"""Consistent reads: all tables of a query at versions that reflect the same state of their sources.

Each version of a table says which publication of each base table it fully contains. Starting from the newest version of
every table, whoever is ahead of another on some base table steps back until all agree: that is the newest consistent
choice, because stepping back is the only way to agree and no table steps back further than it must.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from sqlalchemy import Connection

from penstock.declare.sqlview import sources
from penstock.declare.warehouse import Warehouse
from penstock.engine.load import QUARANTINE
from penstock.engine.rows import read_files, struct_of
from penstock.errors import PenstockError
from penstock.model.time import HOUR_US
from penstock.store.store import Store
from penstock.tables import Catalogue, Expired


class QueryError(PenstockError):
    pass


@dataclass(frozen=True, slots=True)
class Version:
    table: str
    snapshot: int
    complete_us: int | None
    at_us: int
    # The last snapshot that shows this version. It is kept longest: merging and retention may have ended the earlier ones.
    read_at: int
    # False if no common state could be found and this is just the newest.
    consistent: bool = True


@dataclass(frozen=True)
class QueryResult:
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    # More rows than were asked for exist.
    truncated: bool
    complete_us: int | None
    consistent: bool
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    snapshot: int
    complete_us: int | None
    at_us: int
    reflects: Mapping[str, int]


def consistent_versions(
    store: Store, catalogue: Catalogue, conn: Connection, tables: Sequence[str]
) -> dict[str, Version]:
    """The newest versions of the tables that agree on every base table they share."""
    candidates = {}
    for table in tables:
        found = [
            Candidate(row.snapshot, row.complete_us, row.at_us, json.loads(row.reflects))
            for row in store.versions(conn, table, limit=1000)
        ]
        if not found:
            raise QueryError(
                f"table `{table}` has nothing to read yet; `penstock explain {table}` says what it waits for"
            )
        candidates[table] = found
    head = catalogue.snapshot(conn)

    def version(table: str, one: Candidate, consistent: bool) -> Version:
        following = store.next_version(conn, table, one.snapshot)
        read_at = head if following is None else following - 1
        return Version(table, one.snapshot, one.complete_us, one.at_us, read_at, consistent)

    chosen = agree(candidates)
    if chosen is not None:
        picked = {table: version(table, one, True) for table, one in chosen.items()}
        if all(_kept(catalogue, conn, one) for one in picked.values()):
            return picked
    return {table: version(table, found[0], False) for table, found in candidates.items()}


def _kept(catalogue: Catalogue, conn: Connection, version: Version) -> bool:
    try:
        catalogue.schema(conn, version.table, version.read_at)
    except Expired:
        return False
    return True


def agree(candidates: Mapping[str, Sequence[Candidate]]) -> dict[str, Candidate] | None:
    """Of each table the newest candidate (they come newest first) such that all agree; None if there is none."""
    at = dict.fromkeys(candidates, 0)
    while True:
        chosen = {table: candidates[table][at[table]] for table in candidates}
        oldest: dict[str, int] = {}
        for one in chosen.values():
            for base, snapshot in one.reflects.items():
                oldest[base] = min(snapshot, oldest.get(base, snapshot))
        ahead = [
            table
            for table, one in chosen.items()
            if any(snapshot > oldest[base] for base, snapshot in one.reflects.items())
        ]
        if not ahead:
            return chosen
        for table in ahead:
            at[table] += 1
            if at[table] >= len(candidates[table]):
                return None


class QueryRunner:
    def __init__(self, warehouse: Warehouse, store: Store, catalogue: Catalogue, session: SparkSession) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.session = session.newSession()

    def run(self, sql: str, limit: int, now_us: int) -> QueryResult:
        tables = [*self.warehouse.definitions, *(f"{name}_quarantine" for name in self.warehouse.definitions)]
        known = {name.lower(): name for name in tables}
        names = []
        for name in sources(sql, file="query"):
            if name.lower() not in known:
                raise QueryError(f"the query reads `{name}`, which is not a table of this project")
            names.append(known[name.lower()])
        holder = f"query-{uuid4().hex[:8]}"
        with self.store.write() as conn:
            versions = consistent_versions(
                self.store, self.catalogue, conn, [name for name in names if name in self.warehouse.definitions]
            )
            newest = self.catalogue.snapshot(conn)
            for snapshot in {version.read_at for version in versions.values()}:
                self.catalogue.pin(conn, snapshot, holder, now_us + HOUR_US)
        try:
            for name in names:
                self._view(name, versions[name].read_at if name in versions else newest)
            frame = self.session.sql(sql)
            rows = frame.limit(limit + 1).collect()
        finally:
            with self.store.write() as conn:
                self.catalogue.unpin(conn, holder)
        edges = [version.complete_us for version in versions.values() if version.complete_us is not None]
        return QueryResult(
            tuple(frame.columns),
            tuple(field.dataType.simpleString() for field in frame.schema.fields),
            [tuple(row) for row in rows[:limit]],
            len(rows) > limit,
            min(edges, default=None),
            all(version.consistent for version in versions.values()),
            tuple(versions.values()),
        )

    def _view(self, table: str, snapshot: int) -> None:
        with self.store.read() as conn:
            schema = self.catalogue.schema(conn, table, snapshot)
            files = self.catalogue.files(conn, table, snapshot) if schema else []
        if schema is None and table.endswith("_quarantine"):
            frame = self.session.createDataFrame([], struct_of(QUARANTINE))
        else:
            assert schema is not None
            paths = [self.catalogue.locate(table, file) for file in files]
            frame = read_files(self.session, paths, schema, sum(file.size_bytes for file in files))
        frame.createOrReplaceTempView(table)
