"""Tables of one group are one job for a policy: with the work of all, the benefit of all, and the cost of the group."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.readiness import Work, blocked, ready_job, ready_work
from penstock.control.settling import Settling
from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.scheduling.jobs import ReadyJob


def ready_group(
    state: State, members: Sequence[TableState], settling: Settling | None = None
) -> tuple[ReadyJob | None, dict[str, Work]]:
    """All work of a group that could start now, as one job by the name of its first table; and the work of
    each. A table that has something pending but none of it ready holds the others back: they become visible
    together, or not at all."""
    works = {table.table.name: Work() for table in members}
    if any(blocked(state, table) is not None for table in members):
        return None, works
    works = {table.table.name: ready_work(state, table, settling=settling) for table in members}
    if any(table.needs and not works[table.table.name].pieces for table in members):
        return None, works
    jobs = [
        job
        for table in members
        if works[table.table.name].pieces and (job := ready_job(state, table, works[table.table.name])) is not None
    ]
    return (_together(members[0], jobs) if jobs else None), works


def _together(first: TableState, jobs: Sequence[ReadyJob]) -> ReadyJob:
    """One job with the benefit of all: what they gain, each by its weight."""
    weight = sum(job.inherited for job in jobs)
    late = sum(job.late for job in jobs)
    amount = sum(job.amount for job in jobs)
    cost = first.cost
    awaited = [job.awaited_us for job in jobs if job.awaited_us is not None]
    return ReadyJob(
        table=first.table.name,
        priority=sum(job.priority for job in jobs),
        inherited=weight,
        release_us=min(job.release_us for job in jobs),
        deadline_us=min(job.deadline_us for job in jobs),
        gain_us=round(sum(job.inherited * job.gain_us for job in jobs) / weight) if weight else 0,
        late=late,
        late_since_us=sum(job.late * job.late_since_us for job in jobs) // late if late else 0,
        history_weight=max(job.history_weight for job in jobs),
        amount=amount,
        expected_s=cost.expected_s(amount),
        awaited_us=min(awaited, default=None),
        start_up_s=cost.expected_s(0.0),
    )


def held_by_group(state: State, table: TableState) -> str | None:
    """The table of the same group that keeps it from running, if any."""
    for name in state.graph.grouped_with(table.table.name):
        other = state.tables[name]
        if other is table:
            continue
        if blocked(state, other) is not None or (other.needs and not ready_work(state, other).pieces):
            return name
    return None
