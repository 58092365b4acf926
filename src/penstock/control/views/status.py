"""Every table at a glance: how far it is complete, how stale it is, and what it is doing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal

from penstock.control.amounts import pending_bytes
from penstock.control.faults import Fault
from penstock.control.promises import Void
from penstock.control.state import State
from penstock.control.views.health import FeedHealth, feed_healths
from penstock.control.views.inputs import failed_for_absence
from penstock.control.views.recovery import Recovery, recoveries, violated
from penstock.model.grain import WHOLE
from penstock.model.partitions import Interval, PartitionSet
from penstock.model.time import SECOND_US
from penstock.requests.tablestate import TableState
from penstock.scheduling.recovery.guarantees import Violation

Doing = Literal["idle", "pending", "running", "ordered", "retrying", "failed", "empty"]


@dataclass(frozen=True, slots=True)
class TableStatus:
    table: str
    kind: Literal["base", "derived", "external"]
    doing: Doing
    priority: float
    complete_us: int | None
    # Instead of that, for a table whose old partitions may still get rows: up to when what it is made from is complete.
    as_of_us: int | None
    staleness_us: int | None
    mean_staleness_us: int | None
    target_us: int | None
    # None where there is no target, or nothing to measure yet.
    met: bool | None
    pending_files: int
    pending_partitions: int
    # Not vertically consistent: partitions that do not reflect all changes of what they are made from, and of these
    # those whose changes the table's own policy holds back.
    inconsistent: tuple[Interval, ...]
    held: tuple[Interval, ...]
    held_partitions: int
    oldest_change_us: int | None
    running_s: float | None
    error: str | None
    updates: int
    folded: int
    merged: int
    spared: int
    failures: int
    rows: int
    quarantined_rows: int
    # Of these: those that were set aside because they came late.
    late_rows: int
    quarantined_files: int
    rewritten_files: int
    expected_s: float


def status(state: State, now_us: int | None = None) -> list[TableStatus]:
    """In the order in which changes travel."""
    now = max(state.now_us, now_us or 0)
    return [_status(state, state.tables[name], now) for name in state.graph.order]


def _status(state: State, table: TableState, now_us: int) -> TableStatus:
    spec = table.table
    lead = state.tables[spec.leader] if spec.leader is not None else table
    staleness = max(0, now_us - table.edge_us) if table.edge_us is not None else None
    grain = spec.grain
    waiting = [file.arrived_us for file in table.files.values()] + [need.at_us for _, _, need in table.needs.pieces()]
    pending = sum(1 if grain is WHOLE else grain.count(start, end) for start, end, _ in table.needs.pieces())
    oldest = min(waiting, default=None)
    absent = failed_for_absence(state, spec.name)
    if not state.graph.has_time[spec.name] and table.exists:
        # Without event times a table is as stale as the oldest change that it lacks.
        staleness = now_us - oldest if oldest is not None else 0
    return TableStatus(
        table=spec.name,
        kind="base" if spec.is_base else "external" if spec.external else "derived",
        doing="failed"
        if absent is not None and table.running is None
        else _doing(table)
        if lead is table or table.running is not None
        else _doing(lead),
        priority=spec.priority,
        complete_us=table.edge_us if state.graph.final[spec.name] else None,
        as_of_us=None if state.graph.final[spec.name] else table.edge_us,
        staleness_us=staleness,
        mean_staleness_us=table.staleness.mean_us(now_us),
        target_us=spec.target_us,
        met=None if spec.target_us is None or staleness is None else staleness <= spec.target_us,
        pending_files=len(table.files),
        pending_partitions=pending,
        inconsistent=_inconsistent(table).intervals,
        held=table.held.domain().intervals,
        held_partitions=table.held.domain().count(grain),
        oldest_change_us=oldest,
        running_s=(now_us - lead.running.started_us) / SECOND_US if lead.running else None,
        error=lead.error or absent,
        updates=table.counts.updates,
        folded=table.counts.folded,
        merged=table.counts.merged,
        spared=table.counts.spared,
        failures=table.counts.failures,
        rows=table.counts.rows,
        quarantined_rows=table.counts.quarantined_rows,
        late_rows=table.counts.late_rows,
        quarantined_files=sum(found.feed == spec.feed for found in state.quarantine.values()) if spec.feed else 0,
        rewritten_files=state.rewritten.get(spec.feed, 0) if spec.feed else 0,
        expected_s=state.cost_of(spec.name).expected_s(pending_bytes(state, table)),
    )


def _inconsistent(table: TableState) -> PartitionSet:
    running = table.running.job.pieces if table.running is not None else ()
    return table.lacks | PartitionSet.of(*((piece.start_us, piece.end_us) for piece in running))


def _doing(table: TableState) -> Doing:
    if table.running is not None:
        return "ordered" if table.running.job.kind == "order" else "running"
    if table.failed:
        return "failed"
    if table.retry_at_us is not None:
        return "retrying"
    if table.files or table.needs:
        return "pending"
    return "idle" if table.exists else "empty"


@dataclass(frozen=True, slots=True)
class SetAside:
    feed: str
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Overview:
    tables: list[TableStatus]
    feeds: list[FeedHealth]
    # Tables that catch up after an outage or a pause, and bounds that do not hold.
    recovery: list[Recovery]
    violated: list[Violation]
    # Tables of which nothing is promised now, with the reason.
    void: dict[str, Void]
    quarantine: list[SetAside]
    # What of the world is not available now.
    faults: list[Fault]


def overview(state: State, now_us: int, zone: tzinfo = UTC) -> Overview:
    return Overview(
        status(state, now_us),
        feed_healths(state, now_us, zone),
        recoveries(state, now_us),
        violated(state, now_us),
        dict(state.void),
        [SetAside(found.feed, found.file.uri, found.reason) for found in state.quarantine.values()],
        list(state.faults.open.values()),
    )
