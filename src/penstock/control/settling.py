"""What is still on its way through the graph to a table.

A late change reaches the bottom of a diamond by several paths. The bottom waits until it has come by all of them, so
that it is updated once and not once per path. It only waits for changes that were committed no later than the oldest
one that it has itself: so it is updated at most once per change, and a stream of late changes never holds it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.partitions import EMPTY, EVERYTHING, IntervalMap, PartitionSet
from penstock.model.tables import Edge
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.needs import Need, Piece


class Moving:
    """Partitions that are going to change, with the commit time of the oldest change on its way to each."""

    __slots__ = ("by", "since")

    def __init__(self) -> None:
        self.since: IntervalMap[int] = IntervalMap(min)
        # The tables that have work to do before it comes to rest.
        self.by: set[str] = set()


class Settling:
    """One look at the state; what is found of a table is kept for its other readers. With `published_only` it is about
    what was published and is not everywhere yet, else about what is worth waiting for."""

    def __init__(self, state: State, *, published_only: bool = False) -> None:
        self._state = state
        self._published_only = published_only
        self._known: dict[tuple[str, bool], Moving] = {}

    def before(self, table: TableState, edge_us: int | None) -> Moving:
        """The partitions of a table whose inputs, as far as they are used before an edge, are going to change. For one
        that reads more than its own stretch of time, new rows at the edge are such a change too."""
        fluid = self._state.graph.fluid[table.table.name]
        return self._inputs(table, lambda _: fluid, edge_us)

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
        if table.table.is_base if self._published_only else table.failed:
            found = Moving()  # of a failed table nothing will come, so nobody waits for it
        else:
            found = self._inputs(table, lambda _: any_change)
            for start, end, need in _work(table, self._published_only):
                if need.late or any_change:
                    found.since.add(PartitionSet(((start, end),)), need.at_us)
                    found.by.add(name)
            if name in state.graph.chained and found.since:
                # Whatever follows the first changed partition changes too.
                first = next(found.since.pieces())[0]
                found.since.add(PartitionSet(((first, END_US),)), min(at for _, _, at in found.since.pieces()))
        self._known[name, any_change] = found
        return found


def _work(table: TableState, held: bool) -> Iterable[tuple[int, int, Need]]:
    yield from table.needs.pieces()
    if held:  # nobody waits for what nobody is going to do
        yield from table.held.pieces()
    if table.running is not None:
        for piece in table.running.job.pieces:
            yield piece.start_us, piece.end_us, piece.need


def waiting(state: State, table: TableState, pieces: Iterable[Piece]) -> tuple[PartitionSet, frozenset[str]]:
    """Which of a table's late pieces wait for inputs that are themselves about to change, and for which tables."""
    late = [piece for piece in pieces if piece.need.late]
    if not late:
        return EMPTY, frozenset()
    moving = Settling(state).before(table, table.seen_us)
    if not moving.since:
        return EMPTY, frozenset()
    found = [
        (start, end)
        for piece in late
        for start, end, at_us in moving.since.within(PartitionSet(((piece.start_us, piece.end_us),)))
        if at_us <= piece.need.at_us
    ]
    return PartitionSet.of(*found), frozenset(moving.by) if found else frozenset()
