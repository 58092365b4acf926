"""What a query policy sees and answers: one processor, data items that sources renew, queries with firm deadlines
(Qu, Labrinidis, Mossé 2006, Sec. 2 and 3.1).

A policy is a value with pure methods. What it must remember is its memory: made by `begin`, handed to every method, and
plain data, so that it can be stored. It reads no clock and draws no lots: `wake` gets a number between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.outcome import Cause, Ending

# When tables are updated: as data come, as the demand of queries says, only for a query that waits, or in periods that the policy stretches.
Updates = Literal["always", "demand", "on-demand", "periods"]


@dataclass(slots=True, eq=False)
class Query:
    """An asked query. It reads one item and needs all updates of it that have arrived."""

    id: int
    item: int
    arrived_s: float
    deadline_s: float
    cost_s: float
    # Work that is left; back to all of it when an update of its item aborts it.
    left_s: float = 0.0
    # What it reads besides, and what that is made from.
    others: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.left_s = self.cost_s

    @property
    def within_s(self) -> float:
        return self.deadline_s - self.arrived_s


@dataclass(slots=True, eq=False)
class UpdateJob:
    """An update of an item that was taken. When done, the item has all that had arrived up to `version`."""

    item: int
    deadline_s: float
    left_s: float
    version: int


@dataclass(slots=True)
class Items:
    """All data items, by number: what an update of each costs, how often its source renews it, how many renewals have arrived, and up to
    which one it was updated."""

    cost_s: Sequence[float]
    period_s: Sequence[float]
    arrived: list[int]
    applied: list[int]

    @classmethod
    def of(cls, cost_s: Sequence[float], period_s: Sequence[float]) -> Items:
        return cls(cost_s, period_s, [0] * len(cost_s), [0] * len(cost_s))

    def __len__(self) -> int:
        return len(self.cost_s)

    def lag(self, item: int) -> int:
        return self.arrived[item] - self.applied[item]

    def stale(self, item: int) -> bool:
        return self.arrived[item] > self.applied[item]


# Admitted queries in order of their deadlines; the number decides between equal ones.
Waiting = list[tuple[float, int, Query]]


@dataclass(slots=True)
class QuerySituation:
    """Everything a policy may know at one instant; it looks and does not touch."""

    items: Items
    weights: OutcomeWeights = NAIVE
    now_s: float = 0.0
    # Admitted and not ended, also the one that runs.
    waiting: Waiting = field(default_factory=list)
    # Updates that were taken and are not done, also the one that runs, and the work that is left of them.
    updates: list[tuple[float, int, UpdateJob]] = field(default_factory=list)
    update_work_s: float = 0.0
    # Refreshes that were begun for queries or in idle time and are not done (of a policy whose refreshes yield).
    refreshes: dict[int, UpdateJob] = field(default_factory=dict)
    busy_s: float = 0.0


# What runs next: a query, an update that was taken, an item to refresh for a query or in idle time, or nothing.
Next = Query | UpdateJob | int | None


class QueryPolicy(Protocol):
    updates: Updates
    # Whether a stale item is refreshed for the query that reads it.
    refreshes: bool
    # Whether refreshes yield to queries, or go before all of them as updates do.
    yielding: bool

    def begin(self, items: Items, weights: OutcomeWeights) -> Any:
        """A fresh memory."""

    def admit(self, situation: QuerySituation, query: Query, memory: Any) -> Cause | None:
        """None if the query is admitted, else why not."""

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        """Whether an update that arrived becomes a job of its own now."""

    def next(self, situation: QuerySituation, memory: Any) -> Next:
        """What the processor does now; it stops what it did before."""

    def ended(self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: Any) -> None:
        """How an asked query ended; `cause` if it was rejected."""

    def wake(self, situation: QuerySituation, lot: float, memory: Any) -> None:
        """Once in a while (`every_s`)."""

    def stretched(self, memory: Any) -> Iterable[tuple[int, float]]:
        """Items that are not updated whenever something comes, and the least time between two of their updates."""

    every_s: float | None


def refresh_s(situation: QuerySituation, item: int) -> float:
    """What is left of a refresh that brings an item up to date; all of it if something came since it was begun."""
    begun = situation.refreshes.get(item)
    if begun is not None and begun.version == situation.items.arrived[item]:
        return begun.left_s
    return situation.items.cost_s[item]


def promising(situation: QuerySituation) -> Query | None:
    """The admitted query with the earliest deadline (EDF)."""
    return situation.waiting[0][2] if situation.waiting else None
