"""The load balancing controller (Qu, Labrinidis, Mossé 2006, Sec. 3.2, Fig. 2), with the names of the signals the right way round.

Every grace period, or when satisfaction drops by more than a hundredth of its range, the dominant cost decides:

    rejections        loosen admission
    missed deadlines  degrade updates and tighten admission
    stale answers     upgrade updates

A rejection counts for what caused it, else the controller could lock up: with everything rejected because updates leave no time, loosening
admission changes nothing. So rejections for the updates before a query degrade updates, as missed deadlines do, yet tighten nothing. Only those
that C_flex itself caused, or the wish to protect others, count as rejections; when C_flex can go no lower, they no longer ask for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from penstock.queries.contract import Weights
from penstock.queries.outcome import Cause, Ending

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

    def count(self, ending: Ending, cause: Cause | None, weights: Weights) -> None:
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

    def due(self, now_s: float, weights: Weights) -> bool:
        if now_s - self.since_s >= self.grace_s:
            return True
        if self.queries < _SOME or self.usm is None:
            return False
        return self.usm - self.worth / self.queries > 0.01 * weights.span

    def signal(self, now_s: float, weights: Weights, lot: float) -> Signal | None:
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
