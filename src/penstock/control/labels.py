"""What a version of a table contains: its label, by which consistent reads find versions that agree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.closure import descendants
from penstock.requests.in_flight import InFlight
from penstock.requests.tablestate import TableState

if TYPE_CHECKING:
    from penstock.control.state import State


def labels_below(state: State, sources: Iterable[str]) -> dict[str, dict[str, int]]:
    """What the newest versions of these tables, and of those below, contain if nothing comes to them any more, as what was made
    again is the same as before: all that is published. A table that reads itself is one of them: nothing follows in it, either."""
    graph = state.graph
    below = {
        name for source in sources for name in descendants(source, lambda one: (edge.table for edge in graph.out[one]))
    }
    settling = InFlight(state, published_only=True)
    found: dict[str, dict[str, int]] = {}
    for name in sorted(below, key=graph.rank.__getitem__):
        table = state.tables[name]
        if not table.exists or table.lacks or table.running is not None or table.anew:
            continue
        complete_us = table.edge_us if graph.has_time[name] else END_US
        label = reflected(state, table, EMPTY, complete_us, settling)
        if label is not None and (dict(label) != table.reflects or not table.consistent):
            found[name] = dict(label)
    return found


def reflected(
    state: State, table: TableState, made: PartitionSet, complete_us: int | None, settling: InFlight | None = None
) -> tuple[tuple[str, int], ...] | None:
    """Which publication of each base table a table contains up to its edge, when these partitions are made. That is the current one of each, because
    a partition without a need reflects all publications; except where a part of the table before that edge is left for
    later, or a change is still on its way to it through the graph."""
    if complete_us is None:
        return None
    left = _left(state, table, made)
    if left.within(BEGIN_US, complete_us) or _goes_without(state, table.table.name, complete_us):
        return None
    settling = settling or InFlight(state, published_only=True)
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
            if behind and not table.table.is_origin:
                return True
    return False


def _left(state: State, table: TableState, made: PartitionSet) -> PartitionSet:
    """What of a table still has to be made after a job. In one that reads itself, also what follows from the job."""
    left = table.lacks - made
    for edge in state.graph.into[table.table.name]:
        if edge.source == edge.table:
            left |= edge.map.affected(made) - made
    return left
