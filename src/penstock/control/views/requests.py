"""Every request at a glance: how far it is, what it waits for, with what it was merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.control.events import BackfillRequested, WarehouseDeclared
from penstock.control.readiness import blocked, ready_work
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.control.views.explain import waits
from penstock.model.partitions import EMPTY, Interval, PartitionSet
from penstock.requests.ledger import UserRequest
from penstock.requests.plan import Backfill, Campaign, plan, reach
from penstock.requests.tablestate import TableState

Stage = Literal["running", "queued", "waiting", "done", "cancelled"]


@dataclass(frozen=True, slots=True)
class RequestStatus:
    request: int
    table: str
    stage: Stage
    reason: str
    downstream: bool
    asked_us: int
    deadline_us: int | None
    finished_us: int | None
    # What was asked for, as whole partitions that the table had.
    ranges: tuple[Interval, ...]
    partitions: int
    # Partitions made so far and still to be made for it, in all tables.
    made: int
    left: int
    updates: int
    # Requests with which it shares work.
    merged_with: tuple[int, ...]
    # The tables that have work to do for it now, and why nothing of it runs.
    tables: tuple[str, ...]
    waits: str | None
    # Partitions of other tables that hold its change back by their policy.
    held: int
    # Of what was asked for, how many partitions were dropped by cancelling.
    dropped: int


def requests(state: State) -> list[RequestStatus]:
    """The newest first."""
    merged = _merged(state)
    return [
        _status(state, request, tuple(merged[request.number]))
        for request in sorted(state.requests.values(), key=lambda r: -r.number)
    ]


def _merged(state: State) -> dict[int, list[int]]:
    """Of each request the others with which it shares work: what both reach, and the one was open when the other came."""
    known = [state.requests[number] for number in sorted(state.requests)]
    reached = {
        request.number: reach(state.graph, {request.table: request.wanted}, downstream=request.downstream)
        if request.table in state.graph.tables
        else {}
        for request in known
    }
    found: dict[int, list[int]] = {request.number: [] for request in known}
    for n, later in enumerate(known):
        for earlier in known[:n]:
            if earlier.finished_us is not None and earlier.finished_us <= later.at_us:
                continue
            if _meet(reached[earlier.number], reached[later.number]):
                if later.cancelled_us is None:
                    found[earlier.number].append(later.number)
                if earlier.cancelled_us is None:
                    found[later.number].append(earlier.number)
    return {number: sorted(others) for number, others in found.items()}


def _meet(one: Mapping[str, PartitionSet], other: Mapping[str, PartitionSet]) -> bool:
    fewer, more = (one, other) if len(one) < len(other) else (other, one)
    return any(name in more and where & more[name] for name, where in fewer.items())


def _status(state: State, request: UserRequest, merged_with: tuple[int, ...]) -> RequestStatus:
    todo = {name: work for name in state.graph.order if (work := work_for(state.tables[name], request.number))}
    running = [name for name in todo if _runs_for(state.tables[name], request.number)]
    why = None
    if todo and not running:
        why = next((text for name in todo if (text := waits(state, name))), None)
    if request.finished_us is not None:
        stage: Stage = "done" if request.cancelled_us is None else "cancelled"
    elif running:
        stage = "running"
    else:
        stage = "waiting" if any(request.made.values()) or _blocked(state, todo) else "queued"
    table = state.tables.get(request.table)
    grain = table.table.grain if table is not None else None
    left = reach(state.graph, todo, lambda name: state.extent(state.tables[name]), downstream=request.downstream)
    return RequestStatus(
        request=request.number,
        table=request.table,
        stage=stage,
        reason=request.reason,
        downstream=request.downstream,
        asked_us=request.at_us,
        deadline_us=request.deadline_us,
        finished_us=request.finished_us,
        ranges=request.wanted.intervals,
        partitions=request.wanted.count(grain) if grain is not None else 0,
        made=sum(request.made.values()),
        left=sum(where.count(state.graph.tables[name].grain) for name, where in left.items()),
        updates=request.updates,
        merged_with=merged_with,
        tables=tuple(todo),
        waits=why,
        held=_held(state, request.number) if request.held else 0,
        dropped=request.dropped.count(grain) if grain is not None else 0,
    )


def work_for(table: TableState, number: int) -> PartitionSet:
    """The partitions of a table that are to be made, or are being made, for a request."""
    found = [(start, end) for start, end, need in table.needs.pieces() if number in need.requests]
    if table.running is not None:
        found += [(p.start_us, p.end_us) for p in table.running.job.pieces if number in p.need.requests]
    return PartitionSet.of(*found) if found else EMPTY


def _runs_for(table: TableState, number: int) -> bool:
    return table.running is not None and any(number in piece.need.requests for piece in table.running.job.pieces)


def _blocked(state: State, todo: dict[str, PartitionSet]) -> bool:
    """Whether something other than its turn holds a request up."""
    return bool(todo) and not any(_ready(state, state.tables[name]) for name in todo)


def _ready(state: State, table: TableState) -> bool:
    if blocked(state, table) is not None:
        return False
    return table.table.is_base or bool(ready_work(state, table).pieces)


def _held(state: State, number: int) -> int:
    return sum(
        table.table.grain.count(start, end)
        for table in state.tables.values()
        for start, end, need in table.held.pieces()
        if number in need.requests
    )


# What would run: the fold itself, tried on a copy of the state.
#
# Nothing is guessed about what a request or a changed declaration does: the events that would be appended are folded into
# a copy, and what is pending then is followed through the graph (`requests/plan`).


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for work, as people know it."""

    what: str
    table: str
    partitions: PartitionSet
    downstream: bool = True


