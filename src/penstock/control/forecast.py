"""What would run: the fold itself, tried on a copy of the state.

Nothing is guessed about what a request or a changed declaration does: the events that would be appended are folded into
a copy, and what is pending then is followed through the graph (`requests/plan`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.events import BackfillRequested, WarehouseDeclared
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.requests.plan import Backfill, Campaign, plan


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
