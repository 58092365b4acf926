"""Tables of another Penstock project, read from a replica of it: its versions are followed, and its files registered where they are.

Tables of one replica move together. They are published in one transaction, at versions that agree with each other there, so that who joins
them here sees one state of that warehouse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyarrow.lib import ArrowException
from sqlalchemy import Connection

from penstock.control.events import Event, TablePublished
from penstock.control.state import State
from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.desk.versions import Candidate, agree
from penstock.engine.external.registered_files import look
from penstock.engine.updates.times import time_range
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.requests.job import PublishedTable
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile, Note, TableChange
from penstock.tables.replica import Manifest, Replica

REPLICA = "replica"


def version_fact(table: str) -> str:
    """Under which name the version is kept that a table has of the other project."""
    return f"follows {table}"


def problem_fact(table: str) -> str:
    return f"following {table}"


@dataclass(frozen=True)
class _Next:
    """A version of one table that is to be taken over: the files that come."""

    definition: Definition
    manifest: Manifest
    new: tuple[DataFile, ...]
    paths: frozenset[str]


class ReplicaFollower:
    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.warehouse, self.store, self.catalogue = warehouse, store, catalogue
        self._groups: dict[str, list[str]] = {}
        # The versions that were there at the last look, when nothing was left to be taken.
        self._known: dict[str, Mapping[str, frozenset[int]]] = {}
        for name, one in warehouse.definitions.items():
            kind, _, place = one.table.external.partition(" ")
            if kind == REPLICA:
                self._groups.setdefault(str((warehouse.declarations.folder / place).resolve()), []).append(name)

    def look(self, state: State, owner: str, now_us: int) -> bool:
        """Whether there was something new. A replica that is away is looked at again next time."""
        found = False
        for path, names in self._groups.items():
            problem = ""
            try:
                found |= self._take(state, owner, now_us, path, [name for name in names if name in state.tables])
            except (PenstockError, OSError, ArrowException, KeyError) as error:
                problem = f"the replica {path} could not be followed: {error}"
            self._note(names, problem)
        return found

    def _note(self, names: Sequence[str], problem: str) -> None:
        with self.store.read() as conn:
            other = [name for name in names if (self.store.fact(conn, problem_fact(name)) or "") != problem]
        if other:
            with self.store.write() as conn:
                for name in other:
                    self.store.set_fact(conn, problem_fact(name), problem)

    def _take(self, state: State, owner: str, now_us: int, path: str, names: Sequence[str]) -> bool:
        replica = Replica("source", path)
        project = replica.owner()
        if project is None:
            raise PenstockError(
                "there is no replica in it; expected a folder that [replicas.NAME] of another project names"
            )
        versions = replica.versions()
        there = {name: frozenset(versions[name]) for name in names if versions.get(name)}
        if self._known.get(path) == there and all(state.tables[name].exists for name in there):
            return False
        chosen = self._chosen(replica, there)
        with self.store.read() as conn:
            known = {name: self.store.fact(conn, version_fact(name)) for name in chosen}
            new = [
                manifest for name, manifest in chosen.items()
                if not state.tables[name].exists or known[name] != f"{project[0]} {manifest.snapshot}"
            ]  # fmt: skip
            live = {one.table: self._live(conn, state, one.table) for one in new}
        self._known[path] = there
        if not new:
            return False
        following = [self._next(replica, manifest, live[manifest.table]) for manifest in new]
        with self.store.write() as conn:
            self.store.check_owner(conn, owner)
            self._publish(conn, state, following, project, now_us)
        return True

    def _chosen(self, replica: Replica, there: Mapping[str, frozenset[int]]) -> Mapping[str, Manifest]:
        """Of each table the newest version, such that all agree. A version is taken if all of its files are there."""
        manifests = {
            name: {snapshot: replica.manifest(name, snapshot) for snapshot in all_} for name, all_ in there.items()
        }
        candidates = {
            name: [
                Candidate(one.snapshot, one.complete_us, one.at_us, one.reflects)
                for _, one in sorted(all_.items(), reverse=True)
                if replica.whole(one)
            ]
            for name, all_ in manifests.items()
        }
        agreeing = agree({name: some for name, some in candidates.items() if some}) or {}
        return {name: manifests[name][one.snapshot] for name, one in agreeing.items()}

    def _live(self, conn: Connection, state: State, table: str) -> dict[str, DataFile]:
        """The files that it has here, by path; none if it is declared anew."""
        if not state.tables[table].exists:
            return {}
        time = self.warehouse.definitions[table].time
        files = self.catalogue.files(conn, table, self.catalogue.snapshot(conn))
        if time is not None:
            files = self.catalogue.described(conn, table, files, time)
        return {file.path: file for file in files}

    def _next(self, replica: Replica, manifest: Manifest, live: Mapping[str, DataFile]) -> _Next:
        definition = self.warehouse.definitions[manifest.table]
        paths = [Path(replica.locate(manifest.table, file)).resolve() for file in manifest.files]
        coming = [path for path in paths if str(path) not in live]
        new = look(coming, definition, self.warehouse.zone, self.catalogue.data_path, None)
        return _Next(definition, manifest, tuple(new), frozenset(map(str, paths)))

    def _publish(
        self, conn: Connection, state: State, following: Sequence[_Next], project: tuple[str, str], now_us: int
    ) -> None:
        """All of them as one snapshot, each with the version that it is there."""
        live = {one.manifest.table: self._live(conn, state, one.manifest.table) for one in following}
        gone = {
            one.manifest.table: [file for path, file in live[one.manifest.table].items() if path not in one.paths]
            for one in following
        }
        changes = [
            TableChange(
                one.definition.name,
                one.definition.schema or (),
                () if state.tables[one.definition.name].exists else None,
                [file for file in one.new if file.path not in live[one.definition.name]],
                [file.id for file in gone[one.definition.name]],
            )
            for one in following
        ]
        versions = {one.definition.name: one.manifest.snapshot for one in following}
        extra = {"project": project[1], "versions": versions}
        snapshot = self.catalogue.publish(conn, changes, Note("penstock", f"follow {project[1]}", extra), now_us)
        events: list[Event] = []
        for one in following:
            name, theirs = one.definition.name, one.manifest.snapshot
            job = f"follow-{snapshot}"
            self.store.put_version(conn, name, snapshot, now_us, one.manifest.complete_us, {name: snapshot}, job)
            self.store.set_fact(conn, version_fact(name), f"{project[0]} {theirs}")
            why = f"is version {theirs} of project {project[1]}"
            events.append(TablePublished(now_us, name, self._publication(state, one, gone[name], snapshot), job, why))
        self.store.append(conn, events)

    def _publication(self, state: State, one: _Next, gone: Sequence[DataFile], snapshot: int) -> PublishedTable:
        name, time, zone = one.definition.name, one.definition.time, zone_of(self.warehouse.zone)
        ranges = time_range([*one.new, *gone], time, zone) if time is not None else []
        known = len(ranges) == len(one.new) + len(gone) and state.tables[name].exists
        changed = PartitionSet.of(*ranges) if known else EVERYTHING
        came = time_range(one.new, time, zone) if time is not None else []
        return PublishedTable(
            name,
            snapshot,
            append=not gone and state.tables[name].exists,
            changed=changed.intervals if self.warehouse.graph.has_time[name] else (),
            complete_us=one.manifest.complete_us,
            leading_us=max((end - 1 for _, end in came), default=None),
            begin_us=min((start for start, _ in came), default=None),
            rows=sum(file.records for file in one.new),
            size_bytes=sum(file.size_bytes for file in one.new),
        )
