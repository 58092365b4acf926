"""The ledger: what is known of all tables, and which of their partitions must be made again.

The invariant that everything rests on: a partition of a derived table that has no need (waiting to be done, or held by
the table's policy) and is not in a running job reflects all publications so far, and all rows of its sources before
`seen_us`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.model.cost import CostModel
from penstock.model.freshness import SourceEdge, trailing_edge
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import ALL, NEW, Table
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.needs import Need, partitions_of
from penstock.requests.tablestate import TableState


@dataclass(slots=True)
class UserRequest:
    number: int
    at_us: int
    table: str
    # The partitions that were asked for, as far as the table had them; and those that were dropped again.
    wanted: PartitionSet = EMPTY
    dropped: PartitionSet = EMPTY
    reason: str = ""
    downstream: bool = True
    deadline_us: int | None = None
    # The tables that have work to do for it.
    open: set[str] = field(default_factory=set)
    # Partitions made for it, by table, and in how many updates.
    made: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    finished_us: int | None = None
    cancelled_us: int | None = None
    # Something of it is held back by the policy of a table.
    held: bool = False


class Ledger:
    """The tables, their needs, and the requests of users behind these."""

    def __init__(self) -> None:
        self.graph = Graph((), ())
        self.tables: dict[str, TableState] = {}
        self.snapshot = 0
        # What users asked for: all that is open, and the last that were done.
        self.requests: dict[int, UserRequest] = {}
        # The last event that was folded, and the one that is being folded.
        self.applied = 0
        self.number = 0
        # When that was.
        self.event_us = 0
        # Tables whose readiness an event may have changed.
        self.touched: set[str] = set()
        # Who looks at what is required, before it is.
        self.watch: Callable[[TableState, PartitionSet, Need], None] | None = None
        # Views whose rows, in the catalogue, are those of an earlier declaration, or made from rows that are gone.
        self.former: set[str] = set()

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
                        table.is_origin or table.exact_time,
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

    def cost_of(self, name: str) -> CostModel:
        """What updates of a table take; those of a group are known of the group, and those of a flow of its leader."""
        return self.tables[self.graph.updated_as[name]].cost

    def touch(self, name: str) -> None:
        """Whether a table may run depends on those with which it is made."""
        self.touched.add(name)
        if name in self.graph.tables:
            leader = self.graph.tables[name].leader
            self.touched.update((*self.graph.followers.get(name, ()), *([leader] if leader is not None else [])))

    # Needs

    def reason(self, table: TableState, partitions: PartitionSet) -> None:
        """Count a reason to make partitions, or none of them if a running job makes them anyway."""
        table.counts.requests += 1
        table.counts.merged += is_covered(table, partitions)

    def admit(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        """A need of a table, which it takes up or holds, as its policy is."""
        if need.parked or not self.follows(table, need):
            self._hold(table, partitions, need)
            return
        running = table.running
        if running is not None and table.table.overrun != "queue" and running.job.makes_anew:
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
        if any(reason in policy for reason in need.reasons):
            return True
        return any(self.requests[number].reason in policy for number in need.requests if number in self.requests)

    def require(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        """A need that is to be done, and with it what was held of the same partitions: the job will see that, too."""
        if self.watch is not None:
            self.watch(table, partitions, need)
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
            table.counts.held += 1
            for number in need.requests:
                if number in self.requests:
                    self.requests[number].held = True

    def _opened(self, table: TableState, need: Need) -> None:
        for number in need.requests:
            request = self.requests.get(number)
            if request is not None and request.finished_us is None:
                request.open.add(table.table.name)


def is_covered(table: TableState, partitions: PartitionSet) -> bool:
    """Whether all of these are to be made already."""
    if not partitions or not table.needs:
        return not partitions
    found = table.needs.within(partitions)
    return not partitions - PartitionSet.of(*((start, end) for start, end, _ in found))


def says_already(table: TableState, partitions: PartitionSet, need: Need) -> bool:
    """Whether the pending needs of these partitions are about the same changes, requests and reasons."""
    return all(
        need.at_us >= known.at_us
        and need.newest_us <= known.newest_us
        and {*need.requests} <= {*known.requests}
        and {*need.reasons} <= {*known.reasons}
        for _, _, known in table.needs.within(partitions)
    )
