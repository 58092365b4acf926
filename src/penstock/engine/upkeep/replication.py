"""Replicas are filled in the background: one version after the other, newest first, from pinned snapshots.

Everything that a replica holds is told by the replica itself, so that losing it, or a part of it, loses nothing: what is
no longer there is copied again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from uuid import uuid4

from pyarrow.lib import ArrowException

from penstock.declare.warehouse import Definitions
from penstock.engine.desk.versions import QueryError, consistent_versions
from penstock.engine.upkeep.identity import read_claim
from penstock.errors import PenstockError
from penstock.model.time import HOUR_US
from penstock.requests.replicas import next_copy, to_drop
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile, Expired
from penstock.tables.replica import Manifest, Replica, ReplicaError, ReplicaFile

# Between two looks for new versions, if there was nothing to copy.
PAUSE_S = 1.0
# After a failure, such as a disk that is full or away.
PAUSE_AFTER_FAILURE_S = 30.0


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    replica: str
    path: str
    table: str
    # The newest version of the table, and the newest at the replica.
    newest: int
    copied: int | None
    # Versions at the replica, and how many the replica should have that are not there yet.
    versions: int
    waiting: int
    complete_us: int | None
    problem: str | None = None


class Replicator:
    """Fills one replica."""

    def __init__(
        self,
        name: str,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        now_us: Callable[[], int],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        config = warehouse.declarations.config.replicas[name]
        self.name, self.path = name, warehouse.declarations.replica_path(name)
        self._priority = warehouse.graph.inherited
        self.tables = list(config.tables) or list(warehouse.definitions)
        self.most = config.keep_versions
        self._project = warehouse.declarations.config.name
        self.store, self.catalogue, self.now_us = store, catalogue, now_us
        self._stopped = stopped

    @cached_property
    def replica(self) -> Replica:
        """Opened when it is first needed: one that is away is a problem of its own only."""
        return Replica(self.name, self.path)

    def tried(self, sync: bool = True) -> str | None:
        """What is wrong with the replica, if anything; with `sync`, after everything is copied that it lacks. It is kept, so that another
        process can tell it."""
        problem = None
        try:
            self.sync() if sync else self.replica.versions()
        except (PenstockError, OSError, ArrowException) as error:
            problem = str(error)
        fact = f"replica {self.name}"
        with self.store.read() as conn:
            known = self.store.fact(conn, fact) or ""
        if sync and known != (problem or ""):
            with self.store.write() as conn:
                self.store.set_fact(conn, fact, problem or "")
        return problem or (None if sync else known or None)

    def sync(self) -> int:
        """Copy until nothing is left to copy; how many versions that were."""
        self.check()
        count = 0
        while not self._stopped() and self.step():
            count += 1
        if not self._stopped():
            kept, _ = self._kept()
            self.replica.tidy(lambda table, snapshot: snapshot not in kept.get(table, ()))
        return count

    def check(self) -> None:
        """Forget versions at the replica that lost files, or that the catalogue has under the same number with other content since it was put
        back from a backup: they are copied again. Refuse the replica of another warehouse."""
        found = {
            table: [self.replica.manifest(table, s) for s in all_] for table, all_ in self.replica.versions().items()
        }
        with self.store.read() as conn:
            claim = read_claim(self.store, conn)
            ours = {
                (table, row.snapshot): row.at_us
                for table in found
                for row in self.store.versions(conn, table, limit=max(1000, self.most))
            }
        every = [manifest for manifests in found.values() for manifest in manifests]
        if claim is not None:
            same = any(ours.get((one.table, one.snapshot)) == one.at_us for one in every)
            self._take(claim.identity, not every or same)
        for table, manifests in found.items():
            lost = [
                one.snapshot
                for one in manifests
                if ours.get((table, one.snapshot), one.at_us) != one.at_us or not self.replica.whole(one)
            ]
            if lost:
                self.replica.drop(table, lost)

    def _take(self, identity: str, free: bool) -> None:
        """Make the replica ours, if it is or may be."""
        owner = self.replica.owner()
        if owner is None and free:
            self.replica.take(identity, self._project)
        elif owner is None or owner[0] != identity:
            whose = f"project `{owner[1]}`" if owner is not None else "another warehouse"
            raise ReplicaError(
                f"the replica {self.replica.name} in {self.replica.path} is of {whose}, so nothing is copied there.\n"
                f"Name another path in [replicas.{self.replica.name}], or delete that folder."
            )

    def step(self) -> bool:
        """Copy one version; False if there is none to copy."""
        kept, agreeing = self._kept()
        copied = self.replica.versions()
        for table, snapshot in to_drop(kept, copied, agreeing, self.most):
            self.replica.drop(table, [snapshot])
        found = next_copy(kept, copied, agreeing, self.most, self._priority)
        return found is not None and self._copy(*found)

    def status(self, problem: str | None = None) -> list[ReplicaStatus]:
        """Of each table; `problem` is what is known to be wrong with the replica."""
        kept, agreeing = self._kept()
        try:
            copied = self.replica.versions()
        except (PenstockError, OSError, ArrowException) as error:
            copied, problem = {}, problem or str(error)
        rows = []
        for table in self.tables:
            there = copied.get(table, set())
            wanted = {*kept.get(table, ())[: self.most], *([agreeing[table]] if table in agreeing else [])}
            newest = max(there, default=None)
            complete_us = None if newest is None else self.replica.manifest(table, newest).complete_us
            rows.append(
                ReplicaStatus(
                    self.name,
                    self.path,
                    table,
                    max(kept.get(table, ()), default=0),
                    newest,
                    len(there),
                    len(wanted - there),
                    complete_us,
                    problem,
                )
            )
        return rows

    def _kept(self) -> tuple[dict[str, list[int]], dict[str, int]]:
        """The versions of each table within retention, newest first, and the newest set of them that agree."""
        with self.store.read() as conn:
            kept = {
                table: [row.snapshot for row in self.store.versions(conn, table, limit=max(200, self.most))]
                for table in self.tables
            }
            there = [table for table, snapshots in kept.items() if snapshots]
            try:
                chosen = consistent_versions(self.store, self.catalogue, conn, there) if there else {}
            except QueryError:
                chosen = {}
        return kept, {table: version.snapshot for table, version in chosen.items() if version.consistent}

    def _copy(self, table: str, snapshot: int) -> bool:
        holder = f"replica-{uuid4().hex[:8]}"
        with self.store.write() as conn:
            row = next((r for r in self.store.versions(conn, table, snapshot, 1) if r.snapshot == snapshot), None)
            if row is None:
                return True  # retention was faster; look again
            following = self.store.next_version(conn, table, snapshot)
            read_at = self.catalogue.snapshot(conn) if following is None else following - 1
            try:
                schema = self.catalogue.schema(conn, table, read_at)
                files = self.catalogue.files(conn, table, read_at)
            except Expired:
                return True
            self.catalogue.pin(conn, read_at, holder, self.now_us() + HOUR_US)
        try:
            named = [(self._named(file), self.catalogue.locate(table, file)) for file in files]
            manifest = Manifest(
                table,
                snapshot,
                row.at_us,
                row.complete_us,
                self.store.reflects_of(row),
                schema or (),
                tuple(file for file, _ in named),
            )
            sources = {file.path: source for file, source in named}
            self.replica.begin(manifest)
            for file in self.replica.missing(manifest):
                if self._stopped():
                    return False
                self.replica.copy(table, file, sources[file.path])
            self.replica.add(manifest)
        finally:
            with self.store.write() as conn:
                self.catalogue.unpin(conn, holder)
        return True

    @staticmethod
    def _named(file: DataFile) -> ReplicaFile:
        # A file that somebody else's table keeps elsewhere gets a name of its own here.
        whole = file.path.startswith("/") or "://" in file.path
        path = f"{sha256(file.path.encode()).hexdigest()[:24]}.parquet" if whole else file.path
        return ReplicaFile(path, file.size_bytes)


class Replication:
    """All replicas of a project, each filled by a thread of its own while the project runs."""

    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue, now_us: Callable[[], int]) -> None:
        self._stop = threading.Event()
        self._replicators = replicators(warehouse, store, catalogue, now_us, self._stop.is_set)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for replicator in self._replicators:
            thread = threading.Thread(target=self._fill, args=[replicator], daemon=True, name="penstock-replica")
            thread.start()
            self._threads.append(thread)

    def stop(self, finish: bool) -> None:
        """End the threads; with `finish`, what is to be copied is copied first."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
        self._threads.clear()
        if finish:
            self._stop.clear()
            for replicator in self._replicators:
                replicator.tried()

    def _fill(self, replicator: Replicator) -> None:
        while not self._stop.is_set():
            self._stop.wait(PAUSE_AFTER_FAILURE_S if replicator.tried() else PAUSE_S)


def replicators(
    warehouse: Definitions,
    store: Store,
    catalogue: Catalogue,
    now_us: Callable[[], int],
    stopped: Callable[[], bool] = lambda: False,
) -> Sequence[Replicator]:
    names = warehouse.declarations.config.replicas
    return [Replicator(name, warehouse, store, catalogue, now_us, stopped) for name in names]
