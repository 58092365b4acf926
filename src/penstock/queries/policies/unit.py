"""UNIT (Qu, Labrinidis, Mossé 2006, Sec. 3): admission by deadline and satisfaction, update periods modulated by lottery, and a
controller that moves both. With the corrections that its formulas need (see `periods`, `balance`, `admission`).

The paper does not say how many items one signal degrades; here a part of all, drawn from one lot at equal distances, which gives every item
the same chance as as many single draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import exp, inf
from typing import Any

from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.outcome import value as worth_of
from penstock.queries.policies.base import Admitting, checked, refreshing
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, Updates


@dataclass(frozen=True, slots=True)
class UnitSettings:
    """The constants that the paper names, and the two that it leaves open (victims, stretch)."""

    # The controller looks after so long.
    grace_s: float = 1000.0
    # One signal degrades so many of the items.
    victims: float = 0.5
    # By how much a period grows, and shrinks; how much of an item's tickets is kept when it is read or updated.
    c_du: float = 0.1
    c_uu: float = 0.5
    c_forget: float = 0.9
    # No period is longer than so many times the ideal one: it grows exponentially and shrinks linearly, and would hardly come back.
    stretch: float = 20.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("grace_s", 0.0, inf),
            ("victims", 0.0, 1.0),
            ("c_du", 0.0, inf),
            ("c_uu", 0.0, inf),
            ("c_forget", 0.0, 1.0),
            ("stretch", 1.0, inf),
        ):
            if not low < getattr(self, name) <= high or getattr(self, name) == inf:
                most = f" and at most {high:g}" if high < inf else ""
                raise ValueError(f"{name} = {getattr(self, name):g}; expected a number above {low:g}{most}")


DEFAULTS = UnitSettings()


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
#     degrade one item     p = p (1 + C_du), at most a limit         (9)
#     upgrade all          p = max(p_ideal, p - C_uu p_ideal)        (10; printed with min, which would never come back)
#
# Which item is degraded is drawn by lot among the tickets T:
#
#     a query reads it     T = C_forget T - q_e / q_t                (6, 8)
#     it is updated        T = C_forget T + 1 / (1 + exp(-(u_e - u_avg) / u_avg))     (7, 8)
#
# The paper takes the difference of execution times as it is, whatever their unit; here it is relative to the average.
# An upgrade of all costs the same however many there are: it is counted, and applied when a period is looked at.


@dataclass(slots=True)
class Tickets:
    items: Items
    lottery: Lottery
    forget: float = DEFAULTS.c_forget
    # The average execution time of updates, as of the last time that it was asked for.
    average_s: float = 0.0

    @classmethod
    def of(cls, items: Items, forget: float = DEFAULTS.c_forget) -> Tickets:
        found = cls(items, Lottery([0.0] * len(items)), forget)
        found.renew()
        return found

    def renew(self) -> None:
        """What updates cost may be known better by now."""
        self.average_s = max(1e-9, sum(self.items.cost_s) / max(1, len(self.items)))

    def read(self, item: int, execution_s: float, within_s: float) -> None:
        self.lottery[item] = self.forget * self.lottery[item] - execution_s / within_s

    def updated(self, item: int) -> None:
        off = (self.items.cost_s[item] - self.average_s) / self.average_s
        self.lottery[item] = self.forget * self.lottery[item] + 1 / (1 + exp(-off))


@dataclass(slots=True)
class Periods:
    ideal_s: Sequence[float]
    settings: UnitSettings = DEFAULTS
    upgrades: int = 0
    # Of degraded items: period, and how many upgrades there had been.
    changed: dict[int, tuple[float, int]] = field(default_factory=dict)

    def period_s(self, item: int) -> float:
        found = self.changed.get(item)
        ideal = self.ideal_s[item]
        if found is None:
            return ideal
        period = found[0] - self.settings.c_uu * ideal * (self.upgrades - found[1])
        if period <= ideal:
            del self.changed[item]
            return ideal
        return period

    def degrade(self, item: int) -> None:
        longer = self.period_s(item) * (1 + self.settings.c_du)
        self.changed[item] = (min(longer, self.settings.stretch * self.ideal_s[item]), self.upgrades)

    def upgrade(self) -> None:
        self.upgrades += 1

    def plain(self) -> dict[str, Any]:
        return {"upgrades": self.upgrades, "changed": {str(item): list(one) for item, one in self.changed.items()}}

    @classmethod
    def of_plain(cls, ideal_s: Sequence[float], found: dict[str, Any], settings: UnitSettings = DEFAULTS) -> Periods:
        changed = {int(item): (float(period), int(at)) for item, (period, at) in found["changed"].items()}
        return cls(ideal_s, settings, found["upgrades"], changed)


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
class Failures:
    """How many queries failed in one way, and what that cost them, each by its own weights."""

    number: int = 0
    cost: float = 0.0

    def add(self, cost: float) -> None:
        self.number += 1
        self.cost += cost


@dataclass(slots=True)
class Balance:
    grace_s: float
    flex: float = 1.0
    since_s: float = 0.0
    # Of the queries that ended since then: how many, how satisfied, the widest range of their weights, and what failed why.
    queries: int = 0
    worth: float = 0.0
    span: float = 0.0
    rejected: Failures = field(default_factory=Failures)
    crowded_out: Failures = field(default_factory=Failures)
    missed: Failures = field(default_factory=Failures)
    stale: Failures = field(default_factory=Failures)
    # The satisfaction before.
    usm: float | None = None

    def count(self, ending: Ending, cause: Cause | None, weights: OutcomeWeights) -> None:
        self.queries += 1
        self.worth += worth_of(ending, weights)
        self.span = max(self.span, weights.span)
        if ending is Ending.REJECTED:
            (self.crowded_out if cause is Cause.OVERLOAD else self.rejected).add(weights.rejected)
        elif ending is Ending.MISSED:
            self.missed.add(weights.missed)
        elif ending is Ending.STALE:
            self.stale.add(weights.stale)

    def due(self, now_s: float) -> bool:
        if now_s - self.since_s >= self.grace_s:
            return True
        if self.queries < _SOME or self.usm is None:
            return False
        return self.usm - self.worth / self.queries > 0.01 * self.span

    def signal(self, now_s: float, lot: float) -> Signal | None:
        """What to do, and begin to count anew; ties are broken by lot. None if nothing failed."""
        rejected = self.rejected if self.flex > LOOSEST else Failures()
        late = Failures(self.missed.number + self.crowded_out.number, self.missed.cost + self.crowded_out.cost)
        # Where no failure costs anything, all are the same.
        naive = not (self.rejected.cost or late.cost or self.stale.cost)
        found = [
            (failed.number if naive else failed.cost, signal)
            for failed, signal in ((rejected, Signal.LOOSEN), (late, Signal.DEGRADE), (self.stale, Signal.UPGRADE))
            if failed.number
        ]
        tighten = self.missed.number >= self.crowded_out.number
        if self.queries:
            self.usm = self.worth / self.queries
        self.since_s, self.queries, self.worth, self.span = now_s, 0, 0.0, 0.0
        self.rejected, self.crowded_out, self.missed, self.stale = Failures(), Failures(), Failures(), Failures()
        if not found:
            return None
        most = max(cost for cost, _ in found)
        dominant = [signal for cost, signal in found if cost >= most * (1 - 1e-9)]
        chosen = dominant[min(int(lot * len(dominant)), len(dominant) - 1)]
        if chosen is Signal.LOOSEN:
            self.flex = max(LOOSEST, self.flex * (1 - STEP))
        elif chosen is Signal.DEGRADE and tighten:
            self.flex = min(TIGHTEST, self.flex * (1 + STEP))
        return chosen

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plain(cls, found: dict[str, Any]) -> Balance:
        failures = {name: Failures(**found[name]) for name in ("rejected", "crowded_out", "missed", "stale")}
        return cls(**{**found, **failures})


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


class Unit(QueryPolicy):
    updates: Updates = "periods"

    def __init__(self, settings: UnitSettings = DEFAULTS, modulate: bool = True) -> None:
        self.settings = settings
        self.modulate = modulate
        # How often it looks whether satisfaction dropped.
        self.every_s = settings.grace_s / 10

    def begin(self, items: Items) -> UnitMemory:
        settings = self.settings
        return UnitMemory(
            Tickets.of(items, settings.c_forget), Periods(items.period_s, settings), Balance(settings.grace_s)
        )

    def plain(self, memory: UnitMemory) -> dict[str, Any]:
        return memory.plain()

    def of_plain(self, items: Items, found: dict[str, Any]) -> UnitMemory:
        memory = self.begin(items)
        memory.tickets.lottery = Lottery(found["tickets"])
        memory.periods = Periods.of_plain(items.period_s, found["periods"], self.settings)
        memory.balance = Balance.of_plain({**found["balance"], "grace_s": self.settings.grace_s})
        memory.taken_s = {int(item): at for item, at in found["taken_s"].items()}
        return memory

    def admit(self, situation: QuerySituation, query: Query, memory: UnitMemory) -> Cause | None:
        self._read(query, memory)
        return checked(situation, query, memory.balance.flex)

    def _read(self, query: Query, memory: UnitMemory) -> None:
        for item in query.reads:
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
        memory.balance.count(ending, cause, query.weights)

    def figures(self, memory: UnitMemory) -> Mapping[str, float]:
        return {"c_flex": memory.balance.flex}

    def wake(self, situation: QuerySituation, lot: float, memory: UnitMemory) -> None:
        if not memory.balance.due(situation.now_s):
            return
        memory.tickets.renew()
        signal = memory.balance.signal(situation.now_s, lot)
        if not self.modulate:
            return
        if signal is Signal.UPGRADE:
            memory.periods.upgrade()
        elif signal is Signal.DEGRADE:
            draws = max(1, round(self.settings.victims * len(situation.items)))
            for number in range(draws):
                item = memory.tickets.lottery.draw((lot + number) / draws)
                if item is not None:
                    memory.periods.degrade(item)


class UnitOnDemand(Unit):
    """UNIT that also refreshes a stale item for a query when the time left allows it: Sec. 3.4.1 can be read so. Without modulation it is
    admission and refresh on demand, with a C_flex that follows how queries end."""

    refreshes = True

    def __init__(self, settings: UnitSettings = DEFAULTS, modulate: bool = True) -> None:
        super().__init__(settings, modulate)
        self._refreshing = Admitting()
        if not modulate:
            self.updates = "on-demand"

    def admit(self, situation: QuerySituation, query: Query, memory: UnitMemory) -> Cause | None:
        self._read(query, memory)
        return checked(situation, query, memory.balance.flex, refreshing(situation))

    def take(self, situation: QuerySituation, item: int, memory: UnitMemory) -> bool:
        return self.modulate and super().take(situation, item, memory)

    def passes(self, situation: QuerySituation, query: Query) -> bool:
        return True

    def next_of(self, situation: QuerySituation, query: Query, lane: bool, track: bool) -> Query | int | None:
        return self._refreshing.next_of(situation, query, lane, track)
