"""UNIT (Qu, Labrinidis, Mossé 2006, Sec. 3): admission by deadline and satisfaction, update periods modulated by lottery, and a
controller that moves both. With the corrections that its formulas need (see `periods`, `balance`, `admission`).

The paper does not say how many items one signal degrades; here a part of all, drawn from one lot at equal distances, which gives every item
the same chance as as many single draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import exp, inf
from typing import Any

from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies.base import Admitting, BasePolicy, checked, refreshing
from penstock.queries.situation import Items, Next, Query, QuerySituation, Updates


class Lottery:
    """Lottery scheduling over many items (Waldspurger 1995): draw one with probability proportional to its tickets.

    Tickets may be negative; the smallest counts as none, so the chance of an item is proportional to T_j - T_min, as Qu,
    Labrinidis, Mossé 2006 have it (Sec. 3.4.1). A tree over the items holds sum and minimum of each subtree, so that neither a change nor a
    draw looks at more than log n of them, also when the minimum moves and with it the chances of all."""

    def __init__(self, tickets: Iterable[float]) -> None:
        values = [float(value) for value in tickets]
        self.count = len(values)
        self._leaves = 1 << max(0, self.count - 1).bit_length()
        self._sum = [0.0] * (2 * self._leaves)
        self._least = [inf] * (2 * self._leaves)
        # How many items a subtree has.
        self._size = [0] * (2 * self._leaves)
        for item, value in enumerate(values):
            at = self._leaves + item
            self._sum[at] = self._least[at] = value
            self._size[at] = 1
        for at in range(self._leaves - 1, 0, -1):
            self._join(at)
            self._size[at] = self._size[2 * at] + self._size[2 * at + 1]

    def _join(self, at: int) -> None:
        left, right = 2 * at, 2 * at + 1
        self._sum[at] = self._sum[left] + self._sum[right]
        least, other = self._least[left], self._least[right]
        self._least[at] = least if least < other else other

    def __getitem__(self, item: int) -> float:
        return self._sum[self._leaves + item]

    def __len__(self) -> int:
        return self.count

    def __setitem__(self, item: int, value: float) -> None:
        at = self._leaves + item
        self._sum[at] = self._least[at] = value
        at >>= 1
        while at:
            self._join(at)
            at >>= 1

    def draw(self, lot: float) -> int | None:
        """The item that a lot in [0, 1) falls on; None if all have the same number of tickets, that is, none."""
        least = self._least[1]
        left = (self._sum[1] - least * self.count) * lot
        if not self.count or self._sum[1] - least * self.count <= 1e-12 * max(1.0, abs(self._sum[1])):
            return None
        at = 1
        while at < self._leaves:
            at *= 2
            weight = self._sum[at] - least * self._size[at]
            if left >= weight and self._size[at + 1]:
                left -= weight
                at += 1
        return at - self._leaves

    def plain(self) -> list[float]:
        return self._sum[self._leaves : self._leaves + self.count]


# Update periods that are stretched under load and shortened again (Qu, Labrinidis, Mossé 2006, Sec. 3.4).
#
#     degrade one item     p = p (1 + C_du)                          (9)
#     upgrade all          p = max(p_ideal, p - C_uu p_ideal)        (10; printed with min, which would never come back)
#
# Which item is degraded is drawn by lot among the tickets T:
#
#     a query reads it     T = C_forget T - q_e / q_t                (6, 8)
#     it is updated        T = C_forget T + 1 / (1 + exp(-(u_e - u_avg) / u_avg))     (7, 8)
#
# The paper takes the difference of execution times as it is, whatever their unit; here it is relative to the average.
# An upgrade of all costs the same however many there are: it is counted, and applied when a period is looked at.

C_DU = 0.1
C_UU = 0.5
C_FORGET = 0.9


@dataclass(slots=True)
class Tickets:
    cost_s: Sequence[float]
    lottery: Lottery
    average_s: float

    @classmethod
    def of(cls, cost_s: Sequence[float]) -> Tickets:
        return cls(cost_s, Lottery([0.0] * len(cost_s)), sum(cost_s) / max(1, len(cost_s)))

    def read(self, item: int, execution_s: float, within_s: float) -> None:
        self.lottery[item] = C_FORGET * self.lottery[item] - execution_s / within_s

    def updated(self, item: int) -> None:
        sigmoid = 1 / (1 + exp(-(self.cost_s[item] - self.average_s) / self.average_s))
        self.lottery[item] = C_FORGET * self.lottery[item] + sigmoid


@dataclass(slots=True)
class Periods:
    ideal_s: Sequence[float]
    upgrades: int = 0
    # Of degraded items: period, and how many upgrades there had been.
    changed: dict[int, tuple[float, int]] = field(default_factory=dict)

    def period_s(self, item: int) -> float:
        found = self.changed.get(item)
        ideal = self.ideal_s[item]
        if found is None:
            return ideal
        period = found[0] - C_UU * ideal * (self.upgrades - found[1])
        if period <= ideal:
            del self.changed[item]
            return ideal
        return period

    def degrade(self, item: int) -> None:
        self.changed[item] = (self.period_s(item) * (1 + C_DU), self.upgrades)

    def upgrade(self) -> None:
        self.upgrades += 1

    def plain(self) -> dict[str, Any]:
        return {"upgrades": self.upgrades, "changed": {str(item): list(one) for item, one in self.changed.items()}}

    @classmethod
    def of_plain(cls, ideal_s: Sequence[float], found: dict[str, Any]) -> Periods:
        changed = {int(item): (float(period), int(at)) for item, (period, at) in found["changed"].items()}
        return cls(ideal_s, found["upgrades"], changed)


# The load balancing controller (Qu, Labrinidis, Mossé 2006, Sec. 3.2, Fig. 2), with the names of the signals the right way round.
#
# Every grace period, or when satisfaction drops by more than a hundredth of its range, the dominant cost decides:
#
#     rejections        loosen admission
#     missed deadlines  degrade updates and tighten admission
#     stale answers     upgrade updates
#
# A rejection counts for what caused it, else the controller could lock up: with everything rejected because updates leave no time, loosening
# admission changes nothing. So rejections for the updates before a query degrade updates, as missed deadlines do, yet tighten nothing. Only those
# that C_flex itself caused, or the wish to protect others, count as rejections; when C_flex can go no lower, they no longer ask for it.

STEP = 0.1
# A drop of satisfaction is only believed after so many queries.
_SOME = 30
LOOSEST, TIGHTEST = 0.2, 5.0


class Signal(StrEnum):
    LOOSEN = "loosen admission"
    DEGRADE = "degrade updates, tighten admission"
    UPGRADE = "upgrade updates"


@dataclass(slots=True)
class Balance:
    grace_s: float
    flex: float = 1.0
    since_s: float = 0.0
    # Of the queries that ended since then: how many, how satisfied, and what failed why.
    queries: int = 0
    worth: float = 0.0
    rejected: int = 0
    crowded_out: int = 0
    missed: int = 0
    stale: int = 0
    # The satisfaction before.
    usm: float | None = None

    def count(self, ending: Ending, cause: Cause | None, weights: OutcomeWeights) -> None:
        self.queries += 1
        if ending is Ending.SUCCESS:
            self.worth += weights.success
        elif ending is Ending.REJECTED:
            self.worth -= weights.rejected
            if cause is Cause.OVERLOAD:
                self.crowded_out += 1
            else:
                self.rejected += 1
        elif ending is Ending.MISSED:
            self.worth -= weights.missed
            self.missed += 1
        else:
            self.worth -= weights.stale
            self.stale += 1

    def due(self, now_s: float, weights: OutcomeWeights) -> bool:
        if now_s - self.since_s >= self.grace_s:
            return True
        if self.queries < _SOME or self.usm is None:
            return False
        return self.usm - self.worth / self.queries > 0.01 * weights.span

    def signal(self, now_s: float, weights: OutcomeWeights, lot: float) -> Signal | None:
        """What to do, and begin to count anew; ties are broken by lot. None if nothing failed."""
        costs = (
            (float(self.rejected if self.flex > LOOSEST else 0), weights.rejected, Signal.LOOSEN),
            (float(self.missed + self.crowded_out), max(weights.missed, weights.rejected), Signal.DEGRADE),
            (float(self.stale), weights.stale, Signal.UPGRADE),
        )
        if self.queries:
            self.usm = self.worth / self.queries
        tighten = self.missed >= self.crowded_out
        weighed = [(number if weights.naive else number * weight, number, signal) for number, weight, signal in costs]
        self.since_s = now_s
        self.queries = self.rejected = self.crowded_out = self.missed = self.stale = 0
        self.worth = 0.0
        most = max(cost for cost, _, _ in weighed)
        if not any(number for _, number, _ in weighed):
            return None
        dominant = [signal for cost, number, signal in weighed if cost == most and number]
        if not dominant:  # what costs nothing does fail, nothing else does
            return None
        chosen = dominant[int(lot * len(dominant))]
        if chosen is Signal.LOOSEN:
            self.flex = max(LOOSEST, self.flex * (1 - STEP))
        elif chosen is Signal.DEGRADE and tighten:
            self.flex = min(TIGHTEST, self.flex * (1 + STEP))
        return chosen

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plain(cls, found: dict[str, Any]) -> Balance:
        return cls(**found)


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

    def begin(self, items: Items, weights: OutcomeWeights) -> UnitMemory:
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
