"""What the queries that are asked do to the updates: tables that are read often go first, tables that nobody reads are updated less
often. What arrives meanwhile is deferred and merged into one update, never dropped.

Qu, Labrinidis, Mossé 2006, Sec. 3.4, change update periods by lottery and feedback. Here the period follows from what is known. Updating
with a gap of g seconds between updates costs c / g seconds of work a second, and lets each of r reads a second see data that are
g / 2 older on average. With P the price of a second of work and T how old data may be (the freshness target),

    P c / g + r g / (2 T)    is least for    g = sqrt(2 P c T / r).

With an idle machine (P = 0) every update runs at once. A table that is not read at all has the largest gap that its own target and
those of all tables made from it allow. Without any reads nothing changes: a warehouse that answers its queries elsewhere keeps the
priorities that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Any

from penstock.model.graph import Graph
from penstock.model.time import MINUTE_US, SECOND_US, format_duration

HALF_LIFE_US = 10 * MINUTE_US
# The most that demand changes a priority, either way.
MOST = 4.0
# A gap of a table without any target: at most so many of its periods.
_PERIODS = 10
# The part of a target that gaps may use up; the rest is for updates that take longer than expected.
_PART = 0.5


@dataclass(frozen=True, slots=True)
class Modulation:
    """What demand does to a table: its priority times this, and at least so long between the starts of two updates."""

    priority_factor: float = 1.0
    min_gap_us: int = 0
    why: str = ""


@dataclass(slots=True)
class Demand:
    """How often each table is read, directly or through what is made from it: counts that fade with a half-life. Mutable; `plain` and
    `of_plain` keep it. A read costs the ancestors of the table, asking costs nothing that grows."""

    half_life_us: int = HALF_LIFE_US
    # Table: (faded count, at). The same for all reads.
    counts: dict[str, tuple[float, int]] = field(default_factory=dict)
    total: tuple[float, int] = (0.0, 0)

    def read(self, graph: Graph, tables: Iterable[str], now_us: int, times: float = 1.0) -> None:
        """A query (or so many) read these tables. Their ancestors were read through them: once each, however many ways lead there."""
        direct = [name for name in tables if name in graph.tables]
        for name in set(direct).union(*(graph.ancestors[one] for one in direct)):
            self.counts[name] = self._faded(self.counts.get(name), now_us, times)
            self.total = self._faded(self.total, now_us, times)

    def rate_per_s(self, table: str, now_us: int) -> float:
        """Reads a second, as of late."""
        return self._faded(self.counts.get(table), now_us)[0] * self.one_per_s

    def mean_per_s(self, tables: int, now_us: int) -> float:
        return self._faded(self.total, now_us)[0] * self.one_per_s / max(1, tables)

    @property
    def one_per_s(self) -> float:
        """The rate that a count of one stands for."""
        return log(2) / (self.half_life_us / SECOND_US)

    def _faded(self, counted: tuple[float, int] | None, now_us: int, more: float = 0.0) -> tuple[float, int]:
        if counted is None:
            return more, now_us
        value, at = counted
        passed = max(0, now_us - at)
        return value * exp(-log(2) * passed / self.half_life_us) + more, max(at, now_us)

    def plain(self) -> dict[str, Any]:
        return {
            "half_life_us": self.half_life_us,
            "counts": {name: list(one) for name, one in self.counts.items()},
            "total": list(self.total),
        }

    @classmethod
    def of_plain(cls, found: Mapping[str, Any]) -> Demand:
        counts = {name: (float(value), int(at)) for name, (value, at) in found["counts"].items()}
        return cls(found["half_life_us"], counts, (float(found["total"][0]), int(found["total"][1])))


class Modulator:
    """What demand does to the tables of one graph. `fixed` tables have a priority that the user wrote down: it stays."""

    def __init__(self, graph: Graph, fixed: Iterable[str] = ()) -> None:
        self.graph = graph
        self.fixed = frozenset(fixed)
        levels: dict[str, int] = {}
        for name in graph.order:
            levels[name] = 1 + max((levels[e.source] for e in graph.into[name] if e.source != name), default=0)
        # Gaps along a chain add up, so each of its tables may use an equal part of the target at its end.
        self._allowance_us: dict[str, int | None] = {}
        for name in reversed(graph.order):
            target = graph.tables[name].target_us
            allowed = [] if target is None else [target // levels[name]]
            below = (self._allowance_us[e.table] for e in graph.out[name] if e.table != name)
            allowed += [one for one in below if one is not None]
            self._allowance_us[name] = min(allowed, default=None)

    def is_targeted(self, table: str) -> bool:
        """Whether it, or something made from it, has a freshness target."""
        return self._allowance_us[table] is not None

    def longest_gap_us(self, table: str, cost_s: float) -> int:
        """The gap that keeps every target: a part of what the work itself leaves of the allowance."""
        period = self.graph.periods_us[table]
        allowance = self._allowance_us[table]
        if allowance is None:
            return _PERIODS * period
        return max(0, int((allowance - 2 * cost_s * SECOND_US) * _PART))

    def modulation(self, demand: Demand, table: str, cost_s: float, now_us: int, pressure: float = 1.0) -> Modulation:
        """`pressure` is the price of work, of updates and queries together: 0 on an idle machine, 1 when they are all it can do."""
        mean = demand.mean_per_s(len(self.graph.tables), now_us)
        # Less than one read a half-life over all tables: nobody reads here.
        if mean * len(self.graph.tables) < demand.one_per_s / 2:
            return Modulation()
        rate = demand.rate_per_s(table, now_us)
        some = demand.one_per_s / 4  # so that a few reads more or less change little
        factor = 1.0 if table in self.fixed else min(MOST, max(1 / MOST, sqrt((rate + some) / (mean + some))))
        longest = self.longest_gap_us(table, cost_s)
        target = self.graph.tables[table].target_us or self.graph.periods_us[table]
        best = sqrt(2 * max(0.0, pressure) * cost_s * (target / SECOND_US) / max(rate, 1e-9))
        gap = min(longest, int(best * SECOND_US))
        if table in self.fixed or gap < self.graph.periods_us[table]:
            gap = 0  # each batch is updated as it comes
        return Modulation(factor, gap, _said(rate, mean, factor, gap, table in self.fixed, pressure))


def _said(rate: float, mean: float, factor: float, gap_us: int, fixed: bool, pressure: float) -> str:
    per_hour = rate * 3600
    often = f"read {per_hour:.3g} times an hour lately" if per_hour >= 0.1 else "not read lately"
    parts = [f"{often} ({mean * 3600:.3g} on average over all tables)"]
    if fixed:
        parts.append("its priority is fixed")
    elif factor > 1.05:
        parts.append(f"so its priority counts {factor:.3g} times")
    elif factor < 0.95:
        parts.append(f"so its priority counts {factor:.3g} of what was declared")
    if gap_us:
        often = format_duration(gap_us)
        parts.append(
            f"and it is updated at most every {often}, as updates and queries take {pressure:.0%} of what there is; what comes between is merged"
        )
    return ", ".join(parts)