@dataclass(frozen=True)
class Forecast:
    campaign: Campaign
    # In the order in which the campaign numbers them.
    reasons: tuple[Reason, ...]
    state: State


def forecast(
    state: State, declared: WarehouseDeclared | None = None, asked: Sequence[BackfillRequested] = ()
) -> Forecast:
    """All work there would be after these declarations and requests, with that which is pending already."""
    tried = load(dump(state))
    reasons = [
        Reason(f"request {request.number}", request.table, todo, request.downstream)
        for request in tried.requests.values()
        if request.finished_us is None and (todo := request.wanted & _todo(tried, request.table))
    ]
    pending = {name: _changed(tried, name) for name in tried.tables}
    reasons += [Reason("changes", name, where) for name, where in pending.items() if where]
    had: dict[str, PartitionSet] = {}
    if declared is not None:
        before = {name: _todo(tried, name) for name in tried.tables}
        logic = {name: table.table.logic for name, table in tried.tables.items()}
        had = {name: tried.extent(table) for name, table in tried.tables.items() if table.exists}
        tried.apply(declared)
        for name, table in tried.tables.items():
            more = _todo(tried, name) - before.get(name, EMPTY)
            if table.anew and (table.table.is_base or not more):
                more = had.get(name, EMPTY).hull(table.table.grain)  # it is made again as a whole, or emptied
            if more:
                changed = "a new table" if name not in logic else "changed declaration"
                if name in logic and logic[name] != tried.tables[name].table.logic:
                    changed = "changed logic"
                reasons.append(Reason(changed, name, more))
    for event in asked:
        tried.apply(event)
        request = tried.requests[tried.applied]
        if request.wanted:
            reasons.append(Reason("asked for", event.table, request.wanted, event.downstream))
    backfills = [Backfill(each.table, each.partitions, each.downstream, each.what) for each in reasons]

    def extent(name: str) -> PartitionSet:
        table = tried.tables[name]
        known = tried.extent(table) if table.exists else had.get(name, EMPTY).hull(table.table.grain)
        return known | _todo(tried, name)

    return Forecast(plan(tried.graph, backfills, extent), tuple(reasons), tried)


def _todo(state: State, name: str) -> PartitionSet:
    table = state.tables[name]
    found = table.needs.domain()
    if table.running is not None:
        found |= PartitionSet.of(*((piece.start_us, piece.end_us) for piece in table.running.job.pieces))
    return found


def _changed(state: State, name: str) -> PartitionSet:
    """What is pending because something changed, not because a request is open."""
    table = state.tables[name]
    return PartitionSet.of(
        *((start, end) for start, end, need in table.needs.pieces() if need.changed and not need.requests)
    )
