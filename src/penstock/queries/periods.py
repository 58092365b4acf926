"""Update periods that are stretched under load and shortened again (Qu, Labrinidis, Mossé 2006, Sec. 3.4).

    degrade one item     p = p (1 + C_du)                          (9)
    upgrade all          p = max(p_ideal, p - C_uu p_ideal)        (10; printed with min, which would never come back)

Which item is degraded is drawn by lot among the tickets T:

    a query reads it     T = C_forget T - q_e / q_t                (6, 8)
    it is updated        T = C_forget T + 1 / (1 + exp(-(u_e - u_avg) / u_avg))     (7, 8)

The paper takes the difference of execution times as it is, whatever their unit; here it is relative to the average.
An upgrade of all costs the same however many there are: it is counted, and applied when a period is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any

from penstock.queries.lottery import Lottery

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
