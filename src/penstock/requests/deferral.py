"""Whether late work of a table should wait for a newer change that is on its way to it, or known to come.

A table waits anyway for changes that are no newer than its own (`in_flight`). It may also wait for newer ones, so that it
and everything made from it is updated once instead of twice (Xu, Gao, Davidson 2023, Sec. 4.2):

* for one that is on its way, as long as its `patience` lasts;
* for one that is known to come, because a table above is restated at known times (`restated = "Mon 02:00"`, or, within its
  patience, times that were learned): if that is near, until it has come through, or has not come in its time.

Never past the deadline of a request, nor so long that a freshness target of a table below is put at risk. What it costs that tables are
late can be said (`late_cost`). The decision is the exact one of `closure` over the tables below, and of the time that a target leaves a table takes its share
only (`budget`). New rows at the edge never wait, nor does what a query waits for.

What is decided here depends on the events alone, and on the clock only in that a hold ends: so a replay decides the same.
What it costs depends on the tables above and below that the change concerns, and is bounded: above `MOST` tables below,
nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from math import inf

from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.tables import Table
from penstock.model.time import END_US, HOUR_US, SECOND_US
from penstock.model.timetable import Timetable
from penstock.requests.budget import MOST, Below, below, run_time, share_us
from penstock.requests.closure import Duration, decide, longest
from penstock.requests.in_flight import InFlight, advances, late_pieces
from penstock.requests.needs import Need, Piece
from penstock.requests.tablestate import TableState
from penstock.requests.waits import RequestView

# How far apart two changes are at most that are brought together where nobody says a `patience`.
NEARBY_US = 4 * HOUR_US


@dataclass(frozen=True, slots=True)
class Deferral:
    """Partitions that wait, until when at most, for work of which tables or for which coming restatements (of which
    table and when, as people say it), and how many updates that saves."""

    partitions: PartitionSet
    until_us: int
    waits_for: frozenset[str]
    updates: int
    restated: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Coming:
    """A restatement of a table that is known to come."""

    table: str
    said: str
    at_us: int
    # When its change is there at the latest, through all tables between.
    there_us: int
    there: Duration
    # Whether it has come; then it may still be on its way.
    come: bool


def may_defer(state: RequestView, table: Table) -> bool:
    patient = bool(table.patience_us) or (table.patience_us is None and table.name in state.graph.restated)
    return patient and table.name not in state.kept


def defer(
    state: RequestView, table: TableState, pieces: Iterable[Piece], settling: InFlight | None = None
) -> Deferral | None:
    name = table.table.name
    late = [piece for piece in late_pieces(table, pieces) if not advances(table, piece)]
    if not late:
        return None
    moving = (settling or InFlight(state)).before(table, table.seen_us)
    above = _restated_above(state, table)
    if not moving.since and not above:
        return None
    chain = below(state, name)
    if chain is None:
        return None
    on_its_way = _on_its_way(state, name, moving.by)
    awaited = state.awaited.partitions(name)
    found, until_us, updates = EMPTY, END_US, 0
    restated: dict[str, str] = {}
    moves = False
    for piece in late:
        coming = list(_known(state, table, above, piece.need.at_us, moving.by))
        limit = piece.need.at_us + (table.table.patience_us or 0)
        until = min(max([limit, *(each.there_us for each in coming)]), *_latest_starts(state, piece, chain))
        if until <= state.now_us:
            continue
        where = PartitionSet(((piece.start_us, piece.end_us),)) - awaited
        newer = [
            (start, end, max(at for at in (dates.known_us, dates.arrived_us) if at < END_US))
            for start, end, dates in moving.since.within(where)
            if dates.oldest_us > piece.need.at_us
        ]
        expected = [each for each in coming if not each.come]
        for part, since_us, takes in _reasons(where, newer, on_its_way, expected):
            updates_saved = _saves(state, name, chain, piece.need, since_us, takes, until)
            if updates_saved:
                found |= part
                until_us, updates = min(until_us, until), max(updates, updates_saved)
                restated.update((each.table, each.said) for each in expected)
                moves = moves or bool(newer)
    waits_for = frozenset(restated) | (frozenset(moving.by) if moves else frozenset())
    return Deferral(found, until_us, waits_for, updates, tuple(sorted(restated.items()))) if found else None


def _reasons(
    where: PartitionSet, newer: list[tuple[int, int, int]], on_its_way: Duration, expected: list[Coming]
) -> Iterator[tuple[PartitionSet, int, Duration]]:
    """What may wait, and for a change of when that takes how long to come: one that is known to come concerns all, one that
    is on its way some."""
    if expected:
        last = max(expected, key=lambda each: each.there_us)
        yield where, last.at_us, last.there
    elif newer:
        yield PartitionSet.of(*((start, end) for start, end, _ in newer)), max(at for _, _, at in newer), on_its_way


def _saves(
    state: RequestView, name: str, chain: Below, need: Need, since_us: int, takes: Duration, until_us: int
) -> int:
    """How many updates are saved if work waits for another change; 0 if it should not. All of them are late by as much as that
    takes from when the table was told of the first."""
    if since_us + int(takes.mean_s * SECOND_US) > until_us:
        return 0
    at_risk = {
        other
        for other, then in chain.takes.items()
        if (target := state.graph.tables[other].target_us) is not None
        and since_us + _us(takes + then) > need.at_us + target
    }
    late_h = max(0.0, (since_us - need.known_us) / SECOND_US + takes.mean_s) * SECOND_US / HOUR_US
    tables = state.graph.tables
    choice = decide(
        name,
        chain.readers.__getitem__,
        lambda one: run_time(state, one).mean_s,
        lambda one: inf if one in at_risk else tables[one].late_cost * late_h,
    )
    return choice.updates if choice.waits else 0


def _restated_above(state: RequestView, table: TableState) -> list[tuple[str, Timetable]]:
    """The tables above that are restated at times which are declared, or, as far as patience was asked for, learned."""
    name, patience = table.table.name, table.table.patience_us
    said = state.graph.restated.get(name, frozenset()) if patience != 0 else frozenset()
    found = [(above, timetable) for above in sorted(said) if (timetable := state.tables[above].table.timetable)]
    others = state.graph.ancestors[name] if patience else ()
    for above in sorted(others) if len(others) <= MOST else ():
        source = state.tables[above]
        if above not in said and (timetable := source.restated.timetable(source.table.zone)):
            found.append((above, timetable))
    return found


def _known(
    state: RequestView, table: TableState, known: Iterable[tuple[str, Timetable]], after_us: int, moving: Set[str]
) -> Iterator[Coming]:
    """Restatements of tables above that come near after a change; each at its next time only."""
    name, patience = table.table.name, table.table.patience_us
    nearby_us = NEARBY_US if patience is None else patience
    for above, timetable in known:
        source = state.tables[above]
        if source.failed:
            continue
        last_us = source.restated.last_us
        # The one whose time it is when the change comes; if it has come, the next.
        at_us = timetable.next_us(after_us - timetable.within_us)
        if at_us <= after_us and last_us is not None and last_us >= at_us - timetable.within_us and above not in moving:
            at_us = timetable.next_us(after_us)
        if at_us - after_us > nearby_us:
            continue
        there = _on_its_way(state, name, (above,))
        # As much too early as it may be late, it is this one; and not all of it has come while more is there to load.
        come = last_us is not None and last_us >= at_us - timetable.within_us
        come = come and not (source.files or source.running)
        yield Coming(above, f"{timetable}", at_us, at_us + timetable.within_us + _us(there), there, come)


def _latest_starts(state: RequestView, piece: Piece, chain: Below) -> Iterable[int]:
    """When the piece must start at the latest, for each target below and for each request that it is made for."""
    share = share_us(state, chain)
    if share is not None:
        yield piece.need.at_us + share
    last = max((_us(takes) for takes in chain.takes.values()), default=0)
    for number in piece.need.requests:
        request = state.requests.get(number)
        if request is not None and request.deadline_us is not None:
            yield request.deadline_us - last
    yield END_US


def _us(takes: Duration) -> int:
    return int(takes.at_most_s() * SECOND_US)


def _on_its_way(state: RequestView, name: str, by: Iterable[str]) -> Duration:
    """How long the tables that have work to do take, one after the other, until the change is at a table's inputs."""
    graph = state.graph
    first = set(by)
    found: dict[str, Duration] = {}
    for other in sorted(graph.ancestors[name], key=graph.rank.__getitem__) if first else ():
        above = [found[edge.source] for edge in graph.into[other] if edge.source in found and edge.source != other]
        if above or other in first:
            found[other] = longest(above) + run_time(state, other)
    return longest(found[edge.source] for edge in graph.into[name] if edge.source in found)
