"""What a query can read at this moment: the newest snapshot if nothing is on its way to what it touches, else the newest older
state that all its tables have in common; and how fresh either is.

The state of the core and the snapshot must be of the same moment, so both are taken inside one transaction.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from time import monotonic

from sqlalchemy import Connection

from penstock.control.events import DemandSeen
from penstock.control.query_inputs import Touched, is_settled, not_loaded
from penstock.control.state import State
from penstock.control.views.inputs import WaitingRows
from penstock.engine.desk.versions import QueryError, Version, consistent_versions
from penstock.engine.ports import Clock
from penstock.model.time import SECOND_US
from penstock.store.store import Store
from penstock.tables import Catalogue


@dataclass(frozen=True, slots=True)
class Reading:
    """Versions of tables that can be read together."""

    versions: tuple[Version, ...]
    # All reflect the same state of their sources.
    consistent: bool
    # Complete up to here; None if the query reads no table of the project.
    complete_us: int | None
    # When the updates arrived that are not in it, in order, of each base table that lacks some.
    missing_us: tuple[tuple[int, ...], ...]
    as_of_us: int
    # What has no versions of its own (quarantined rows) is read here.
    head: int
    newest: bool = True
    # Whether all rows of its tables with an earlier time are in; else only all that came from their sources.
    final: bool = True
    # Rows that are there but wait for other sources, of all that its tables are made from.
    waiting: tuple[WaitingRows, ...] = ()

    @property
    def claimed_us(self) -> int | None:
        """Complete up to here, as far as that can be said."""
        return self.complete_us if self.final and self.complete_us else None

    @property
    def lag(self) -> int:
        """So many updates have arrived and are not in it, of the base table that lacks most (the paper's minimum of freshness)."""
        return max(map(len, self.missing_us), default=0)

    def lag_at(self, at_us: int) -> int:
        """The same, of those that had arrived at that time."""
        return max((bisect_right(some, at_us) for some in self.missing_us), default=0)

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """Readings with the same key show the same rows."""
        return tuple((version.table, version.snapshot) for version in self.versions) or (("", self.head),)


def newest(state: State, touched: Touched, now_us: int) -> Reading | None:
    """The newest snapshot, if it is a consistent state as far as the query sees; from the state alone."""
    check_readable(state, touched)
    if not is_settled(state, touched):
        return None
    versions = tuple(_newest_version(state, name, True) for name in touched)
    return _reading(state, versions, True, not_loaded(state, touched), now_us)


def readings(
    store: Store, catalogue: Catalogue, conn: Connection, state: State, touched: Touched, now_us: int
) -> list[Reading]:
    """Everything that could be read now, newest first; the state must be that of the transaction."""
    best = newest(state, touched, now_us)
    if best is not None:
        return [best]
    anyway = tuple(_newest_version(state, name, False) for name in touched)
    found = [_measured(store, conn, state, anyway, False, now_us)]
    older = tuple(consistent_versions(store, catalogue, conn, list(touched), _abreast(state, touched)).values())
    if all(version.consistent for version in older):
        one = _measured(store, conn, state, older, True, now_us)
        found.append(replace(one, newest=False))
    return found


def _abreast(state: State, tables: Iterable[str]) -> list[list[str]]:
    """Views of the same base tables that follow them as data come: they are to be read as of the same time."""
    groups: dict[frozenset[str], list[str]] = {}
    for name in tables:
        table = state.tables[name].table
        if not table.is_base and table.when == "continuous" and state.graph.has_time[name]:
            groups.setdefault(frozenset(state.graph.origins[name]), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def check_readable(state: State, tables: Iterable[str]) -> None:
    for name in tables:
        table = state.tables.get(name)
        if table is None or not table.readable:
            raise QueryError(
                f"table `{name}` has nothing to read yet; `penstock explain {name}` says what it waits for"
            )


def _newest_version(state: State, name: str, settled: bool) -> Version:
    table = state.tables[name]
    bases = state.graph.origins[name]
    reflects = (
        {base: state.tables[base].snapshot for base in bases} if settled or table.table.is_base else table.reflects
    )
    at_us = table.last_finished_us or 0
    return Version(name, table.snapshot or table.emptied, table.edge_us, at_us, state.snapshot, settled, reflects)


def _measured(
    store: Store, conn: Connection, state: State, versions: tuple[Version, ...], consistent: bool, now_us: int
) -> Reading:
    """With what the versions lack: updates that are not loaded, and updates that were published by base tables and are not in them."""
    missing = not_loaded(state, [version.table for version in versions])
    reflected: dict[str, int] = {}
    for version in versions:
        for base in state.graph.origins[version.table]:
            upto = version.reflects.get(base, 0)
            if state.graph.has_time[version.table] and state.graph.has_time[base] and version.complete_us is not None:
                # A table that goes step by step has of what its base published only the rows up to its own edge.
                upto = store.snapshot_upto(conn, base, upto, version.complete_us)
            reflected[base] = min(upto, reflected.get(base, state.tables[base].snapshot))
    for base, snapshot in reflected.items():
        missing.setdefault(base, []).extend(store.files_after(conn, base, snapshot))
    return _reading(state, versions, consistent, missing, now_us)


def _reading(
    state: State, versions: tuple[Version, ...], consistent: bool, missing: dict[str, list[int]], now_us: int
) -> Reading:
    since = min((one for some in missing.values() for one in some), default=None)
    edges = [_complete(state, version, now_us, since) for version in versions]
    final = all(state.graph.final[version.table] or not state.graph.has_time[version.table] for version in versions)
    complete = min(edges, default=None)
    return Reading(
        versions,
        consistent,
        complete,
        tuple(tuple(sorted(some)) for some in missing.values() if some),
        now_us,
        state.snapshot,
        final=final,
    )


def _complete(state: State, version: Version, now_us: int, missing_since_us: int | None) -> int:
    """A table that flows with time says itself how far it is complete. One that does not is as of now, or as of the first
    change that it lacks."""
    if state.graph.has_time[version.table]:
        return version.complete_us if version.complete_us is not None else 0
    return now_us if missing_since_us is None else min(now_us, missing_since_us)


EVERY_S = 10.0
_FADE_S, _FADED_S = 60.0, 3600.0


class DemandLog:
    """Now and then the log is told what was read, so that updates can follow the demand."""

    def __init__(self, store: Store, clock: Clock, cores: int = 1) -> None:
        self._store = store
        self._clock = clock
        self._cores = cores
        # What runs took since the log was told.
        self._worked_s = 0.0
        self._told_us = clock.now_us()
        self._lock = threading.Lock()
        self._reads: Counter[str] = Counter()
        self._told_at = monotonic()
        self._read_at = monotonic() - _FADED_S

    def read(self, tables: Iterable[str]) -> None:
        """A query asked for these."""
        with self._lock:
            self._reads.update(list(tables))

    def worked(self, seconds: float) -> None:
        """A run took so long."""
        with self._lock:
            self._worked_s += seconds

    def tell(self, force: bool = False) -> None:
        now = monotonic()
        if self._reads:
            self._read_at = now
        # That nothing was read any more is told too, for a while: so that what is known of the demand fades.
        every = EVERY_S if self._reads else _FADE_S
        if now - self._told_at < every and not (force and self._reads):
            return
        if not self._reads and now - self._read_at > _FADED_S:
            return
        self._told_at = now
        now_us = self._clock.now_us()
        passed_s, self._told_us = (now_us - self._told_us) / SECOND_US, now_us
        with self._lock:
            reads, self._reads = self._reads, Counter()
            worked_s, self._worked_s = self._worked_s, 0.0
        busy = min(1.0, worked_s / max(1e-3, passed_s * self._cores))
        with self._store.write() as conn:
            self._store.append(conn, [DemandSeen(now_us, tuple(sorted(reads.items())), busy)])
