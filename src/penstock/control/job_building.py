"""The job in full: everything that a runtime needs to carry it out."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.labels import reflected
from penstock.control.readiness import (
    complete_after,
    files_to_load,
    news_of,
    pieces_to_load,
    ready_job,
    ready_work,
    to_be_emptied,
)
from penstock.control.state import State
from penstock.model.time import END_US
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
        if not emptied:
            return Job(identity, spec.name, "upkeep", state.snapshot, expected_s=ready.expected_s)
        reflects = tuple((base, state.tables[base].snapshot) for base in sorted(state.graph.origins[spec.name]))
        return Job(
            identity,
            spec.name,
            "upkeep",
            state.snapshot,
            expected_s=ready.expected_s,
            anew=table.anew,
            reflects=reflects,
        )
    if take is not None and spec.group is None:
        ready = ready_job(state, table, take=take) or ready
    if spec.is_base:
        files = files_to_load(state, table, take)
        return Job(
            identity,
            spec.name,
            "load",
            state.snapshot,
            files=files,
            pieces=pieces_to_load(state, table, take),
            complete_us=table.edge_us if table.anew == "rows" else None,
            withdrawn=() if table.anew == "rows" else tuple(sorted(table.withdrawn)),
            anew=table.anew,
            amount=ready.amount,
            fresh=sum(file.size_bytes for file in files),
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
        "order" if spec.external else "derive",
        state.snapshot,
        pieces=pieces,
        edge_us=edge_us if flows else None,
        complete_us=complete_us,
        reflects=reflected(state, table, partitions_of(pieces), complete_us if flows else END_US),
        amount=ready.amount,
        fresh=news_of(table, work),
        expected_s=ready.expected_s,
        attempt=table.attempt + 1,
        anew=table.anew,
        without=tuple(edge.source for edge in state.graph.into[spec.name] if not state.tables[edge.source].exists),
        inputs=tuple((edge.source, state.tables[edge.source].snapshot) for edge in state.graph.into[spec.name])
        if spec.external
        else (),
    )


def _folded_if_possible(state: State, piece: Piece, name: str) -> Piece:
    """Files of a source that were merged look new but hold rows that the table already has: what was to be folded from
    before the merging on must be recomputed."""
    need = piece.need
    merged = max(state.tables[edge.source].merged_snapshot for edge in state.graph.into[name])
    return piece if not need.append or need.since > merged else replace(piece, need=replace(need, append=False))
