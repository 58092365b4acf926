"""What users ask for: an event in the log, which a running process takes up at once and the next one else; and what it
would come to, before anybody asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from penstock.control.events import BackfillRequested, RequestCancelled, SettingChanged
from penstock.control.readiness import most_at_once
from penstock.control.state import State
from penstock.control.views.requests import Reason, RequestStatus, forecast, requests
from penstock.declare.warehouse import Definitions
from penstock.engine.declarations import declared
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, Interval, PartitionSet
from penstock.model.span import parse_span
from penstock.model.time import LAST_US, SECOND_US, format_instant, moment
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import powers
from penstock.store.store import Store
from penstock.tables import Catalogue


@dataclass(frozen=True, slots=True)
class RequestReceipt:
    """A request that was taken down."""

    request: RequestStatus
    # Whether a process runs that will do it now.
    running: bool


@dataclass(frozen=True, slots=True)
class PlannedWork:
    table: str
    ranges: tuple[Interval, ...]
    partitions: int
    # Partitions to be made if every reason was followed for itself.
    separately: int
    jobs: int
    expected_s: float
    reads_bytes: int
    why: tuple[str, ...]
    # Whether an update of it was ever observed; if not, the time is a guess.
    known: bool


@dataclass(frozen=True)
class RequestPlan:
    summary: str
    requests: int
    updates: int
    separately: int
    work: tuple[PlannedWork, ...]
    reasons: tuple[Reason, ...]
    files_to_load: int
    # All work one after the other, and at the best with all tracks busy and no table before its sources.
    total_s: float
    shortest_s: float
    reads_bytes: int
    # Settings that are others than when the project was last run, and what follows from that.
    changed: tuple[SettingChanged, ...] = ()


class Requesting:
    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.zone = zone_of(warehouse.declarations.config.zone)

    # Asking

    def backfill(
        self,
        state: State,
        table: str,
        span: str | None,
        now_us: int,
        *,
        reason: str = "",
        downstream: bool = True,
        deadline_us: int | None = None,
        by: str = "",
    ) -> RequestReceipt:
        event = replace(self._event(state, table, span, now_us, reason, downstream, deadline_us), by=by)
        with self.store.write() as conn:
            number = self.store.append(conn, [event])
        with self.store.read() as conn:
            state.fold(self.store.events(conn, state.applied))
        found = next(each for each in requests(state) if each.request == number)
        return RequestReceipt(found, state.owner is not None)

    def cancel(self, state: State, number: int, now_us: int, by: str = "") -> tuple[RequestStatus, RequestStatus]:
        """The request before and after."""
        before = {each.request: each for each in requests(state)}.get(number)
        if before is None:
            known = ", ".join(str(each.request) for each in requests(state)[:10]) or "none"
            raise PenstockError(f"there is no request {number}; `penstock requests` lists them (the last: {known})")
        if before.finished_us is not None:
            when = format_instant(before.finished_us // 1_000_000 * 1_000_000, self.zone)
            raise PenstockError(f"request {number} is {before.stage} since {when}: there is nothing left to cancel")
        with self.store.write() as conn:
            self.store.append(conn, [RequestCancelled(now_us, number, before.table, by)])
        with self.store.read() as conn:
            state.fold(self.store.events(conn, state.applied))
        return before, next(each for each in requests(state) if each.request == number)

    def _event(
        self,
        state: State,
        name: str,
        span: str | None,
        now_us: int,
        reason: str = "",
        downstream: bool = True,
        deadline_us: int | None = None,
    ) -> BackfillRequested:
        table = state.tables.get(name)
        if table is None or not table.exists:
            raise PenstockError(
                f"table `{name}` has not been made yet, so there is nothing to make again; `penstock explain {name}` says why"
            )
        whole = table.table.grain is WHOLE or not state.graph.has_time[name]
        if span is None and not whole:
            raise PenstockError(
                f"table `{name}` is partitioned by {table.table.grain}: say which partitions, for example "
                f"`penstock backfill {name} {self._example(state, name)}`, or `all`"
            )
        try:
            interval = parse_span(span, self.zone) if span is not None else EVERYTHING.intervals[0]
        except ValueError as error:
            raise PenstockError(str(error)) from None
        wanted = state.wanted(table, PartitionSet.of(interval))
        if not wanted:
            first, last = state.extent(table).intervals[0]
            raise PenstockError(
                f"table `{name}` has nothing in {span}; it goes from {format_instant(first, self.zone)} "
                f"to {format_instant(last, self.zone)}"
            )
        if table.table.is_base:
            with self.store.read() as conn:
                self._check_files(conn, name, wanted)
        ranges = (interval,) if not whole else EVERYTHING.intervals
        return BackfillRequested(now_us, name, ranges, reason, downstream, deadline_us)

    def _example(self, state: State, name: str) -> str:
        first, last = state.extent(state.tables[name]).intervals[-1]
        end = min(last, LAST_US)
        start = max(first, state.tables[name].table.grain.floor(end - 1))
        return format_instant(start, self.zone).replace(" 00:00", "").replace(" ", "T")

    def _check_files(self, conn: Connection, name: str, wanted: PartitionSet) -> None:
        """A base table is made again from the files that were delivered. They must still be there, where it does not hold
        their rows as they were."""
        definition = self.warehouse.definitions[name]
        if definition.declaration.is_plain and not definition.restated:
            return
        folder = self.warehouse.declarations.folder
        gone = sorted(uri for uri in self._loaded(conn, name, wanted) if not (folder / uri).exists())
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            raise PenstockError(
                f"base table `{name}` can only be made again from its files, but {gone[0]}{more} is no longer there; "
                "put it back, or choose partitions whose files are kept"
            )

    def _reads(self, conn: Connection, state: State, name: str, wanted: PartitionSet) -> int:
        """How much the partitions of a derived table are made from."""
        total = 0
        for edge in state.graph.into[name]:
            if edge.source == name or not state.tables[edge.source].exists:
                continue
            required = edge.map.required(wanted)
            within = None if required == EVERYTHING or edge.map.source is WHOLE else required.intervals
            snapshot = self.catalogue.snapshot(conn)
            total += sum(file.size_bytes for file in self.catalogue.files(conn, edge.source, snapshot, within))
        return total

    def refused_in(self, state: State, name: str) -> list[tuple[str, str | None]]:
        """What must be made again so that the rows are looked at anew that a flow refused: a table of it, and which of its
        partitions; None for all."""
        definition = next(
            d for d in self.warehouse.definitions.values() if d.flow is not None and d.flow.flow.name == name
        )
        with self.store.read() as conn:
            if self.catalogue.schema(conn, f"{name}_quarantine") is None:
                return []
            files = self.catalogue.files(conn, f"{name}_quarantine", self.catalogue.snapshot(conn))
        grain = definition.table.grain
        if not files or grain is WHOLE or not state.graph.has_time[definition.name]:
            return [(definition.name, None)] if files else []
        starts = {grain.hull(file.partition_us, file.partition_us + 1) for file in files}
        return [
            (definition.name, "..".join(f"{moment(at, self.zone):%Y-%m-%dT%H:%M:%S}" for at in (low, high - SECOND_US)))
            for low, high in PartitionSet.of(*starts).intervals
        ]

    # Planning

    def plan(self, state: State, wishes: Sequence[tuple[str, str | None, bool]], now_us: int) -> RequestPlan:
        graph = self.warehouse.graph
        policy = self.warehouse.declarations.config.run.policy
        with self.store.read() as conn:
            now = declared(self.warehouse, self.store, conn, now_us)
        asked = [self._event(state, name, span, now_us, "", downstream) for name, span, downstream in wishes]
        found = forecast(state, now, asked)
        found.state.follow_policy(
            powers(bound(find_policy(policy), graph)).cuts(graph), found.state.weights, found.state.kept
        )
        work = []
        with self.store.read() as conn:
            started: set[str] = set()
            for each in found.campaign.work:
                table = found.state.tables[each.table]
                spec = table.table
                if spec.is_base:
                    size = self._restated(conn, each.table, each.partitions)
                else:
                    size = self._reads(conn, found.state, each.table, each.partitions)
                jobs = _jobs(found.state, each.table, each.updates, size)
                if spec.leader is not None:
                    jobs = size = 0  # its leader's jobs make it, too
                group = found.state.graph.updated_as[each.table]
                cost = found.state.cost_of(each.table)
                begun = group in started  # each job of a group starts once
                started.add(group)
                why = tuple(dict.fromkeys(found.reasons[number - 1].what for number in each.requests))
                seconds = (0 if begun else jobs * cost.alpha_s) + cost.beta_s * size
                work.append(
                    PlannedWork(
                        each.table,
                        each.partitions.intervals,
                        each.updates,
                        each.separately,
                        jobs,
                        seconds,
                        size,
                        why,
                        bool(cost.weight),
                    )
                )
        takes = {each.table: each.expected_s for each in work}
        total = sum(takes.values())
        return RequestPlan(
            str(found.campaign),
            found.campaign.requests,
            found.campaign.updates,
            found.campaign.separately,
            tuple(work),
            found.reasons,
            sum(len(table.files) for table in state.tables.values()),
            total,
            max(_longest_way(found.state, takes), total / found.state.tracks),
            sum(each.reads_bytes for each in work),
            now.changed,
        )

    def _restated(self, conn: Connection, name: str, partitions: PartitionSet) -> int:
        return sum(row.size_bytes for row in self._loaded(conn, name, partitions).values())

    def _loaded(self, conn: Connection, name: str, partitions: PartitionSet) -> dict[str, Any]:
        """The files from which partitions of a base table are made, by name."""
        table = self.warehouse.definitions[name].table
        feed = self.warehouse.graph.feeds[table.feed or ""]
        if feed.mode == "snapshot" and table.grain is WHOLE:
            return {row.uri: row for row in self.store.last_loaded(conn, name)}
        return {row.uri: row for start, end in partitions for row in self.store.loaded_within(conn, name, start, end)}


def _jobs(state: State, name: str, updates: int, size: int) -> int:
    """How many jobs it takes: one partition after the other, or as many at once as the table or the policy says."""
    if name in state.graph.chained:
        return updates
    return math.ceil(updates / (most_at_once(state, state.tables[name], updates, size) or updates))


def _longest_way(state: State, seconds: dict[str, float]) -> float:
    """The longest chain of tables that must come one after the other."""
    ends: dict[str, float] = {}
    for name in state.graph.order:
        if name in seconds:
            above = (ends.get(edge.source, 0.0) for edge in state.graph.into[name] if edge.source != name)
            ends[name] = seconds[name] + max(above, default=0.0)
    return max(ends.values(), default=0.0)
