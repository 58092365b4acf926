"""How updates follow the demand: what queries read counts for more, and what nobody reads is updated less often; what comes meanwhile is merged
into the next update, never dropped. Freshness targets and what a query waits for are kept in any case.

What is said here follows from the state alone, so it is the same whenever it is asked.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.control.events import DemandSeen, PeriodsStretched
from penstock.model.graph import Graph
from penstock.model.time import END_US, SECOND_US, format_duration
from penstock.queries.demand import Demand, Modulation, Modulator
from penstock.queries.situation import Updates
from penstock.requests.ledger import Ledger
from penstock.requests.tablestate import TableState
from penstock.requests.waits import QueryWaits
from penstock.scheduling.jobs import ReadyJob

_ON_DEMAND = "it is updated when a query needs it, or when a freshness target would else be missed"


@lru_cache(maxsize=8)
def _modulator(graph: Graph) -> Modulator:
    return Modulator(graph, [name for name, table in graph.tables.items() if table.fixed])


def _said(gap_us: int) -> str:
    if gap_us >= END_US:
        return "the policy of queries defers its updates until more is read than updated; what comes is merged"
    return f"the policy of queries has it updated at most every {format_duration(gap_us)}; what comes between is merged"


class QueryDemand:
    """What queries read, as of when that was last told, and how busy the tracks were until then."""

    def __init__(self, ledger: Ledger, waits: QueryWaits) -> None:
        self.ledger, self.waits = ledger, waits
        self.updates: Updates = "always"
        self.kept: frozenset[str] = frozenset()
        self.forget()

    def forget(self) -> None:
        """A new process begins: what the last one saw is over."""
        self.demand = Demand()
        self.demand_us = 0
        self.pressure = 0.0
        # How long updates took since then.
        self.worked_s = 0.0
        # Least times between updates, as a policy of queries wants them.
        self.stretched: dict[str, int] = {}

    def stretch(self, event: PeriodsStretched) -> None:
        tables = self.ledger.tables
        before, self.stretched = self.stretched, {name: us for name, us in event.periods if name in tables}
        self.ledger.touched.update(name for name in before.keys() | self.stretched.keys() if name in tables)

    def seen(self, event: DemandSeen, tracks: int) -> None:
        for name, count in event.reads:
            if name in self.ledger.tables:
                self.demand.read(self.ledger.graph, [name], event.at_us, count)
        passed_s = (event.at_us - self.demand_us) / SECOND_US
        if self.demand_us and passed_s > 0:
            # One price for both: what queries take, updates cannot have.
            self.pressure = min(1.0, self.worked_s / (passed_s * tracks) + event.busy)
        self.demand_us, self.worked_s = event.at_us, 0.0

    def modulation(self, table: TableState) -> Modulation:
        """What demand does to a table, as of the last time that it was told of."""
        if self.updates == "on-demand":
            return Modulation(why=_ON_DEMAND)
        if self.updates == "periods":
            gap_us = self._gap_us(table)
            return Modulation(min_gap_us=gap_us, why=_said(gap_us)) if gap_us else Modulation()
        if self.updates != "demand" or not self.demand.counts:
            return Modulation()
        name = table.table.name
        return _modulator(self.ledger.graph).modulation(
            self.demand, name, self.ledger.cost_of(name).usual_s, self.demand_us, self.pressure
        )

    def _gap_us(self, table: TableState) -> int:
        """What the policy of queries wants, as far as the targets allow it."""
        name = table.table.name
        wanted = self.stretched.get(name, 0)
        if not wanted or table.table.fixed:
            return 0
        own = _modulator(self.ledger.graph)
        return (
            min(wanted, own.longest_gap_us(name, self.ledger.cost_of(name).usual_s))
            if own.is_targeted(name)
            else wanted
        )

    def deferred_until(self, table: TableState) -> int | None:
        """No update of the table starts before that; None if one may."""
        name = table.table.name
        if self.updates == "always" or table.last is None or name in self.waits or name in self.kept:
            return None
        if self.updates == "periods":
            gap_us = self._gap_us(table)
            return min(END_US, table.last.started_us + gap_us) if gap_us else None
        if self.updates == "demand":
            gap_us = self.modulation(table).min_gap_us
            return table.last.started_us + gap_us if gap_us else None
        # On demand only: but targets are promises.
        own = _modulator(self.ledger.graph)
        if not own.is_targeted(table.table.name):
            return END_US
        cost = self.ledger.cost_of(table.table.name)
        return table.last.started_us + own.longest_gap_us(table.table.name, cost.expected_s(table.amount))

    def gives_way_until(self, job: ReadyJob) -> int:
        """Until when an update that nobody waits for leaves its track to those that a query waits for: a period at the most,
        and no longer than its target allows. Of a group, the first that cannot wait longer."""
        if self.updates != "demand" or job.awaited_us is not None or job.table in self.kept:
            return 0
        own = _modulator(self.ledger.graph)
        until = END_US
        for name in self.ledger.graph.grouped_with(job.table):
            last = self.ledger.tables[name].last
            if last is None:
                return 0
            until = min(until, job.release_us + self.ledger.graph.periods_us[name])
            if own.is_targeted(name):
                until = min(until, last.started_us + own.longest_gap_us(name, job.expected_s))
        return until
