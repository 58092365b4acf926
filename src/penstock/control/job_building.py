"""The job in full: everything that a runtime needs to carry it out."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.readiness import (
    complete_after,
    files_to_load,
    pieces_to_load,
    ready_job,
    ready_work,
    to_be_emptied,
)
from penstock.control.state import State
from penstock.model.partitions import PartitionSet
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.in_flight import InFlight
from penstock.requests.job import Job
from penstock.requests.needs import Piece, partitions_of
from penstock.requests.tablestate import TableState
from penstock.scheduling.jobs import ReadyJob


def build_job(state: State, table: TableState, ready: ReadyJob, number: int, take: int | None = None) -> Job:
    """The job; with `take` of at most so many files, or of so many periods of data."""
    spec = table.table
    identity = f"job-{number:06d}"
    if ready.upkeep:
        emptied = not spec.is_base and to_be_emptied(state, table, ready_work(state, table))
        anew = table.anew if emptied else ""
        return Job(identity, spec.name, "upkeep", state.snapshot, expected_s=ready.expected_s, anew=anew)
    if take is not None and spec.group is None:
        ready = ready_job(state, table, take=take) or ready
    if spec.is_base:
        return Job(
            identity,
            spec.name,
            "load",
            state.snapshot,
            files=files_to_load(state, table, take),
            pieces=pieces_to_load(state, table, take),
            complete_us=table.edge_us if table.anew == "rows" else None,
            withdrawn=() if table.anew == "rows" else tuple(sorted(table.withdrawn)),
            anew=table.anew,
            amount=ready.amount,
            expected_s=ready.expected_s,
            attempt=table.attempt + 1,
        )
    members = [state.tables[name] for name in state.graph.grouped_with(spec.name)]
    if len(members) > 1:
        parts = [part for member in members if member.needs and (part := ready_job(state, member, take=take))]
        # The time is that of the group; the amounts are each table's own.
        takes = state.cost_of(spec.name).expected_s(sum(part.amount for part in parts))
        each = [part._replace(expected_s=takes) for part in parts]
        jobs = [_derive(state, state.tables[part.table], identity, part, take) for part in each]
        return replace(jobs[0], beside=tuple(jobs[1:]))
    return _derive(state, table, identity, ready, take)


def _derive(state: State, table: TableState, identity: str, ready: ReadyJob, take: int | None) -> Job:
    spec = table.table
    work = ready_work(state, table, take)
    pieces = tuple(_folded_if_possible(state, piece, spec.name) for piece in work.pieces)
    flows = state.graph.has_time[spec.name]
    complete_us = complete_after(table, pieces) if flows else None
    edge_us = table.seen_us if work.cut_us is None else work.cut_us
    if complete_us is not None and work.cut_us is not None:
        complete_us = min(complete_us, work.cut_us)
    return Job(
        identity,
        spec.name,
        "derive",
        state.snapshot,
        pieces=pieces,
        edge_us=edge_us if flows else None,
        complete_us=complete_us,
        reflects=_reflects(state, table, pieces, complete_us if flows else END_US),
        amount=ready.amount,
        expected_s=ready.expected_s,
        attempt=table.attempt + 1,
        anew=table.anew,
        without=tuple(edge.source for edge in state.graph.into[spec.name] if not state.tables[edge.source].exists),
    )


def _folded_if_possible(state: State, piece: Piece, name: str) -> Piece:
    """Files of a source that were merged look new but hold rows that the table already has: what was to be folded from
    before the merging on must be recomputed."""
    need = piece.need
    merged = max(state.tables[edge.source].merged_snapshot for edge in state.graph.into[name])
    return piece if not need.append or need.since > merged else replace(piece, need=replace(need, append=False))


def _reflects(
    state: State, table: TableState, pieces: tuple[Piece, ...], complete_us: int | None
) -> tuple[tuple[str, int], ...] | None:
    """Which publication of each base table the result contains up to its edge. That is the current one of each, because
    a partition without a need reflects all publications; except where a part of the table before that edge is left for
    later, or a change is still on its way to it through the graph."""
    if complete_us is None:
        return None
    left = _left(state, table, partitions_of(pieces))
    if left.within(BEGIN_US, complete_us) or _goes_without(state, table.table.name, complete_us):
        return None
    settling = InFlight(state, published_only=True)
    if settling.between_states(table, complete_us):
        return _agreed(state, settling, table.table.name)
    return tuple((base, state.tables[base].snapshot) for base in sorted(state.graph.origins[table.table.name]))


def _agreed(state: State, settling: InFlight, name: str) -> tuple[tuple[str, int], ...] | None:
    """Which publications of the base tables all inputs contain, though newer ones are on their way; None if they disagree."""
    found: dict[str, int] = {}
    for edge in state.graph.into[name]:
        source = state.tables[edge.source]
        if edge.source == name:
            continue
        if not settling.of(edge.source, any_change=True).since:
            # Whatever was published of these concerns it no more.
            reflects = {base: state.tables[base].snapshot for base in state.graph.origins[edge.source]}
        elif source.consistent:
            reflects = source.reflects
        else:
            return None
        for base, snapshot in reflects.items():
            if found.setdefault(base, snapshot) != snapshot:
                return None
    return tuple(sorted(found.items()))


def _goes_without(state: State, name: str, complete_us: int) -> bool:
    """Whether a table, or one that it is made from, does without a source that has not come as far: what that source
    will be made from may be published already."""
    for source, reader in state.graph.optional:
        if reader == name or reader in state.graph.ancestors[name]:
            table = state.tables[source]
            behind = (
                table.edge_us is None or table.edge_us < complete_us
                if state.graph.has_time[source]
                else not table.exists
            )
            if behind and not table.table.is_base:
                return True
    return False


def _left(state: State, table: TableState, made: PartitionSet) -> PartitionSet:
    """What of a table still has to be made after a job. In one that reads itself, also what follows from the job."""
    left = table.lacks - made
    for edge in state.graph.into[table.table.name]:
        if edge.source == edge.table:
            left |= edge.map.affected(made) - made
    return left
