"""What policies may know of all tables, ready or not: what an update usually costs, and when the next batch is due."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Protocol

from penstock.control.state import State
from penstock.model.cost import CostModel, step_s
from penstock.model.graph import Graph


class KnowsCosts(Protocol):
    """As much of the state as costs are learned from."""

    @property
    def graph(self) -> Graph: ...

    def cost_of(self, name: str) -> CostModel: ...


class LearnedCosts:
    """What finished jobs say of the costs of each table."""

    def __init__(self, state: KnowsCosts) -> None:
        self._state = state
        # What an update with a period of data usually takes, and what at most.
        self._told: dict[str, tuple[float, float]] = {}
        # The version that the last change of a table's cost made, the oldest of these first; and that of all tables.
        self._changed: dict[str, int] = {}
        self._declared = 0
        self.version = self.longest_version = 0

    def period_cost_s(self, table: str) -> float:
        return self._known(table)[0]

    def longest_s(self, table: str) -> float:
        """What an update takes at most, as far as can be known."""
        return self._known(table)[1]

    def _known(self, table: str) -> tuple[float, float]:
        table = self._state.graph.updated_as[table]
        if table not in self._told:
            self._told[table] = self._costs_s(table)
        return self._told[table]

    def start_up_s(self, table: str) -> float:
        """What an update takes however little it has to do."""
        return min(self._state.cost_of(table).alpha_s, self.period_cost_s(table))

    def changed_since(self, version: int) -> Iterable[str] | None:
        if version < self._declared:
            return None
        return list(takewhile(lambda name: self._changed[name] > version, reversed(self._changed)))

    def next_release_us(self, table: str) -> int | None:
        return None

    def declared(self) -> None:
        """Tables may be others than before."""
        self._told.clear()
        self._changed.clear()
        self.version += 1
        self._declared = self.version

    def finished(self, table: str) -> None:
        """An update of a table ended, so that its cost is known better."""
        if table in self._told and table in self._state.graph.tables:
            cost = self._costs_s(table)
            self.longest_version += cost[1] != self._told[table][1]
            if cost[0] != self._told[table][0]:
                self.version += 1
                self._changed.pop(table, None)
                self._changed[table] = self.version
            self._told[table] = cost

    def _costs_s(self, table: str) -> tuple[float, float]:
        cost = self._state.cost_of(table)
        return step_s(cost.usual_s), cost.longest_s


class LearnedOutlook(LearnedCosts):
    """The same, and when the next batch of each table is due."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._tables = state

    def next_release_us(self, table: str) -> int | None:
        last = self._tables.tables[table].last_arrival_us
        return None if last is None else last + self._tables.graph.periods_us[table]
