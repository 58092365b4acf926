"""How updates follow the demand: what queries read counts for more, and what nobody reads is updated less often; what comes meanwhile is merged
into the next update, never dropped. Freshness targets and what a query waits for are kept in any case.

What is said here follows from the state alone, so it is the same whenever it is asked.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.graph import Graph
from penstock.model.time import END_US
from penstock.queries.demand import Modulation, Modulator


@lru_cache(maxsize=8)
def _modulator(graph: Graph) -> Modulator:
    return Modulator(graph, [name for name, table in graph.tables.items() if table.fixed])


def modulation(state: State, table: TableState) -> Modulation:
    """What demand does to a table, as of the last time that it was told of."""
    if state.updates != "demand" or not state.demand.counts:
        return Modulation()
    cost_s = table.cost.expected_s(table.cost.x / table.cost.weight if table.cost.weight else 0.0)
    name = table.table.name
    return _modulator(state.graph).modulation(state.demand, name, cost_s, state.demand_us, state.pressure)


def deferred_until(state: State, table: TableState) -> int | None:
    """No update of the table starts before that; None if one may."""
    if state.updates == "always" or table.last is None or table.table.name in state.awaited:
        return None
    if state.updates == "demand":
        gap_us = modulation(state, table).min_gap_us
        return table.last.started_us + gap_us if gap_us else None
    # On demand only: but targets are promises.
    own = _modulator(state.graph)
    if not own.is_targeted(table.table.name):
        return END_US
    return table.last.started_us + own.longest_gap_us(table.table.name, table.cost.expected_s(table.amount))
