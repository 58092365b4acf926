"""A policy with a controller at the front door: it is asked about every query, told how each ended, and what it wants of updates goes into the
log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from random import random

from penstock.control.events import PeriodsStretched, RefreshRequested
from penstock.control.query_inputs import made_by
from penstock.engine.desk.assessment import KnownState
from penstock.engine.desk.ticket import QueryTicket
from penstock.model.time import SECOND_US
from penstock.queries.choice import Choice, Option, Way
from penstock.queries.contract import OutcomeWeights
from penstock.queries.estimate import RefreshStep
from penstock.queries.live import LivePolicy, Steering
from penstock.queries.outcome import Cause, Ending, QueryOutcome, Satisfaction, ending
from penstock.store.store import Store


class Steered:
    """The front holds its lock around all but `look`, which is the clerk's."""

    def __init__(
        self,
        policy: LivePolicy,
        known: KnownState,
        store: Store,
        weights: OutcomeWeights,
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

    def admit(self, asked: QueryTicket, options: list[Option], now_us: int) -> Cause | None:
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

    def started(self, asked: QueryTicket, now_us: int) -> None:
        if self.steering is not None:
            self.steering.started(asked.number, now_us)

    def worked(self, seconds: float) -> None:
        if self.steering is not None:
            self.steering.worked(seconds)

    def ended(self, asked: QueryTicket, now_us: int, how: Ending | None) -> None:
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


class Refreshing:
    """What queries want refreshed goes into the log: which partitions, and until when."""

    def __init__(self, store: Store, known: KnownState, wake: Callable[[], None]) -> None:
        self._store = store
        self._known = known
        # Tells the process that keeps the tables fresh that the log has something for it.
        self._wake = wake

    def request(self, asked: QueryTicket, steps: tuple[RefreshStep, ...], until_us: int, now_us: int) -> None:
        """Unless somebody needs them as soon already."""
        with self._known.lock:
            state = self._known.now()
            awaited = state.awaited
            if not any(
                step.table not in awaited
                or not step.partitions <= awaited.partitions(step.table)
                or (awaited.until(step.table, step.partitions) or until_us + 1) > until_us
                for step in steps
            ):
                return
            wanted = tuple((made_by(state, step.table).table.name, step.partitions.intervals) for step in steps)
            with self._store.write() as conn:
                self._store.append(conn, [RefreshRequested(now_us, asked.id, wanted, until_us)])
            self._known.now(0.0)
        self._wake()

    def hurry(
        self, asked: QueryTicket, choice: Choice, options: list[Option], steps: tuple[RefreshStep, ...], now_us: int
    ) -> None:
        """Too late for this query; but what is asked for and stale comes before what nobody asks for, and after what is waited for."""
        if not steps or (choice.prospect is not None and choice.prospect.success >= 0.5):
            return
        refresh_us = int(options[-1].wait.mean_s * SECOND_US)
        self.request(asked, steps, max(asked.deadline_us, now_us + 2 * refresh_us), now_us)


# How queries ended: satisfaction, counts and latencies, overall and by profile.

BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass
class Histogram:
    """Latencies in buckets, as Prometheus counts them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds


@dataclass
class Tallies:
    satisfaction: Satisfaction = field(default_factory=Satisfaction)
    latencies: dict[str, Histogram] = field(default_factory=dict)
    # Neither is one of the four outcomes: the query was wrong, or not wanted any more.
    failed: int = 0
    withdrawn: int = 0

    def add(self, asked: QueryTicket, outcome: QueryOutcome, seconds: float) -> None:
        self.satisfaction.add(asked.profile, outcome, asked.contract.weights)
        self.latencies.setdefault(ending(outcome).value, Histogram()).add(seconds)
