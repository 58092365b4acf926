"""What a policy of one processor sees of a live warehouse, so that the policies of the simulator decide here too.

Items are tables. A query reads the tables that it names and what these are made from. Updates run on tracks of their own, so that none goes before
a query; with several lanes the work before a query is shared by them. An update that the policy would drop is deferred and merged
into the next: what follows from its memory are least times between two updates of a table.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from math import inf

from penstock.model.graph import Graph
from penstock.model.time import END_US, SECOND_US
from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation


class Steering:
    """Mutable: the working memory of a front door. It reads no clock and draws no lots."""

    def __init__(
        self,
        policy: QueryPolicy,
        graph: Graph,
        cost_s: Mapping[str, float],
        weights: OutcomeWeights,
        lanes: int,
        now_us: int,
    ) -> None:
        self.policy = policy
        self.lanes = lanes
        self._graph = graph
        self._names = list(graph.order)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._since_us = now_us
        costs = [max(1e-3, cost_s.get(name, 0.0)) for name in self._names]
        periods = [graph.periods_us[name] / SECOND_US for name in self._names]
        self._memory = policy.begin(Items.of(costs, periods), weights)
        # What a refresh costs is that of all that a table is made from, as far as it is stale.
        self._refresh_s = list(costs)
        self._situation = QuerySituation(Items.of(self._refresh_s, periods), weights)
        self._open: dict[int, Query] = {}
        self._started_s: dict[int, float] = {}
        self._updates: dict[str, int] = {}
        self._wake_s = policy.every_s or inf

    def admit(
        self,
        number: int,
        tables: Sequence[str],
        now_us: int,
        deadline_us: int,
        run_s: float,
        refresh_s: float,
        weights: OutcomeWeights,
    ) -> Cause | None:
        """Why the policy does not admit a query, or None; `refresh_s` is what must be done before it reads fresh data, 0 if nothing."""
        now = self._at(now_us, weights)
        for one, started in self._started_s.items():
            query = self._open[one]
            query.left_s = max(0.0, query.cost_s - (now - started)) / self.lanes
        own = [self._numbers[name] for name in tables]
        above = {self._numbers[name] for table in tables for name in self._graph.ancestors[table]}
        item, others = (own[0], tuple(above.union(own[1:]) - {own[0]})) if own else (0, ())
        self._refresh_s[item] = refresh_s
        self._situation.items.arrived[item] = int(refresh_s > 0)
        query = Query(number, item, now, self._seconds(deadline_us), run_s, others=others)
        cause = self.policy.admit(self._situation, query, self._memory)
        if cause is None:
            query.left_s = run_s / self.lanes
            self._open[number] = query
            insort(self._situation.waiting, (query.deadline_s, query.id, query))
        else:
            self.policy.ended(self._situation, query, Ending.REJECTED, cause, self._memory)
        return cause

    def started(self, number: int, now_us: int) -> None:
        if number in self._open:
            self._started_s[number] = self._seconds(now_us)

    def worked(self, seconds: float) -> None:
        self._situation.busy_s += seconds / self.lanes

    def ended(self, number: int, now_us: int, ending: Ending | None, weights: OutcomeWeights) -> None:
        """Once for each admitted query; without an ending it was withdrawn, or failed."""
        query = self._open.pop(number, None)
        self._started_s.pop(number, None)
        if query is None:
            return
        self._at(now_us, weights)
        self._situation.waiting.remove((query.deadline_s, query.id, query))
        if ending is not None:
            self.policy.ended(self._situation, query, ending, None, self._memory)

    def due_us(self) -> int | None:
        """When the controller wants to look."""
        return None if self._wake_s == inf else self._since_us + int(self._wake_s * SECOND_US)

    def wake(self, updates: Mapping[str, int], lot: float, now_us: int) -> None:
        """The controller looks: at how queries ended, and at how often each table was updated so far."""
        now = self._at(now_us, self._situation.weights)
        for name, count in updates.items():
            for _ in range(count - self._updates.get(name, count)):
                self.policy.take(self._situation, self._numbers[name], self._memory)
        self._updates = dict(updates)
        self.policy.wake(self._situation, lot, self._memory)
        self._wake_s = now + (self.policy.every_s or inf)

    def periods_us(self) -> dict[str, int]:
        """The least time between two updates of each table whose updates the policy stretches."""
        return {
            self._names[item]: END_US if period == inf else int(period * SECOND_US)
            for item, period in self.policy.stretched(self._memory)
        }

    def _at(self, now_us: int, weights: OutcomeWeights) -> float:
        self._situation.now_s, self._situation.weights = self._seconds(now_us), weights
        return self._situation.now_s

    def _seconds(self, at_us: int) -> float:
        return (at_us - self._since_us) / SECOND_US
