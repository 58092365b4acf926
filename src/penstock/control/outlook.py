"""What policies may know of all tables, ready or not: what an update usually costs, and when the next batch is due."""

from __future__ import annotations

from math import log2

from penstock.control.state import State

# Costs are told in steps of a fifth, so that plans made from them do not change with every finished job. A step is a
# function of the cost alone: the same state gives the same plans, however it was reached.
_STEPS_PER_DOUBLING = 4


class LearnedOutlook:
    """From the finished jobs of each table."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._told: dict[str, float] = {}
        self.version = 0

    def period_cost_s(self, table: str) -> float:
        if table not in self._told:
            self._told[table] = self._cost_s(table)
        return self._told[table]

    def start_up_s(self, table: str) -> float:
        """What an update takes however little it has to do."""
        return min(self._state.tables[table].cost.alpha_s, self.period_cost_s(table))

    def next_release_us(self, table: str) -> int | None:
        last = self._state.tables[table].last_arrival_us
        return None if last is None else last + self._state.graph.periods_us[table]

    def declared(self) -> None:
        """Tables may be others than before."""
        self._told.clear()
        self.version += 1

    def finished(self, table: str) -> None:
        """An update of a table ended, so that its cost is known better."""
        if table in self._told and table in self._state.tables:
            cost = self._cost_s(table)
            if cost != self._told[table]:
                self._told[table] = cost
                self.version += 1

    def _cost_s(self, table: str) -> float:
        cost = self._state.tables[table].cost
        usual = cost.x / cost.weight if cost.weight else 0.0
        return float(2.0 ** (round(log2(cost.expected_s(usual)) * _STEPS_PER_DOUBLING) / _STEPS_PER_DOUBLING))
