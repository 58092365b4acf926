"""What is still on its way through the graph to a table.

A late change reaches the bottom of a diamond by several paths. The bottom waits until it has come by all of them, so
that it is updated once and not once per path. What has come counts from its arrival: a file that waits to be loaded is on
its way, too. A table waits for all that had come when it was first told of a change, and for what one of its inputs
contains and another does not yet. What comes later it does not wait for: so a stream of late changes never holds it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, reduce
from typing import NamedTuple

from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, IntervalMap, PartitionSet
from penstock.model.tables import Edge
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.budget import Below, below, latest_start_us, pass_us
from penstock.requests.needs import Need, Piece
from penstock.requests.tablestate import TableState
from penstock.requests.waits import RequestView
from penstock.requests.windows import is_open


class Dates(NamedTuple):
    """Of the oldest change on its way: of those that were asked for or committed, when; of files that are not loaded, when
    the first came (what is in them is not known); and of those that are in some table already, when it was committed. And
    whether users asked for any of them."""

    known_us: int = END_US
    arrived_us: int = END_US
    published_us: int = END_US
    asked: bool = False

    @property
    def oldest_us(self) -> int:
        return min(self.known_us, self.arrived_us)


def _oldest(left: Dates, right: Dates) -> Dates:
    if left == right:
        return left
    return Dates(min(left[0], right[0]), min(left[1], right[1]), min(left[2], right[2]), left[3] or right[3])


class Moving:
    """Partitions that are going to change, with the dates of the oldest change on its way to each."""

    __slots__ = ("by", "since")

    def __init__(self) -> None:
        self.since: IntervalMap[Dates] = IntervalMap(_oldest)
        # The tables that have work to do before it comes to rest.
        self.by: set[str] = set()


class InFlight:
    """One look at the state; what is found of a table is kept for its other readers. With `published_only` it is about
    what was published and is not everywhere yet, else about what is worth waiting for."""

    def __init__(self, state: RequestView, *, published_only: bool = False) -> None:
        self._state = state
        self._published_only = published_only
        self._known: dict[tuple[str, bool], Moving] = {}
        self._before: dict[tuple[str, int | None], Moving] = {}

    def before(self, table: TableState, edge_us: int | None) -> Moving:
        """The partitions of a table whose inputs, as far as they are used before an edge, are going to change. For one
        that reads more than its own stretch of time, new rows at the edge are such a change too."""
        name = table.table.name
        if (name, edge_us) not in self._before:
            self._before[name, edge_us] = self._found_before(table, edge_us)
        return self._before[name, edge_us]

    def _found_before(self, table: TableState, edge_us: int | None) -> Moving:
        fluid = self._state.graph.fluid[table.table.name]
        found = self._inputs(table, lambda _: fluid, edge_us)
        if table.table.name in self._state.graph.chained and found.since:
            # What follows from a partition that is going to change waits with it; but not the edge (see `waiting`).
            first = next(found.since.pieces())[0]
            oldest = reduce(_oldest, (dates for _, _, dates in found.since.pieces()))
            after = Dates(END_US, oldest.oldest_us, oldest.published_us, oldest.asked)
            found.since.add(PartitionSet(((first, END_US),)), after)
        return found

    def between_states(self, table: TableState, edge_us: int | None) -> bool:
        """Whether something published would still change the table before an edge. What a base table has to load again
        does not count, nor what comes after the edge and can be cut off."""
        below = EVERYTHING if edge_us is None else PartitionSet.of((BEGIN_US, edge_us))
        return bool(self._inputs(table, self._is_uncut, edge_us).since.within(below))

    def _is_uncut(self, edge: Edge) -> bool:
        graph, pair = self._state.graph, (edge.source, edge.table)
        return pair in graph.uncut or pair in graph.optional

    def _inputs(self, table: TableState, any_change: Callable[[Edge], bool], edge_us: int | None = None) -> Moving:
        found = Moving()
        name = table.table.name
        for edge in self._state.graph.into[name]:
            if edge.source == name:
                continue
            above = self.of(edge.source, any_change(edge) or not edge.waits)
            if not above.since:
                continue
            found.by |= above.by
            used = (
                EVERYTHING if edge_us is None or not edge.waits else PartitionSet.of((BEGIN_US, edge.map.cut(edge_us)))
            )
            for start, end, at_us in above.since.within(used):
                found.since.add(edge.map.affected(PartitionSet(((start, end),))), at_us)
        return found

    def _has_failed(self, table: TableState) -> bool:
        """Whether it failed, or one with which it is made."""
        return any(self._state.tables[name].failed for name in self._state.graph.grouped_with(table.table.name))

    def _is_published(self, table: TableState, need: Need) -> bool:
        """Whether others may contain what is to be made: a change of a source, or a request that is made in parts."""
        if need.changed and not table.table.is_origin:
            return True
        known = self._state.requests
        return any(number in known and known[number].made for number in need.requests)

    def of(self, name: str, any_change: bool = False) -> Moving:
        """The partitions of a table whose content before its edge is going to change; with `any_change` also those
        that only get new rows, which matters to whoever cannot cut them off."""
        state = self._state
        name = state.tables[name].table.leader or name
        any_change = any_change or state.graph.fluid[name]
        known = self._known.get((name, any_change))
        if known is not None:
            return known
        table = state.tables[name]
        if table.table.is_base if self._published_only else self._has_failed(table):
            found = Moving()  # of a failed table nothing will come, so nobody waits for it
        else:
            found = self._inputs(table, lambda _: any_change)
            # Of what a window collects, and of what nobody is going to do while the feed is paused, only that counts which runs.
            waits = self._published_only or not (is_open(state, table) or state.paused(table) is not None)
            for start, end, need in _work(table, waits=waits, held=self._published_only):
                if need.late or any_change:
                    published_us = need.at_us if self._is_published(table, need) else END_US
                    dates = Dates(need.oldest_us, END_US, published_us, bool(need.requests))
                    found.since.add(PartitionSet(((start, end),)), dates)
                    found.by.add(name)
            arrived_us = None if self._published_only else _not_loaded(state, table, waits=waits)
            if arrived_us is not None:
                found.since.add(EVERYTHING, Dates(arrived_us=arrived_us))
                found.by.add(name)
            if name in state.graph.chained and found.since:
                # Whatever follows the first changed partition changes too.
                first = next(found.since.pieces())[0]
                oldest = reduce(_oldest, (dates for _, _, dates in found.since.pieces()))
                found.since.add(PartitionSet(((first, END_US),)), oldest)
        self._known[name, any_change] = found
        return found


def _work(table: TableState, *, waits: bool, held: bool) -> Iterable[tuple[int, int, Need]]:
    if waits:
        yield from table.needs.pieces()
    if held:  # nobody waits for what nobody is going to do
        yield from table.held.pieces()
    if table.running is not None:
        for piece in table.running.job.pieces:
            yield piece.start_us, piece.end_us, piece.need


def _not_loaded(state: RequestView, table: TableState, *, waits: bool) -> int | None:
    """When the first of the files came that a base table has to load or is loading; None if there is none that somebody
    should wait for."""
    running = table.running
    loading = running.job.files if running is not None else ()
    if running is None and (state.deferred_until(table) or 0) > state.now_us:
        return None  # nobody is going to load them soon
    return table.since_us((*table.first_files, *loading) if waits else loading)


class Unsettled(NamedTuple):
    """Late work that waits, for which tables, and until when at most (some of it); and the tables for which some of it has
    waited long enough, so that it waits no more."""

    partitions: PartitionSet = EMPTY
    by: frozenset[str] = frozenset()
    until_us: int = END_US
    no_more: frozenset[str] = frozenset()


def waiting(
    state: RequestView, table: TableState, pieces: Iterable[Piece], settling: InFlight | None = None
) -> Unsettled:
    """Which of a table's late pieces wait for inputs that are themselves about to change:

    * for changes no newer than their own, however long that takes;
    * for all that had come when the table was first told of a change, loaded or not; and if nothing has changed, but
      was only asked for, for all that was asked for since then;
    * for what another input contains already: else they would be made from inputs that disagree.

    The second and third put no target below and no deadline of a request at risk. What is not loaded, and newer changes,
    which may overtake each other for ever, are waited for no longer than changes usually take. Pieces with new rows at the
    edge wait for the first only."""
    late = late_pieces(table, pieces)
    if not late:
        return Unsettled()
    moving = (settling or InFlight(state)).before(table, table.seen_us)
    if not moving.since:
        return Unsettled()
    limits = _Limits(state, table.table.name)
    found: list[tuple[int, int]] = []
    until_us = END_US
    no_more = False
    for piece in late:
        need = piece.need
        at_edge = advances(table, piece)
        for start, end, dates in moving.since.within(PartitionSet(((piece.start_us, piece.end_us),))):
            if dates.known_us <= need.oldest_us:
                found.append((start, end))
                continue
            known = dates.known_us <= need.known_us or (dates.asked and not need.changed)
            come = dates.arrived_us <= need.known_us
            overlaps = dates.published_us <= need.newest_us
            if at_edge or not (known or come or overlaps):
                continue
            limit = limits.of(piece, bounded=not known)
            if limit > state.now_us:
                found.append((start, end))
                until_us = min(until_us, limit)
            else:
                no_more = True
    by = frozenset(moving.by)
    return Unsettled(PartitionSet.of(*found), by if found else frozenset(), until_us, by if no_more else frozenset())


def late_pieces(table: TableState, pieces: Iterable[Piece]) -> list[Piece]:
    """The late ones; what is at the edge is apart from older partitions that have the same need."""
    late = [piece for piece in pieces if piece.need.late]
    if table.edge_us is None or table.table.grain is WHOLE or table.table.anywhere:
        return late
    begin_us = table.table.grain.floor(table.edge_us)
    found = []
    for piece in late:
        if piece.start_us < begin_us < piece.end_us:
            found.append(replace(piece, end_us=begin_us))
            piece = replace(piece, start_us=begin_us)
        found.append(piece)
    return found


def advances(table: TableState, piece: Piece) -> bool:
    """Whether a piece has new rows at the edge."""
    edge_us = table.edge_us if table.edge_us is not None else BEGIN_US
    return table.seen_us is not None and table.seen_us > edge_us and piece.end_us > edge_us


class _Limits:
    """Until when pieces of one table may wait; what is asked several times is found once."""

    def __init__(self, state: RequestView, name: str) -> None:
        self._state, self._name = state, name
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    @cached_property
    def _chain(self) -> Below | None:
        return below(self._state, self._name)

    @cached_property
    def _pass_us(self) -> int:
        return pass_us(self._state, self._name)

    def of(self, piece: Piece, *, bounded: bool) -> int:
        need = piece.need
        key = (need.oldest_us, need.requests)
        if key not in self._known:
            self._known[key] = latest_start_us(self._state, piece, self._chain)
        return min(self._known[key], need.known_us + self._pass_us) if bounded else self._known[key]
