"""What is known of all tables, and how a change of one becomes needs of those that read it.

The invariant that everything rests on: a partition of a derived table that has no need (waiting to be done, or held by
the table's policy) and is not in a running job reflects all publications so far, and all rows of its sources before
`seen_us`.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.control.request import Request
from penstock.control.tablestate import TableState
from penstock.model.freshness import SourceEdge, out_of_reach, trailing_edge
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import ALL, NEW, Edge, Table
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.needs import Need, partitions_of, restated
from penstock.requests.reach import affected_by


class Dated(NamedTuple):
    """Event times of rows that were added or replaced, with the change behind them: when it was committed, the requests
    that it is for, and whether it is to stay where it is."""

    where: PartitionSet
    at_us: int
    requests: tuple[int, ...] = ()
    parked: bool = False
    # When the newest change in it was committed.
    upto_us: int = 0
    # When the oldest came.
    came_us: int = 0


class Change(NamedTuple):
    """What readers of a table must know of one publication."""

    snapshot: int
    append: bool
    ranges: tuple[Dated, ...]
    # When the change was committed that moved the edge.
    at_us: int
    size_bytes: int = 0


# What a table was told: something, and something of which nothing was to be done already.
_TOLD, _MORE = 1, 2


class Propagation:
    """The tables and the ways between them."""

    def __init__(self) -> None:
        self.graph = Graph((), ())
        self.tables: dict[str, TableState] = {}
        self.snapshot = 0
        # What users asked for: all that is open, and the last that were done.
        self.requests: dict[int, Request] = {}
        # Of these, the ones that may be forgotten when others have come to their end.
        self.ended: deque[int] = deque()
        # The number of the event that is being folded.
        self.number = 0
        # When that was.
        self.event_us = 0
        # Tables whose readiness an event may have changed.
        self.touched: set[str] = set()
        # Views whose rows, in the catalogue, are those of an earlier declaration, or made from rows that are gone.
        self.former: set[str] = set()

    # Edges

    def sources_exist(self, name: str) -> bool:
        into = self.graph.into[name]
        return bool(into) and all(
            self.tables[edge.source].exists
            for edge in into
            if edge.source != name and (edge.source, name) not in self.graph.optional
        )

    def source_edges(self, name: str) -> list[SourceEdge] | None:
        """How far each flowing source of a table is; None while one of them has nothing to read."""
        found: list[SourceEdge] = []
        for edge in self.graph.into[name]:
            if edge.source == name or (edge.source, name) in self.graph.optional:
                continue
            source = self.tables[edge.source]
            if not source.exists:
                return None
            if self.graph.holds(edge):
                if source.edge_us is None:
                    return None
                table = source.table
                found.append(
                    SourceEdge(
                        source.edge_us,
                        edge.map.source,
                        edge.map.relation,
                        table.feed is not None or table.exact_time,
                        (edge.source, name) in self.graph.uncut,
                    )
                )
        return found

    def trailing_edge(self, name: str) -> int | None:
        """Up to which time a table can be made from its sources now; None while one of them has nothing to read."""
        table = self.graph.tables[name]
        into = self.graph.into[name]
        if len(into) == 1 and table.when != "closed" and self.graph.holds(into[0]):  # most tables
            source = self.tables[into[0].source]
            return into[0].map.carried(source.edge_us) if source.exists and source.edge_us is not None else None
        edges = self.source_edges(name)
        return trailing_edge(edges, table.grain, closed=table.when == "closed") if edges else None

    def begin(self, name: str) -> int | None:
        """The earliest time for which a table can have rows: where its sources begin, seen from its side."""
        begins: list[int] = []
        for edge in self.graph.into[name]:
            source = self.tables[edge.source]
            if edge.source != name and self.graph.has_time[edge.source] and source.begin_us is not None:
                affected = edge.map.affected(PartitionSet(((source.begin_us, source.begin_us + 1),)))
                first = affected.intervals[0][0] if affected else source.begin_us
                begins.append(first if first > BEGIN_US else source.begin_us)
        return min(begins, default=None)

    def until(self, table: Table, edge_us: int) -> int:
        """Where the last partition ends that rows of its sources before a time can be in."""
        end = table.grain.ceil(edge_us)
        if table.when == "closed":
            return end
        return END_US if table.anywhere else table.grain.shift(end, table.ahead)

    def reached(self, reader: TableState, affected: PartitionSet) -> PartitionSet:
        """Of the partitions that a change affects, those that the table has begun: it cannot concern those to come."""
        grain = reader.table.grain
        if not affected or grain is WHOLE:
            return affected
        assert reader.seen_us is not None
        until = self.until(reader.table, reader.seen_us)
        if reader.table.anywhere:
            return PartitionSet.of((BEGIN_US, until))
        first = BEGIN_US
        if affected.intervals[0][0] <= BEGIN_US:
            begin = self.begin(reader.table.name)
            if begin is None:
                return EMPTY
            first = grain.floor(begin)
        return affected.within(first, until)

    def extent(self, state: TableState) -> PartitionSet:
        """All partitions that a table has."""
        grain = state.table.grain
        if grain is WHOLE or not self.graph.has_time[state.table.name] or state.table.anywhere:
            return EVERYTHING
        begins = [state.begin_us] if state.begin_us is not None else []
        ends = [state.leading_us + 1] if state.leading_us is not None else []
        if state.seen_us is not None:
            begin = self.begin(state.table.name)
            begins += [begin] if begin is not None else []
            ends.append(self.until(state.table, state.seen_us))
        return PartitionSet.of(grain.hull(min(begins), max(ends))) if begins and ends else EMPTY

    # Changes

    def tell_readers(self, source: TableState, change: Change) -> None:
        """Needs of all who read a table that changed. Old rows concern whoever already used them; new rows concern a
        reader only when its trailing edge passes them, which a second source may still hold back."""
        name = source.table.name
        for edge in self.graph.out[name]:
            reader = self.tables[edge.table]
            if reader.table.leader is not None:
                continue  # what its leader is told is enough
            if edge.table == name:
                told = self._tell_itself(reader, edge, change)
            elif self.graph.has_time[edge.table]:
                told = self._tell_flowing(source, reader, edge, change)
            else:
                # A publication of a table with time that has no times brought no rows.
                nothing = self.graph.has_time[name] and not change.ranges and reader.exists
                told = 0
                if not nothing and self.sources_exist(edge.table):
                    for dated in change.ranges or (Dated(EVERYTHING, change.at_us),):
                        told |= self._add(reader, EVERYTHING, change.snapshot, BEGIN_US, dated, late=True, append=False)
            if told:
                reader.counts.requests += 1
                reader.counts.merged += not told & _MORE
                reader.amount += change.size_bytes
            self.touched.add(edge.table)

    def _tell_itself(self, table: TableState, edge: Edge, change: Change) -> int:
        """A table that reads its earlier partitions: the following ones are made from the changed ones."""
        if table.seen_us is None:
            return 0
        grain = table.table.grain
        begun = grain.ceil(table.edge_us) if table.edge_us is not None else BEGIN_US
        told = 0
        for dated in change.ranges:
            following = self.reached(table, edge.map.affected(dated.where))
            old, new = following.within(BEGIN_US, begun), following - PartitionSet.of((BEGIN_US, begun))
            told |= self._add(table, old, change.snapshot, BEGIN_US, dated, late=True, append=False)
            told |= self._add(table, new, change.snapshot, BEGIN_US, dated, append=False)
        return told

    def _tell_flowing(self, source: TableState, reader: TableState, edge: Edge, change: Change) -> int:
        told = 0
        append = change.append and self.graph.folds[edge.table]
        if reader.seen_us is not None:
            used = edge.map.cut(reader.seen_us)
            for dated in change.ranges:
                old = dated.where if self.graph.has_time[edge.source] else EVERYTHING
                if self.graph.holds(edge):
                    old = old.within(BEGIN_US, used)
                if not old:
                    continue
                affected = self.reached(reader, affected_by(reader.table, edge, old))
                told |= self._add(reader, affected, change.snapshot, reader.seen_us, dated, late=True, append=append)
        told |= self.advance(reader, change.snapshot, change.at_us, append)
        if reader.seen_us is not None and self._ahead_and_uncut(source, edge, reader.seen_us):
            used = edge.map.cut(reader.seen_us)
            for dated in change.ranges:
                touched = dated.where.hull(edge.map.source).within(BEGIN_US, used)
                affected = self.reached(reader, edge.map.affected(touched))
                told |= self._add(reader, affected, change.snapshot, reader.seen_us, dated, late=True, append=False)
        return told

    def _ahead_and_uncut(self, source: TableState, edge: Edge, seen_us: int) -> bool:
        """A roll-up that cannot be cut for its reader is used as it is. While it is ahead, its new rows change old
        partitions of the reader."""
        if (edge.source, edge.table) not in self.graph.uncut:
            return False
        return source.edge_us is not None and source.edge_us > edge.map.cut(seen_us)

    def advance(self, reader: TableState, since: int, at_us: int, append: bool) -> int:
        """Whether the trailing edge of a table's sources moved; if so its partitions up to there have a need."""
        name, grain = reader.table.name, reader.table.grain
        edge = self.trailing_edge(name)
        seen = reader.seen_us
        if edge is None or (seen is not None and edge <= seen):
            return 0
        begin = seen if seen is not None else self.begin(name)
        waits = begin is None or begin >= edge
        if waits and seen is None and (grain is WHOLE or reader.table.anywhere) and not self._all_flow(name):
            begin = BEGIN_US  # it can have rows of a source without edge, though none of those that wait
        if begin is None or begin >= edge:
            if reader.exists and begin is not None:
                reader.seen_us = edge  # it was made as of a later time, and is now to be made as of this
            return 0
        fresh = PartitionSet(((grain.floor(begin), self.until(reader.table, edge)),))
        if reader.table.anywhere and seen is None:
            fresh = PartitionSet.of((BEGIN_US, self.until(reader.table, edge)))
        reader.seen_us = edge
        new = Dated(fresh, at_us)
        if seen is None:
            return self._add(reader, fresh, since, BEGIN_US, new, append=False)
        # A partition without a need reflects all up to `seen`; one with a need remembers its own, older edge.
        told = self._add(reader, fresh, since, seen, new, append=append)
        if reader.table.anywhere:
            older = PartitionSet.of((BEGIN_US, grain.floor(begin)))
            told |= self._add(reader, older, since, seen, new, late=True, append=False)
        elif self.graph.fluid[name] and grain is not WHOLE:
            # Partitions that read more than their own stretch of time see the new rows too.
            older = self._fluid(reader, seen, edge) - fresh
            told |= self._add(reader, older, since, seen, new, late=True, append=False)
        return told

    def _all_flow(self, name: str) -> bool:
        return all(self.graph.has_time[way.source] for way in self.graph.into[name])

    def complete(self, table: TableState, edge_us: int, at_us: int) -> None:
        """A table is complete further than before."""
        if table.edge_us is None or edge_us > table.edge_us:
            table.edge_us = edge_us
            table.staleness.moved(at_us, edge_us)

    def move_back(self, table: TableState, edge_us: int | None, at_us: int) -> None:
        """A table is complete less far than before, and with it all that was made from it up to there. What they hold of
        later times is taken out of them: it comes again when their sources are that far."""
        table.edge_us = edge_us
        if edge_us is not None:
            table.staleness.moved(at_us, edge_us)
        for edge in self.graph.out[table.table.name]:
            if edge.table != table.table.name:
                self.fall_back(self.tables[edge.table], at_us)

    def fall_back(self, reader: TableState, at_us: int) -> None:
        """Make a table as of the trailing edge of its sources, if it was made as of a later time."""
        name, grain, seen = reader.table.name, reader.table.grain, reader.seen_us
        edge = self.trailing_edge(name)
        if seen is None or reader.table.leader is not None or (edge is not None and edge >= seen):
            return
        if edge is None:
            self._start_over(reader, at_us)
            return
        later = self.extent(reader)
        if not reader.table.anywhere:
            later = PartitionSet(((grain.floor(edge), self.until(reader.table, seen)),))
        if self.graph.fluid[name] and grain is not WHOLE:
            later |= self._fluid(reader, edge, seen)
        if reader.exists or reader.running is not None:
            self.admit(reader, later, restated(at_us, self.number))
        self.touched.add(name)
        for each in self.graph.made_with(name):
            table = self.tables[each]
            table.seen_us = edge
            if table.edge_us is not None and edge < table.edge_us:
                self.move_back(table, edge, at_us)

    def _start_over(self, reader: TableState, at_us: int) -> None:
        """There is nothing left to make a table from, nor what is made from it: as if nothing had ever come. If something
        comes, it is made of that; if not, it is emptied."""
        for name in self.graph.made_with(reader.table.name):
            table = self.tables[name]
            if table.exists:
                self.former.add(name)
            table.start_over()
            self.touched.add(name)
        for name in self.graph.made_with(reader.table.name):
            for edge in self.graph.out[name]:
                below = self.tables[edge.table]
                if below.table.leader is not None or below is reader:
                    continue
                if (name, edge.table) in self.graph.optional:  # it does without
                    if below.exists or below.running is not None:
                        self.admit(below, self.extent(below), restated(at_us, self.number))
                        self.touched.add(edge.table)
                elif self.graph.has_time[edge.table]:
                    self.fall_back(below, at_us)
                elif below.exists:
                    self._start_over(below, at_us)

    def is_stuck(self, table: TableState) -> bool:
        """Whether something of a table is to be made that cannot be, as of the time up to which it was made: a roll-up that
        went on since then has merged later rows, or a source is less far."""
        name = table.table.name
        if not table.needs or table.seen_us is None or table.running is not None:
            return False
        edges = self.source_edges(name)
        return edges is None or bool(out_of_reach(edges, table.table.grain, table.seen_us) & table.needs.domain())

    def _fluid(self, reader: TableState, low_us: int, high_us: int) -> PartitionSet:
        """The partitions of a table which read rows of its sources between two edges, though those are not of their own
        stretch of time."""
        name = reader.table.name
        found = EMPTY
        for way in self.graph.into[name]:
            if way.source != name and self.graph.holds(way):
                found |= way.map.affected(PartitionSet.of((way.map.cut(low_us), way.map.cut(high_us))))
        return self.reached(reader, found)

    def _add(
        self,
        reader: TableState,
        partitions: PartitionSet,
        since: int,
        edge_us: int,
        dated: Dated,
        *,
        late: bool = False,
        append: bool,
    ) -> int:
        if not partitions:
            return 0
        told = _TOLD if _covered(reader, partitions) else _TOLD | _MORE
        need = Need(
            since,
            edge_us,
            dated.at_us,
            late,
            append,
            self.number,
            dated.requests,
            parked=dated.parked,
            upto_us=dated.upto_us if late else 0,
            came_us=dated.came_us if late else 0,
            told_us=self.event_us if late else 0,
        )
        self.admit(reader, partitions, need)
        return told

    def reason(self, table: TableState, partitions: PartitionSet) -> None:
        """Count a reason to make partitions, or none of them if a running job makes them anyway."""
        table.counts.requests += 1
        table.counts.merged += _covered(table, partitions)

    # Policies

    def admit(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        """A need of a table, which it takes up or holds, as its policy is."""
        if need.parked or not self.follows(table, need):
            self._hold(table, partitions, need)
            return
        running = table.running
        if running is not None and table.table.overrun != "queue" and running.job.kind == "derive":
            met = partitions & partitions_of(running.job.pieces)
            if met and table.table.overrun == "skip":
                self._hold(table, met, need)
                partitions -= met
            elif met and not table.stopped:
                table.overrun = True
        self.require(table, partitions, need)

    def follows(self, table: TableState, need: Need) -> bool:
        """Whether a table takes up a change of its sources. The first time it is made in any case."""
        policy = table.table.propagate
        if policy == ALL or not table.exists:
            return True
        if not need.late and NEW in policy:
            return True
        return any(self.requests[number].reason in policy for number in need.requests if number in self.requests)

    def require(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        """A need that is to be done, and with it what was held of the same partitions: the job will see that, too."""
        if table.held:
            for start, end, held in table.held.remove(partitions):
                table.needs.add(PartitionSet(((start, end),)), held)
                self._opened(table, held)
        if partitions:
            table.needs.add(partitions, need)
            self._opened(table, need)

    def _hold(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        # What has a need already is going to be made, and then contains this, too.
        pending = partitions & table.needs.domain()
        if pending:
            self.require(table, pending, need)
        rest = partitions - pending
        if rest:
            table.held.add(rest, need)
            for number in need.requests:
                if number in self.requests:
                    self.requests[number].held = True

    def _opened(self, table: TableState, need: Need) -> None:
        for number in need.requests:
            request = self.requests.get(number)
            if request is not None and request.finished_us is None:
                request.open.add(table.table.name)


def _covered(table: TableState, partitions: PartitionSet) -> bool:
    """Whether all of these are to be made already."""
    if not partitions or not table.needs:
        return not partitions
    found = table.needs.within(partitions)
    return not partitions - PartitionSet.of(*((start, end) for start, end, _ in found))
