"""UNIT (Qu, Labrinidis, Mossé 2006, Sec. 3): admission by deadline and satisfaction, update periods modulated by lottery, and a
controller that moves both. With the corrections that its formulas need (see `periods`, `balance`, `admission`).

The paper does not say how many items one signal degrades; here a part of all, drawn from one lot at equal distances, which gives every item
the same chance as as many single draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.queries.admission import checked, refreshing
from penstock.queries.balance import Balance, Signal
from penstock.queries.contract import Weights
from penstock.queries.lottery import Lottery
from penstock.queries.outcome import Cause, Ending
from penstock.queries.periods import Periods, Tickets
from penstock.queries.policies.admitting import Admitting
from penstock.queries.policies.base import BasePolicy
from penstock.queries.situation import Items, Next, Query, QuerySituation, Updates


@dataclass(slots=True)
class UnitMemory:
    tickets: Tickets
    periods: Periods
    balance: Balance
    # When each item's last taken update arrived.
    taken_s: dict[int, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {
            "tickets": self.tickets.lottery.plain(),
            "periods": self.periods.plain(),
            "balance": self.balance.plain(),
            "taken_s": {str(item): at for item, at in self.taken_s.items()},
        }

    @classmethod
    def of_plain(cls, items: Items, found: dict[str, Any]) -> UnitMemory:
        tickets = Tickets.of(items.cost_s)
        tickets.lottery = Lottery(found["tickets"])
        return cls(
            tickets,
            Periods.of_plain(items.period_s, found["periods"]),
            Balance.of_plain(found["balance"]),
            {int(item): at for item, at in found["taken_s"].items()},
        )


class Unit(BasePolicy):
    updates: Updates = "periods"

    def __init__(self, grace_s: float = 1000.0, victims: float = 0.5) -> None:
        self.grace_s = grace_s
        # How often it looks whether satisfaction dropped.
        self.every_s = grace_s / 10
        self.victims = victims

    def begin(self, items: Items, weights: Weights) -> UnitMemory:
        return UnitMemory(Tickets.of(items.cost_s), Periods(items.period_s), Balance(self.grace_s))

    def admit(self, situation: QuerySituation, query: Query, memory: UnitMemory) -> Cause | None:
        self._read(query, memory)
        return checked(situation, query, memory.balance.flex)

    def _read(self, query: Query, memory: UnitMemory) -> None:
        for item in (query.item, *query.others):
            memory.tickets.read(item, query.cost_s, query.within_s)

    def take(self, situation: QuerySituation, item: int, memory: UnitMemory) -> bool:
        last = memory.taken_s.get(item)
        # Arrivals keep their own period; one that comes before the stretched period is over is dropped.
        if last is not None and situation.now_s - last < memory.periods.period_s(item) - 1e-9 * situation.now_s:
            return False
        memory.taken_s[item] = situation.now_s
        memory.tickets.updated(item)
        return True

    def stretched(self, memory: UnitMemory) -> Iterable[tuple[int, float]]:
        # Looking at a period may forget it, if it is the ideal one again.
        found = [(item, memory.periods.period_s(item)) for item in list(memory.periods.changed)]
        return [(item, period) for item, period in found if item in memory.periods.changed]

    def ended(
        self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: UnitMemory
    ) -> None:
        memory.balance.count(ending, cause, situation.weights)

    def wake(self, situation: QuerySituation, lot: float, memory: UnitMemory) -> None:
        if not memory.balance.due(situation.now_s, situation.weights):
            return
        signal = memory.balance.signal(situation.now_s, situation.weights, lot)
        if signal is Signal.UPGRADE:
            memory.periods.upgrade()
        elif signal is Signal.DEGRADE:
            draws = max(1, round(self.victims * len(situation.items)))
            for number in range(draws):
                item = memory.tickets.lottery.draw((lot + number) / draws)
                if item is not None:
                    memory.periods.degrade(item)


class UnitOnDemand(Unit):
    """UNIT that also refreshes a stale item for a query when the time left allows it: what modulation adds to that."""

    refreshes = True

    def __init__(self, grace_s: float = 1000.0, victims: float = 0.5) -> None:
        super().__init__(grace_s, victims)
        self._refreshing = Admitting()

    def admit(self, situation: QuerySituation, query: Query, memory: UnitMemory) -> Cause | None:
        self._read(query, memory)
        return checked(situation, query, memory.balance.flex, refreshing(situation))

    def next(self, situation: QuerySituation, memory: UnitMemory) -> Next:
        return self._refreshing.next(situation, None)
