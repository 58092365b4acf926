"""What a policy of queries sees and answers: queries with firm deadlines, tables that are refreshed for them, lanes on which queries run, and tracks
on which refreshes do (Qu, Labrinidis, Mossé 2006, Sec. 2 and 3.1, whose single processor is the special case of one core for both).

A policy is a value with pure methods. What it must remember is its memory: made by `begin`, handed to every method, and plain data. It reads no clock
and draws no lots: `wake` gets a number between 0 and 1. All times of work that it sees are predictions.

Tables are *items*, by number. A situation of one processor is the class here; a warehouse with lanes and tracks is `queries.desk.DeskSituation`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Cause, Ending

# When tables are updated: as data come, as the demand of queries says, only for a query that waits, or in periods that the policy stretches.
Updates = Literal["always", "demand", "on-demand", "periods"]


@dataclass(slots=True, eq=False)
class Query:
    """A query that was asked. It needs all updates of what it reads that had arrived, but for `lag` of each."""

    id: int
    item: int
    arrived_s: float
    deadline_s: float
    # How long it runs, as predicted.
    cost_s: float
    # Work that is left; back to all of it when an update of its item aborts it.
    left_s: float = 0.0
    # What it reads besides, and what all that is made from.
    others: tuple[int, ...] = ()
    spread_s: float = 0.0
    weights: OutcomeWeights = NAIVE
    lag: int = 0
    # Queries that have the same one here are answered by one run.
    same: Hashable = None
    profile: str = "default"

    def __post_init__(self) -> None:
        self.left_s = self.cost_s

    @property
    def within_s(self) -> float:
        return self.deadline_s - self.arrived_s

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.item, *self.others)


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
    spread_s: Sequence[float] = ()

    @classmethod
    def of(cls, cost_s: Sequence[float], period_s: Sequence[float], spread_s: Sequence[float] = ()) -> Items:
        return cls(cost_s, period_s, [0] * len(cost_s), [0] * len(cost_s), spread_s)

    def __len__(self) -> int:
        return len(self.cost_s)

    def lag(self, item: int) -> int:
        return self.arrived[item] - self.applied[item]

    def stale(self, item: int) -> bool:
        return self.arrived[item] > self.applied[item]


# Admitted queries in order of their deadlines; the number decides between equal ones.
Waiting = list[tuple[float, int, Query]]

# An update before a query is fresh: of which item, and whether the one that runs already is enough.
Step = tuple[int, bool]


@dataclass(slots=True)
class QuerySituation:
    """Everything a policy may know at one instant; it looks and does not touch. One processor, which can stop what it does at any time."""

    items: Items
    now_s: float = 0.0
    # Admitted and not ended, also those that run.
    waiting: Waiting = field(default_factory=list)
    # Those that run and cannot be interrupted.
    running: Collection[int] = ()
    # Updates that were taken and are not done, also the one that runs, and the work that is left of them.
    updates: list[tuple[float, int, UpdateJob]] = field(default_factory=list)
    update_work_s: float = 0.0
    # Refreshes that were begun for queries or in idle time and are not done (of a policy whose refreshes yield).
    refreshes: dict[int, UpdateJob] = field(default_factory=dict)
    busy_s: float = 0.0
    # Until each lane of queries and each track of refreshes is free, and the cores that both share; None: none are shared.
    lanes_s: Sequence[float] = (0.0,)
    tracks_s: Sequence[float] = (0.0,)
    width: int | None = 1
    working: int = 0
    # Whether it can stop what it does; so it is one processor for all.
    preempts: bool = True
    # What is kept for each profile, relative to the others; 1 if not said.
    shares: Mapping[str, float] = field(default_factory=dict)

    def run(self, query: Query) -> Estimate:
        # An update aborts what it has read.
        left = query.cost_s if self.steps(query) else query.left_s
        return Estimate(left, query.spread_s)

    def steps(self, query: Query) -> Sequence[Step]:
        """The updates after which it is fresh enough, sources first."""
        items = self.items
        if not query.others:
            item = query.item
            return ((item, False),) if items.arrived[item] - items.applied[item] > query.lag else ()
        return tuple((item, False) for item in query.reads if items.lag(item) > query.lag)

    def cost(self, item: int) -> Estimate:
        """What is left of a refresh that brings an item up to date; all of it if something came since it was begun."""
        items = self.items
        spread = items.spread_s[item] if items.spread_s else 0.0
        begun = self.refreshes.get(item)
        if begun is not None and begun.version == items.arrived[item]:
            return Estimate(max(begun.left_s, 0.0), spread)
        return Estimate(items.cost_s[item], spread)

    def left(self, item: int) -> float | None:
        """What is left of an update of it that runs and cannot be interrupted."""
        return None

    def parents(self, item: int) -> Iterable[int]:
        return ()

    def can_refresh(self, item: int, chain: Collection[int]) -> bool:
        """Whether an update of it can begin now: nothing of the chain goes before it, and it is not under way."""
        return True

    def may_start(self, query: Query) -> bool:
        """Whether a lane is free for whoever asks it."""
        return True

    def takes_stale(self, query: Query) -> bool:
        """Whether a stale answer is better than none."""
        return query.weights.stale < query.weights.missed

    def gives_up(self, query: Query) -> bool:
        """Whether it waits for updates that will be too late, takes a stale answer, and can run now."""
        return False

    def behind(self, item: int) -> bool:
        """Whether a refresh in idle time would bring it something."""
        return self.items.stale(item)


# What runs next: a query, an update that was taken, an item to refresh for a query or in idle time, or nothing.
Next = Query | UpdateJob | int | None


class QueryPolicy(Protocol):
    """Which queries are taken, and what is done next. What a policy does not write out itself: all are taken, updates go first, then the earliest deadline."""

    updates: Updates = "always"
    # Whether stale items are refreshed for the query that reads them.
    refreshes: bool = False
    # Whether refreshes yield to queries, or go before all of them as updates do.
    yielding: bool = False
    every_s: float | None = None

    def begin(self, items: Items) -> Any:
        """A fresh memory."""
        return None

    def admit(self, situation: QuerySituation, query: Query, memory: Any) -> Cause | None:
        """None if the query is admitted, else why not."""
        return None

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        """Whether an update that arrived becomes a job of its own now."""
        return True

    def changed(self, situation: QuerySituation, memory: Any) -> None:
        """Something came or ended that changes when queries can be done."""
        return

    def next(self, situation: QuerySituation, memory: Any, lane: bool = True, track: bool = True) -> Next:
        """What to do now, with a free lane for a query, a free track for a refresh, or both. One processor stops what it did before."""
        if situation.updates:
            return situation.updates[0][2]
        for _, _, query in situation.waiting:
            if query.id not in situation.running:
                found = self.next_of(situation, query, lane, track)
                if found is not None:
                    return found
                if situation.preempts and not self.passes(situation, query):
                    return None
        if lane:
            return next(
                (q for _, _, q in situation.waiting if q.id not in situation.running and situation.gives_up(q)), None
            )
        return None

    def passes(self, situation: QuerySituation, query: Query) -> bool:
        """Whether those behind a query that does nothing have their turn."""
        return False

    def next_of(self, situation: QuerySituation, query: Query, lane: bool, track: bool) -> Query | int | None:
        """What is done for one query now."""
        return query if lane and situation.may_start(query) else None

    def planned(self, situation: QuerySituation, memory: Any) -> Waiting:
        """The queries that are to be done and do not run yet; a new list."""
        return [entry for entry in situation.waiting if entry[1] not in situation.running]

    def started(self, situation: QuerySituation, query: Query, memory: Any) -> None:
        """A query runs, and is not interrupted any more."""
        return

    def ended(self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: Any) -> None:
        """How an asked query ended; `cause` if it was rejected."""
        return

    def withdrawn(self, situation: QuerySituation, query: Query, memory: Any) -> None:
        """An admitted query is not wanted any more, or failed."""
        return

    def wake(self, situation: QuerySituation, lot: float, memory: Any) -> None:
        """Once in a while (`every_s`)."""
        return

    def stretched(self, memory: Any) -> Iterable[tuple[int, float]]:
        """Items that are not updated whenever something comes, and the least time between two of their updates."""
        return ()

    def figures(self, memory: Any) -> Mapping[str, float]:
        """What people may want to see of it: `price_per_s`, what a second of work is worth now, as that is left undone for want of it; `c_flex`, how cautious
        admission is."""
        return {}

    def plain(self, memory: Any) -> Any:
        """What was learned, as plain data; None if nothing."""
        return None

    def of_plain(self, items: Items, found: Any) -> Any:
        """A memory with what was learned before."""
        return self.begin(items)
