"""Commits that another program, such as DuckDB, made to the catalogue: they are seen, and told to the readers of the tables."""

from __future__ import annotations

from sqlalchemy import Connection

from penstock.control.events import Event, TablePublished
from penstock.control.state import State
from penstock.declare.warehouse import Definitions
from penstock.engine.updates.times import time_range
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, Interval, PartitionSet
from penstock.requests.job import PublishedTable
from penstock.store.store import Store
from penstock.tables import Catalogue, OthersCommit

_FACT = "commits of others seen"
LAKE = "lake"


class Lake:
    """Looks for commits that are not ours. What it has seen is kept with the events about it, in one transaction."""

    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.warehouse, self.store, self.catalogue = warehouse, store, catalogue
        self._seen: int | None = None
        self._times = {name: one.time for name, one in warehouse.definitions.items() if one.time is not None}

    def look(self, state: State, owner: str) -> bool:
        """Whether there was something new."""
        begun = False
        with self.store.read() as conn:
            newest = self.catalogue.snapshot(conn)
            first = self._first(conn, state)
            if self._seen is None:
                known = self.store.fact(conn, _FACT)
                self._seen = int(known) if known is not None else newest
                if known is None:
                    begun = True  # from here on also what is done while no process runs is seen
            if newest == self._seen and not first and not begun:
                return False
            found = self.catalogue.commits_of_others(conn, self._seen, self._times)
        if not any(one.table in state.tables for one in found) and not first and not begun:
            self._seen = newest  # ours alone
            return False
        with self.store.write() as conn:
            self.store.check_owner(conn, owner)
            newest = self.catalogue.snapshot(conn)
            found = self.catalogue.commits_of_others(conn, self._seen, self._times)
            self.catalogue.adopt(conn, self._placed(found))
            told = {one.table for one in found}
            events = [self._event(conn, state, one) for one in found if one.table in state.tables]
            events += [self._beginning(conn, name, newest, state) for name in first if name not in told]
            if events:
                self.store.append(conn, events)
            self.store.set_fact(conn, _FACT, str(newest))
        self._seen = newest
        return bool(events)

    def _first(self, conn: Connection, state: State) -> list[str]:
        """Tables of theirs that are declared since, or anew, and hold rows already."""
        waiting = [
            name for name, one in self.warehouse.definitions.items()
            if one.table.external == LAKE and name in state.tables and not state.tables[name].exists
        ]  # fmt: skip
        there = set(self.catalogue.tables(conn)) if waiting else set()
        return [name for name in waiting if name in there]

    def _placed(self, found: list[OthersCommit]) -> dict[int, int]:
        """Files whose rows all lie in one partition."""
        placed = {}
        for one in found:
            definition = self.warehouse.definitions.get(one.table)
            if definition is None or definition.table.grain is WHOLE or definition.time is None:
                continue
            grain, zone = definition.table.grain, zone_of(self.warehouse.zone)
            for file in one.files:
                ranges = time_range([file], definition.time, zone)
                if ranges and grain.floor(ranges[0][0]) == grain.floor(ranges[0][1] - 1):
                    placed[file.id] = grain.floor(ranges[0][0])
        return placed

    def _event(self, conn: Connection, state: State, one: OthersCommit) -> Event:
        time = self.warehouse.definitions[one.table].time
        ranges = time_range(one.files, time, zone_of(self.warehouse.zone)) if time is not None else []
        all_known = time is not None and len(ranges) == len([file for file in one.files if file.records])
        changed = PartitionSet.of(*ranges) if all_known else EVERYTHING
        exists = state.tables[one.table].exists
        whole = not exists and self.warehouse.definitions[one.table].table.external == LAKE
        return self._told(
            conn, state, one.table, one.snapshot, one.append and exists, EVERYTHING if whole else changed, ranges, one
        )

    def _beginning(self, conn: Connection, name: str, snapshot: int, state: State) -> Event:
        time, zone = self.warehouse.definitions[name].time, zone_of(self.warehouse.zone)
        files = self.catalogue.files(conn, name, snapshot)
        if time is not None:
            files = self.catalogue.described(conn, name, files, time)
        ranges = time_range(files, time, zone) if time is not None else []
        return self._told(conn, state, name, snapshot, False, EVERYTHING, ranges, None)

    def _told(
        self,
        conn: Connection,
        state: State,
        name: str,
        snapshot: int,
        append: bool,
        changed: PartitionSet,
        ranges: list[Interval],
        commit: OthersCommit | None,
    ) -> Event:
        table = state.tables[name]
        timed = self.warehouse.graph.has_time[name]
        leading = max((end - 1 for _, end in ranges), default=None)
        complete_us = table.edge_us
        if timed and table.table.external == LAKE and leading is not None:
            complete_us = max(leading + 1, table.edge_us or leading + 1)
        at_us = commit.at_us if commit is not None else state.now_us
        reflects = {name: snapshot} if table.table.is_origin else dict(table.reflects) if table.consistent else None
        job = f"commit-{snapshot}"
        self.store.put_version(conn, name, snapshot, at_us, complete_us, reflects, job)
        publication = PublishedTable(
            name,
            snapshot,
            append,
            changed.intervals if timed else (),
            complete_us,
            leading,
            min((start for start, _ in ranges), default=None),
            sum(file.records for file in commit.files) if commit is not None and append else 0,
            sum(file.size_bytes for file in commit.files) if commit is not None else 0,
        )
        return TablePublished(
            max(at_us, state.now_us),
            name,
            publication,
            job,
            f"was changed in the catalogue by another program (commit {snapshot})",
        )
