"""Whether late work of a table should wait for a newer change that is on its way to it.

A table waits anyway for changes that are no newer than its own (`settling`). With `patience` it may also wait for newer
ones, so that it and everything made from it is updated once instead of twice: as long as its patience lasts, and as no
freshness target of a table below nor the deadline of a request is put at risk (Xu, Gao, Davidson 2023, Sec. 4.2; the
decision is the exact one of `requests/queueing`). New rows at the edge never wait, nor does what a query waits for.

What is decided here depends on the events alone, and on the clock only in that a hold ends: so a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from penstock.control.settling import Settling
from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.time import END_US, SECOND_US
from penstock.requests.needs import Piece
from penstock.requests.queueing import Duration, decide, descendants, longest

# How many standard deviations of the run times a target must be safe by.
_SAFE = 2.0


@dataclass(frozen=True, slots=True)
class Hold:
    """Partitions that wait, until when at most, for work of which tables, and how many updates that saves."""

    partitions: PartitionSet
    until_us: int
    waits_for: frozenset[str]
    updates: int


def hold(state: State, table: TableState, pieces: Iterable[Piece]) -> Hold | None:
    name, patience = table.table.name, table.table.patience_us
    late = [piece for piece in pieces if piece.need.late]
    if not patience or not late:
        return None
    moving = Settling(state).before(table, table.seen_us)
    if not moving.since:
        return None
    below = _below(state, name)
    coming_us = int(_coming(state, name, moving.by).mean_s * SECOND_US)
    awaited = state.awaited.partitions(name)
    found, until_us, updates = EMPTY, END_US, 0
    for piece in late:
        where = PartitionSet(((piece.start_us, piece.end_us),)) - awaited
        met = [(start, end, at_us) for start, end, at_us in moving.since.within(where) if at_us > piece.need.at_us]
        if not met:
            continue
        until = min(piece.need.at_us + patience, *_latest_starts(state, piece, below))
        there_us = max(at_us for _, _, at_us in met) + coming_us
        if until <= state.now_us or there_us > until:
            continue
        at_risk = {
            other
            for other, takes in below.items()
            if (target := state.graph.tables[other].target_us) is not None
            and there_us + _us(takes) > piece.need.at_us + target
        }
        choice = decide(
            name,
            _readers(state),
            lambda one: _run_time(state, one).mean_s,
            lambda one, at_risk=at_risk: inf if one in at_risk else 0.0,  # type: ignore[misc]
        )
        if choice.waits:
            found |= PartitionSet.of(*((start, end) for start, end, _ in met))
            until_us, updates = min(until_us, until), max(updates, choice.updates)
    return Hold(found, until_us, frozenset(moving.by), updates) if found else None


def _latest_starts(state: State, piece: Piece, below: dict[str, Duration]) -> Iterable[int]:
    """When the piece must start at the latest, for each target below and for each request that it is made for."""
    for name, takes in below.items():
        target = state.graph.tables[name].target_us
        if target is not None:
            yield piece.need.at_us + target - _us(takes)
    last = max((_us(takes) for takes in below.values()), default=0)
    for number in piece.need.requests:
        request = state.requests.get(number)
        if request is not None and request.deadline_us is not None:
            yield request.deadline_us - last
    yield END_US


def _readers(state: State) -> Callable[[str], list[str]]:
    return lambda name: [edge.table for edge in state.graph.out[name] if edge.table != name]


def _us(takes: Duration) -> int:
    return int(takes.at_most_s(_SAFE) * SECOND_US)


def _run_time(state: State, name: str) -> Duration:
    cost = state.tables[name].cost
    usual = cost.x / cost.weight if cost.weight else 0.0
    return Duration.learned(cost.expected_s(usual), cost.spread_s)


def _below(state: State, name: str) -> dict[str, Duration]:
    """Of a table and all that is made from it, how long after the start of its update the change is there."""
    graph = state.graph
    found = {name: _run_time(state, name)}
    for other in sorted(descendants(name, _readers(state)), key=graph.rank.__getitem__)[1:]:
        above = [found[edge.source] for edge in graph.into[other] if edge.source in found and edge.source != other]
        if above:
            found[other] = longest(above) + _run_time(state, other)
    return found


def _coming(state: State, name: str, by: Iterable[str]) -> Duration:
    """How long the tables that have work to do take, one after the other, until the change is at a table's inputs."""
    graph = state.graph
    first = set(by)
    found: dict[str, Duration] = {}
    for other in sorted(graph.ancestors[name], key=graph.rank.__getitem__):
        above = [found[edge.source] for edge in graph.into[other] if edge.source in found and edge.source != other]
        if above or other in first:
            found[other] = longest(above) + _run_time(state, other)
    return longest(found[edge.source] for edge in graph.into[name] if edge.source in found)
