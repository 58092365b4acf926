"""A policy with a controller at the front door: it is asked about every query, told how each ended, and what it wants of updates goes into the
log."""

from __future__ import annotations

from collections.abc import Callable
from random import random

from penstock.control.events import PeriodsStretched
from penstock.engine.desk.known import KnownState
from penstock.engine.desk.ticket import Asked
from penstock.queries.choice import Option, Way
from penstock.queries.contract import Weights
from penstock.queries.live import LivePolicy
from penstock.queries.outcome import Cause, Ending
from penstock.queries.steering import Steering
from penstock.store.store import Store


class Steered:
    """The front holds its lock around all but `look`, which is the clerk's."""

    def __init__(
        self,
        policy: LivePolicy,
        known: KnownState,
        store: Store,
        weights: Weights,
        lanes: int,
        wake: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._known = known
        self._store = store
        self._weights = weights
        self._lanes = lanes
        self._wake = wake
        self._told: dict[str, int] = {}
        # With the first query: then there is a graph.
        self.steering: Steering | None = None

    def admit(self, asked: Asked, options: list[Option], now_us: int) -> Cause | None:
        if self.steering is None:
            self.steering = self._known.looking(
                lambda state: Steering(
                    self._policy.policy,
                    state.graph,
                    {name: state.cost_of(name).expected_s(table.amount) for name, table in state.tables.items()},
                    self._weights,
                    self._lanes,
                    now_us,
                )
            )
        run_s = min((option.run.mean_s for option in options), default=0.0)
        refresh_s = max((one.wait.mean_s for one in options if one.way in (Way.REFRESH, Way.WAIT)), default=0.0)
        weights = asked.contract.weights
        return self.steering.admit(
            asked.number, list(asked.touched), now_us, asked.deadline_us, run_s, refresh_s, weights
        )

    def started(self, asked: Asked, now_us: int) -> None:
        if self.steering is not None:
            self.steering.started(asked.number, now_us)

    def worked(self, seconds: float) -> None:
        if self.steering is not None:
            self.steering.worked(seconds)

    def ended(self, asked: Asked, now_us: int, how: Ending | None) -> None:
        if self.steering is not None:
            self.steering.ended(asked.number, now_us, how, asked.contract.weights)

    def due_us(self) -> int | None:
        return None if self.steering is None else self.steering.due_us()

    def look(self, now_us: int) -> None:
        """Let the controller look, and tell the log if it wants other periods now."""
        if self.steering is None:
            return
        updates = self._known.looking(lambda state: {name: one.counts.updates for name, one in state.tables.items()})
        self.steering.wake(updates, random(), now_us)
        periods = self.steering.periods_us()
        if periods != self._told:
            self._told = periods
            with self._store.write() as conn:
                self._store.append(conn, [PeriodsStretched(now_us, tuple(sorted(periods.items())))])
            self._wake()
