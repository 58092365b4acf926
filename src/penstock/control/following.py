"""How updates follow the demand: what queries read counts for more, and what nobody reads is updated less often; what comes meanwhile is merged
into the next update, never dropped. Freshness targets and what a query waits for are kept in any case.

What is said here follows from the state alone, so it is the same whenever it is asked.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.graph import Graph
from penstock.model.time import END_US, format_duration
from penstock.queries.demand import Modulation, Modulator
from penstock.scheduling.jobs import ReadyJob

_ON_DEMAND = "it is updated when a query needs it, or when a freshness target would else be missed"


@lru_cache(maxsize=8)
def _modulator(graph: Graph) -> Modulator:
    return Modulator(graph, [name for name, table in graph.tables.items() if table.fixed])


def modulation(state: State, table: TableState) -> Modulation:
    """What demand does to a table, as of the last time that it was told of."""
    if state.updates == "on-demand":
        return Modulation(why=_ON_DEMAND)
    if state.updates == "periods":
        gap_us = _stretched(state, table)
        return Modulation(min_gap_us=gap_us, why=_said(gap_us)) if gap_us else Modulation()
    if state.updates != "demand" or not state.demand.counts:
        return Modulation()
    name = table.table.name
    return _modulator(state.graph).modulation(
        state.demand, name, state.cost_of(name).usual_s, state.demand_us, state.pressure
    )


def _stretched(state: State, table: TableState) -> int:
    """What the policy of queries wants, as far as the targets allow it."""
    name = table.table.name
    wanted = state.stretched.get(name, 0)
    if not wanted or table.table.fixed:
        return 0
    own = _modulator(state.graph)
    return min(wanted, own.longest_gap_us(name, state.cost_of(name).usual_s)) if own.is_targeted(name) else wanted


def _said(gap_us: int) -> str:
    if gap_us >= END_US:
        return "the policy of queries defers its updates until more is read than updated; what comes is merged"
    return f"the policy of queries has it updated at most every {format_duration(gap_us)}; what comes between is merged"


def deferred_until(state: State, table: TableState) -> int | None:
    """No update of the table starts before that; None if one may."""
    if state.updates == "always" or table.last is None or table.table.name in state.awaited:
        return None
    if state.updates == "periods":
        gap_us = _stretched(state, table)
        return min(END_US, table.last.started_us + gap_us) if gap_us else None
    if state.updates == "demand":
        gap_us = modulation(state, table).min_gap_us
        return table.last.started_us + gap_us if gap_us else None
    # On demand only: but targets are promises.
    own = _modulator(state.graph)
    if not own.is_targeted(table.table.name):
        return END_US
    cost = state.cost_of(table.table.name)
    return table.last.started_us + own.longest_gap_us(table.table.name, cost.expected_s(table.amount))


def gives_way_until(state: State, job: ReadyJob) -> int:
    """Until when an update that nobody waits for leaves its track to those that a query waits for: a period at the most,
    and no longer than its target allows. Of a group, the first that cannot wait longer."""
    if state.updates != "demand" or job.awaited_us is not None:
        return 0
    own = _modulator(state.graph)
    until = END_US
    for name in state.graph.grouped_with(job.table):
        last = state.tables[name].last
        if last is None:
            return 0
        until = min(until, job.release_us + state.graph.periods_us[name])
        if own.is_targeted(name):
            until = min(until, last.started_us + own.longest_gap_us(name, job.expected_s))
    return until
