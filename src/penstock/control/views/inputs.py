"""Rows that are there but not used yet: those of a source that is ahead of another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from penstock.control.state import State
from penstock.model.grain import WHOLE, Grain, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.time import BEGIN_US, END_US, SECOND_US, format_instant


@dataclass(frozen=True, slots=True)
class Ahead:
    """A source of a table that is further than the table can go now: its rows between two times wait for other sources."""

    table: str
    source: str
    from_us: int
    # Up to when it is complete: what is later waits for its own feed.
    to_us: int
    waits_for: tuple[str, ...]
    # Up to when the slowest of these is complete; None if it is not at all.
    upto_us: int | None


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """How many rows of a source wait, and for what."""

    table: str
    source: str
    rows: int
    # Else it is an estimate.
    exact: bool
    waits_for: tuple[str, ...]
    upto_us: int | None

    def said(self, zone: tzinfo) -> str:
        count = f"{'' if self.exact else 'about '}{self.rows:,} row{'s' * (self.rows != 1)}"
        upto = "of which nothing is complete yet"
        if self.upto_us is not None:
            upto = f"complete up to {format_instant(self.upto_us // SECOND_US * SECOND_US, zone)}"
        verb = "waits" if self.rows == 1 else "wait"
        return f"{count} of {self.source} {verb} for {' and '.join(self.waits_for)}, {upto}"


def ahead(state: State, names: Iterable[str]) -> list[Ahead]:
    """For each of these tables the sources whose rows wait for others. What waits for its own feed (lateness, a marker) or
    for the table's next update is not among them."""
    return [one for name in names for one in _ahead(state, name)]


def _ahead(state: State, name: str) -> list[Ahead]:
    graph = state.graph
    edges = [
        e for e in graph.into[name] if e.source != name and graph.holds(e) and (e.source, name) not in graph.optional
    ]
    if len(edges) < 2:
        return []
    far: dict[str, int] = {}
    for edge in edges:
        source = state.tables[edge.source]
        far[edge.source] = (
            edge.map.carried(source.edge_us) if source.exists and source.edge_us is not None else BEGIN_US
        )
    slowest = min(far.values())
    waited = tuple(source for source, upto in far.items() if upto == slowest)
    trailing = state.trailing_edge(name)
    found = []
    for edge in edges:
        if far[edge.source] > slowest:
            cut = BEGIN_US if trailing is None else edge.map.cut(trailing)
            upto = None if slowest <= BEGIN_US else min(state.tables[one].edge_us or 0 for one in waited)
            found.append(Ahead(name, edge.source, cut, state.tables[edge.source].edge_us or END_US, waited, upto))
    return found


def never_made(state: State, name: str) -> str | None:
    """Why a table has not been made though nothing of it is pending; None if it has."""
    table, graph = state.tables[name], state.graph
    if table.exists or table.table.is_base or table.needs or table.running is not None:
        return None
    waited = [e for e in graph.into[name] if e.source != name and (e.source, name) not in graph.optional]
    missing = [edge.source for edge in waited if not state.tables[edge.source].exists]
    if missing:
        return f"nothing of {' and '.join(missing)} has come yet"
    vague = [edge.source for edge in waited if graph.holds(edge) and state.tables[edge.source].edge_us is None]
    if vague:
        return f"{' and '.join(vague)} cannot say up to when it is complete: no marker has come"
    trailing = state.trailing_edge(name)
    if trailing is None:
        return None
    steps = [edge for edge in waited if _is_uncut_there(state, edge.source, trailing) and graph.holds(edge)]
    if steps:
        one = steps[0]
        others = [edge.source for edge in waited if graph.holds(edge) and edge is not one]
        return (
            f"{one.source} is ahead of {' and '.join(others)} and has whole partitions of a {_grain(one.map.source)} only: "
            f"the first is used when the others have come to its end"
        )
    return "its sources have no rows yet up to the time that all of them have reached"


def _is_uncut_there(state: State, source: str, trailing_us: int) -> bool:
    table = state.tables[source]
    return state.graph.is_rolled_up(source) and table.edge_us is not None and table.edge_us > trailing_us


def _grain(grain: Grain) -> str:
    return "whole table" if grain is WHOLE else str(grain)


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
