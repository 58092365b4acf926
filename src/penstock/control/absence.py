"""Inputs that are not there, as opposed to inputs that are there and empty.

A source is *empty* for a partition if it is complete past that time and has no rows in it; then the partition is made
from none. It is *absent* if it has not come so far, while all other sources of the table have. What then happens is the
table's choice: it waits (the default), it goes on without (`Graph.optional`), or that is a failure.
"""

from __future__ import annotations

from datetime import tzinfo

from penstock.control.state import State
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.time import BEGIN_US, format_instant


def absent_inputs(state: State, name: str) -> dict[str, PartitionSet]:
    """The sources that a table misses, each with the partitions for which all others are there and it has not begun."""
    found: dict[str, PartitionSet] = {}
    grain = state.graph.tables[name].grain
    waited = [e for e in state.graph.into[name] if e.source != name and (e.source, name) not in state.graph.optional]
    flowing = [edge for edge in waited if state.graph.holds(edge)]
    edges = {}
    for edge in flowing:
        source = state.tables[edge.source]
        known = source.exists and source.edge_us is not None
        edges[edge.source] = edge.map.carried(source.edge_us) if known and source.edge_us is not None else BEGIN_US
    for edge in waited:
        source = state.tables[edge.source]
        others = [far for other, far in edges.items() if other != edge.source]
        if edge not in flowing or grain is WHOLE:
            if not source.exists and all(state.tables[e.source].exists for e in waited if e is not edge):
                found[edge.source] = EVERYTHING
        elif others and min(others) > BEGIN_US:
            begin = state.begin(name)
            first = max(edges[edge.source], begin if begin is not None else min(others))
            missing = PartitionSet.of((grain.ceil(first), grain.floor(min(others))))
            if missing:
                found[edge.source] = missing
    return found


def absence(source: str, where: PartitionSet, zone: tzinfo) -> str:
    if where == EVERYTHING:
        return f"{source} is absent: nothing of it has come yet"
    first, last = where.intervals[0][0], where.intervals[-1][1]
    span = f"from {format_instant(first, zone)} to {format_instant(last, zone)}"
    return f"{source} is absent {span}, where all other sources are there"


def failed_for_absence(state: State, name: str) -> str | None:
    """What is wrong if a source is absent that must not be."""
    required = state.graph.tables[name].required
    if not required:
        return None
    gone = {source: where for source, where in absent_inputs(state, name).items() if source in required}
    zone = zone_of(state.graph.tables[name].zone)
    return "; ".join(absence(source, where, zone) for source, where in gone.items()) or None
