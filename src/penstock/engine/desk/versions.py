"""Consistent reads: all tables of a query at versions that reflect the same state of their sources.

Each version of a table says which publication of each base table it fully contains. Starting from the newest version of
every table, whoever is ahead of another on some base table steps back until all agree: that is the newest consistent
choice, because stepping back is the only way to agree and no table steps back further than it must.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from penstock.errors import PenstockError
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
    # The publication of each base table that it contains.
    reflects: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryResult:
    """What a replica answers."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    # More rows than were asked for exist.
    truncated: bool
    complete_us: int | None
    consistent: bool
    versions: tuple[Version, ...]
    final: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    snapshot: int
    complete_us: int | None
    at_us: int
    reflects: Mapping[str, int]


def consistent_versions(
    store: Store,
    catalogue: Catalogue,
    conn: Connection,
    tables: Sequence[str],
    abreast: Sequence[Collection[str]] = (),
    upto: int | None = None,
) -> dict[str, Version]:
    """The newest versions of the tables (of those that there were `upto` a snapshot) that agree on every base table they share,
    and of which those that go `abreast` have come equally far."""
    candidates = {}
    for table in tables:
        found = [
            Candidate(row.snapshot, row.complete_us, row.at_us, json.loads(row.reflects))
            for row in store.versions(conn, table, upto, limit=1000)
        ]
        if not found:
            raise QueryError(
                f"table `{table}` has nothing to read yet; `penstock explain {table}` says what it waits for"
            )
        candidates[table] = found
    head = catalogue.snapshot(conn) if upto is None else upto

    def version(table: str, one: Candidate, consistent: bool) -> Version:
        following = store.next_version(conn, table, one.snapshot)
        read_at = head if following is None else min(following - 1, head)
        return Version(table, one.snapshot, one.complete_us, one.at_us, read_at, consistent, one.reflects)

    chosen = agree(candidates, abreast) or agree(candidates)
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


def agree(
    candidates: Mapping[str, Sequence[Candidate]], abreast: Sequence[Collection[str]] = ()
) -> dict[str, Candidate] | None:
    """Of each table the newest candidate (they come newest first) such that all agree; None if there is none. Up to its edge
    a table may hold a publication of its base that a table before it has taken up further: of tables that go abreast none
    may go further than the others."""
    at = dict.fromkeys(candidates, 0)
    while True:
        chosen = {table: candidates[table][at[table]] for table in candidates}
        oldest: dict[str, int] = {}
        for one in chosen.values():
            for base, snapshot in one.reflects.items():
                oldest[base] = min(snapshot, oldest.get(base, snapshot))
        ahead = {
            table
            for table, one in chosen.items()
            if any(snapshot > oldest[base] for base, snapshot in one.reflects.items())
        }
        for group in abreast:
            edges = {table: chosen[table].complete_us or 0 for table in group}
            ahead |= {table for table, edge_us in edges.items() if edge_us > min(edges.values())}
        if not ahead:
            return chosen
        for table in ahead:
            at[table] += 1
            if at[table] >= len(candidates[table]):
                return None
