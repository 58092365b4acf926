"""What a query touches, seen from the state: is it settled, what has to be done before it is fresh, and how long that takes.

A partition without pending work reflects everything that was published. So if nothing is pending for the partitions that a
query touches, nor for any that these are made from, the newest snapshot is a consistent state for this query, whatever
goes on in the rest of the warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from penstock.control.amounts import pending_bytes
from penstock.control.state import State
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.time import SECOND_US
from penstock.queries.desk import TableOutlook
from penstock.queries.estimate import Estimate, RefreshStep, refresh_chain
from penstock.requests.needs import partitions_of
from penstock.requests.tablestate import TableState

Touched = Mapping[str, PartitionSet]
# What an update is thought to take that has run longer than it should have.
_SOON_S = 0.1


def made_by(state: State, name: str) -> TableState:
    """The table whose updates make it: itself, or the one that it is made together with."""
    table = state.tables[name]
    return table if table.table.leader is None else state.tables[table.table.leader]


def lineage(state: State, tables: Iterable[str]) -> list[str]:
    """The tables and all that they are made from."""
    return list(dict.fromkeys(one for name in tables for one in (name, *state.graph.ancestors[name])))


def _unmade(table: TableState, *, held: bool) -> PartitionSet:
    """Partitions that do not reflect what was published (what runs is not done); with those that the table's policy is not
    to make again, or without."""
    found = (table.lacks if held else table.needs.domain()) if table.needs or table.held else EMPTY
    if table.running is not None and table.running.job.kind != "upkeep":
        found |= partitions_of(table.running.job.pieces)
    return found


def is_settled(state: State, touched: Touched) -> bool:
    """Whether the newest snapshot is one state of its sources, as far as the query can see."""
    return not _steps(state, touched, arrived=False)


def to_refresh(state: State, touched: Touched) -> tuple[RefreshStep, ...]:
    """The updates after which all that has arrived is in what the query touches, sources first."""
    return _steps(state, touched, arrived=True)


def _steps(state: State, touched: Touched, *, arrived: bool) -> tuple[RefreshStep, ...]:
    def stale(name: str) -> PartitionSet:
        table = made_by(state, name)
        if not table.table.is_base:
            return _unmade(table, held=not arrived)
        if not arrived:
            return EMPTY  # what is not loaded was not published
        return EVERYTHING if table.files or table.needs or _is_loading(table) else EMPTY

    if not any(stale(name) for name in lineage(state, touched)):
        return ()
    return refresh_chain(state.graph, touched, stale)


def _is_loading(table: TableState) -> bool:
    return table.running is not None and table.running.job.kind == "load"


def not_loaded(state: State, tables: Iterable[str]) -> dict[str, list[int]]:
    """When the updates arrived that are not loaded, of each of the base tables behind these tables."""
    bases = {base for name in tables for base in state.graph.origins[name]}
    arrivals: dict[str, list[int]] = {}
    for base in sorted(bases):
        table = state.tables[base]
        arrivals[base] = [file.arrived_us for file in table.files.values()]
        if table.running is not None:
            arrivals[base] += [file.arrived_us for file in table.running.job.files]
    return arrivals


def outlook(state: State, name: str, now_us: int) -> TableOutlook:
    """What an update of a table takes, and when the one that runs will probably end."""
    table = made_by(state, name)
    running = table.running
    until = None
    if running is not None:
        until = max(now_us + int(_SOON_S * SECOND_US), running.started_us + int(running.job.expected_s * SECOND_US))
    return TableOutlook(_cost(state, table), until)


def chain_of(state: State, steps: tuple[RefreshStep, ...]) -> tuple[tuple[str, bool], ...]:
    """The tables of the steps, and whether it is enough to wait for what runs."""
    refreshed = {step.table for step in steps}
    found: dict[str, bool] = {}
    for step in steps:
        table = made_by(state, step.table)
        name = table.table.name
        found[name] = found.get(name, True) and _is_under_way(state, table, refreshed)
    return tuple(found.items())


def busy_until(state: State, now_us: int) -> tuple[int, ...]:
    """When the tracks that are busy will probably be free."""
    soon = now_us + int(_SOON_S * SECOND_US)
    return tuple(max(soon, one.started_us + int(one.job.expected_s * SECOND_US)) for one in state.on_tracks.values())


def _is_under_way(state: State, table: TableState, refreshed: Set[str]) -> bool:
    """Whether it is enough to wait for the update that runs: it has all that is there, and nothing that it reads is refreshed."""
    if table.running is None or table.needs or table.files:
        return False
    name = table.table.name
    return not any(edge.source in refreshed and edge.source != name for edge in state.graph.into[name])


def _cost(state: State, table: TableState) -> Estimate:
    cost = state.cost_of(table.table.name)
    usual = cost.x / cost.weight if cost.weight else 0.0
    expected = cost.expected_s(max(pending_bytes(state, table), usual))
    return Estimate(expected, max(cost.spread_s, 0.2 * expected))


def complete_after(state: State, steps: tuple[RefreshStep, ...], tables: Iterable[str], now_us: int) -> int | None:
    """Up to which time the tables will be complete after the steps, as far as one can guess: the newest file that waits
    brings its base table as close to its arrival as the last one did."""
    guessed: dict[str, int] = {}
    refreshed = {step.table for step in steps}
    found: list[int] = []
    for name in tables:
        if not state.graph.has_time[name]:
            continue
        for base in state.graph.origins[name]:
            if state.graph.has_time[base] and base not in guessed:
                edge = _edge_after(state.tables[base], base in refreshed)
                if edge is None:
                    return None
                guessed[base] = edge
        own = state.tables[name].edge_us
        behind = [guessed[base] for base in state.graph.origins[name] if base in guessed]
        found.append(min(behind) if name in refreshed or own is None else own)
    return min(found, default=now_us)


def _edge_after(table: TableState, refreshed: bool) -> int | None:
    files = list(table.files.values())
    if table.running is not None:
        files += table.running.job.files
    if not refreshed or not files or table.edge_us is None or table.last_arrival_us is None:
        return table.edge_us
    newest = max(file.arrived_us for file in files)
    return max(table.edge_us, newest - (table.last_arrival_us - table.edge_us))
