"""How a change of one table becomes needs of those that read it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.freshness import out_of_reach
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import Edge
from penstock.model.time import BEGIN_US
from penstock.requests.ledger import Ledger, is_covered, says_already
from penstock.requests.needs import Need, restated
from penstock.requests.plan import affected_by, reach
from penstock.requests.tablestate import TableState


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
    # The names of the changes.
    reasons: tuple[str, ...] = ()


class PublishedChange(NamedTuple):
    """What readers of a table must know of one publication."""

    snapshot: int
    append: bool
    ranges: tuple[Dated, ...]
    # When the change was committed that moved the edge.
    at_us: int
    size_bytes: int = 0
    # Where the rows are the same as before, though they were made again.
    same: PartitionSet = EMPTY


def _without(change: PublishedChange) -> PublishedChange:
    """What is left of a change if the same rows are no change."""
    if not change.same:
        return change
    ranges = tuple(dated._replace(where=dated.where - change.same) for dated in change.ranges)
    return change._replace(ranges=tuple(dated for dated in ranges if dated.where))


# What a table was told: something, and something of which nothing was to be done already.
# Of the former, something that a pending need does not say word for word.
_TOLD, _MORE, _OTHER = 1, 2, 4


class Propagation:
    """Carries changes along the ways between the tables of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def tell_readers(self, source: TableState, change: PublishedChange) -> None:
        """Needs of all who read a table that changed. Old rows concern whoever already used them; new rows concern a
        reader only when its trailing edge passes them, which a second source may still hold back."""
        name = source.table.name
        other_rows = _without(change)
        spared: dict[str, PartitionSet] = {}
        for edge in self.ledger.graph.out[name]:
            reader = self.ledger.tables[edge.table]
            if reader.table.leader is not None:
                continue  # what its leader is told is enough
            if other_rows is not change and not self._folds_now(reader):
                news = other_rows
                if edge.table != name:
                    spared[edge.table] = spared.get(edge.table, EMPTY) | self._used(reader, edge, change)
            else:
                news = change
            if edge.table == name:
                told = self._tell_itself(reader, edge, news)
            elif self.ledger.graph.has_time[edge.table]:
                told = self._tell_flowing(source, reader, edge, news)
            else:
                # A publication of a table with time that has no times brought no rows.
                timed = self.ledger.graph.has_time[name]
                nothing = (timed or bool(news.same)) and not news.ranges and reader.exists
                told = 0
                if not nothing and self.ledger.sources_exist(edge.table):
                    for dated in news.ranges or (Dated(EVERYTHING, change.at_us),):
                        told |= self._add(reader, EVERYTHING, change.snapshot, BEGIN_US, dated, late=True, append=False)
            if told:
                reader.counts.requests += 1
                reader.counts.merged += not told & _MORE
                reader.counts.duplicates += not told & (_MORE | _OTHER)
                reader.amount += change.size_bytes
            self.ledger.touched.add(edge.table)
        self._count_spared(spared)

    def _folds_now(self, reader: TableState) -> bool:
        """Whether a table has work that takes only what came since another time: rows that were written again, be they the same, look
        as if they had come since."""
        if not self.ledger.graph.folds[reader.table.name]:
            return False
        running = reader.running.job.pieces if reader.running is not None else ()
        waiting = (need for needs in (reader.needs, reader.held) for _, _, need in needs.pieces())
        return any(need.append for need in waiting) or any(piece.need.append for piece in running)

    def _used(self, reader: TableState, edge: Edge, change: PublishedChange) -> PartitionSet:
        """The partitions of a reader that are made from rows which are the same as before."""
        graph = self.ledger.graph
        if not reader.exists:
            return EMPTY
        if not graph.has_time[edge.table]:
            return EVERYTHING
        old = change.same if graph.has_time[edge.source] else EVERYTHING
        if reader.seen_us is None:
            return EMPTY
        if graph.holds(edge):
            old = old.within(BEGIN_US, edge.map.cut(reader.seen_us))
        return self.ledger.reached(reader, affected_by(reader.table, edge, old)) if old else EMPTY

    def _count_spared(self, spared: dict[str, PartitionSet]) -> None:
        """Partitions that would have been made again, there and further down, and are not."""
        tables, graph = self.ledger.tables, self.ledger.graph
        if any(spared.values()):
            for name, partitions in reach(graph, spared, lambda one: self.ledger.extent(tables[one])).items():
                table = tables[name]
                rest = partitions - table.needs.domain()
                if rest:
                    table.counts.spared += 1 if table.table.anywhere else rest.count(table.table.grain)

    def _tell_itself(self, table: TableState, edge: Edge, change: PublishedChange) -> int:
        """A table that reads its earlier partitions: the following ones are made from the changed ones."""
        if table.seen_us is None:
            return 0
        grain = table.table.grain
        begun = grain.ceil(table.edge_us) if table.edge_us is not None else BEGIN_US
        told = 0
        for dated in change.ranges:
            following = self.ledger.reached(table, edge.map.affected(dated.where))
            old, new = following.within(BEGIN_US, begun), following - PartitionSet.of((BEGIN_US, begun))
            told |= self._add(table, old, change.snapshot, BEGIN_US, dated, late=True, append=False)
            told |= self._add(table, new, change.snapshot, BEGIN_US, dated, append=False)
        return told

    def _tell_flowing(self, source: TableState, reader: TableState, edge: Edge, change: PublishedChange) -> int:
        told = 0
        append = change.append and edge.source in self.ledger.graph.folds[edge.table]
        if reader.seen_us is not None:
            used = edge.map.cut(reader.seen_us)
            for dated in change.ranges:
                old = dated.where if self.ledger.graph.has_time[edge.source] else EVERYTHING
                if self.ledger.graph.holds(edge):
                    old = old.within(BEGIN_US, used)
                if not old:
                    continue
                affected = self.ledger.reached(reader, affected_by(reader.table, edge, old))
                told |= self._add(reader, affected, change.snapshot, reader.seen_us, dated, late=True, append=append)
        told |= self.advance(reader, change.snapshot, change.at_us, append)
        if reader.seen_us is not None and self._ahead_and_uncut(source, edge, reader.seen_us):
            used = edge.map.cut(reader.seen_us)
            for dated in change.ranges:
                touched = dated.where.hull(edge.map.source).within(BEGIN_US, used)
                affected = self.ledger.reached(reader, edge.map.affected(touched))
                told |= self._add(reader, affected, change.snapshot, reader.seen_us, dated, late=True, append=False)
        return told

    def _ahead_and_uncut(self, source: TableState, edge: Edge, seen_us: int) -> bool:
        """A roll-up that cannot be cut for its reader is used as it is. While it is ahead, its new rows change old
        partitions of the reader."""
        if (edge.source, edge.table) not in self.ledger.graph.uncut:
            return False
        return source.edge_us is not None and source.edge_us > edge.map.cut(seen_us)

    def advance(self, reader: TableState, since: int, at_us: int, append: bool) -> int:
        """Whether the trailing edge of a table's sources moved; if so its partitions up to there have a need."""
        name, grain = reader.table.name, reader.table.grain
        edge = self.ledger.trailing_edge(name)
        seen = reader.seen_us
        if edge is None or (seen is not None and edge <= seen):
            return 0
        begin = seen if seen is not None else self.ledger.begin(name)
        waits = begin is None or begin >= edge
        if waits and seen is None and (grain is WHOLE or reader.table.anywhere) and not self._all_flow(name):
            begin = BEGIN_US  # it can have rows of a source without edge, though none of those that wait
        if begin is None or begin >= edge:
            if reader.exists and begin is not None:
                reader.seen_us = edge  # it was made as of a later time, and is now to be made as of this
            return 0
        fresh = PartitionSet(((grain.floor(begin), self.ledger.until(reader.table, edge)),))
        if reader.table.anywhere and seen is None:
            fresh = PartitionSet.of((BEGIN_US, self.ledger.until(reader.table, edge)))
        reader.seen_us = edge
        new = Dated(fresh, at_us)
        if seen is None:
            return self._add(reader, fresh, since, BEGIN_US, new, append=False)
        # A partition without a need reflects all up to `seen`; one with a need remembers its own, older edge.
        told = self._add(reader, fresh, since, seen, new, append=append)
        if reader.table.anywhere:
            older = PartitionSet.of((BEGIN_US, grain.floor(begin)))
            told |= self._add(reader, older, since, seen, new, late=True, append=False)
        elif self.ledger.graph.fluid[name] and grain is not WHOLE:
            # Partitions that read more than their own stretch of time see the new rows too.
            older = self._fluid(reader, seen, edge) - fresh
            told |= self._add(reader, older, since, seen, new, late=True, append=False)
        return told

    def _all_flow(self, name: str) -> bool:
        return all(self.ledger.graph.has_time[way.source] for way in self.ledger.graph.into[name])

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
        for edge in self.ledger.graph.out[table.table.name]:
            if edge.table != table.table.name:
                self.fall_back(self.ledger.tables[edge.table], at_us)

    def fall_back(self, reader: TableState, at_us: int) -> None:
        """Make a table as of the trailing edge of its sources, if it was made as of a later time."""
        name, grain, seen = reader.table.name, reader.table.grain, reader.seen_us
        edge = self.ledger.trailing_edge(name)
        if seen is None or reader.table.leader is not None or (edge is not None and edge >= seen):
            return
        if edge is None:
            self._start_over(reader, at_us)
            return
        later = self.ledger.extent(reader)
        if not reader.table.anywhere:
            later = PartitionSet(((grain.floor(edge), self.ledger.until(reader.table, seen)),))
        if self.ledger.graph.fluid[name] and grain is not WHOLE:
            later |= self._fluid(reader, edge, seen)
        if reader.exists or reader.running is not None:
            self.ledger.admit(reader, later, restated(at_us, self.ledger.number))
        self.ledger.touched.add(name)
        for each in self.ledger.graph.made_with(name):
            table = self.ledger.tables[each]
            table.seen_us = edge
            if table.edge_us is not None and edge < table.edge_us:
                self.move_back(table, edge, at_us)

    def _start_over(self, reader: TableState, at_us: int) -> None:
        """There is nothing left to make a table from, nor what is made from it: as if nothing had ever come. If something
        comes, it is made of that; if not, it is emptied."""
        for name in self.ledger.graph.made_with(reader.table.name):
            table = self.ledger.tables[name]
            if table.exists:
                self.ledger.former.add(name)
            table.start_over()
            self.ledger.touched.add(name)
        for name in self.ledger.graph.made_with(reader.table.name):
            for edge in self.ledger.graph.out[name]:
                below = self.ledger.tables[edge.table]
                if below.table.leader is not None or below is reader:
                    continue
                if (name, edge.table) in self.ledger.graph.optional:  # it does without
                    if below.exists or below.running is not None:
                        self.ledger.admit(below, self.ledger.extent(below), restated(at_us, self.ledger.number))
                        self.ledger.touched.add(edge.table)
                elif self.ledger.graph.has_time[edge.table]:
                    self.fall_back(below, at_us)
                elif below.exists:
                    self._start_over(below, at_us)

    def is_stuck(self, table: TableState) -> bool:
        """Whether something of a table is to be made that cannot be, as of the time up to which it was made: a roll-up that
        went on since then has merged later rows, or a source is less far."""
        name = table.table.name
        if not table.needs or table.seen_us is None or table.running is not None:
            return False
        edges = self.ledger.source_edges(name)
        return edges is None or bool(out_of_reach(edges, table.table.grain, table.seen_us) & table.needs.domain())

    def _fluid(self, reader: TableState, low_us: int, high_us: int) -> PartitionSet:
        """The partitions of a table which read rows of its sources between two edges, though those are not of their own
        stretch of time."""
        name = reader.table.name
        found = EMPTY
        for way in self.ledger.graph.into[name]:
            if way.source != name and self.ledger.graph.holds(way):
                found |= way.map.affected(PartitionSet.of((way.map.cut(low_us), way.map.cut(high_us))))
        return self.ledger.reached(reader, found)

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
        told = _TOLD if is_covered(reader, partitions) else _TOLD | _MORE
        need = Need(
            since,
            edge_us,
            dated.at_us,
            late,
            append,
            self.ledger.number,
            dated.requests,
            parked=dated.parked,
            upto_us=dated.upto_us if late else 0,
            came_us=dated.came_us if late else 0,
            told_us=self.ledger.event_us if late else 0,
            reasons=dated.reasons if late else (),
        )
        if not told & _MORE and not says_already(reader, partitions, need):
            told |= _OTHER
        self.ledger.admit(reader, partitions, need)
        return told
