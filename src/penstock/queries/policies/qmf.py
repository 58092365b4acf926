"""QMF (Kang, Son, Stankovic 2004), as Qu, Labrinidis, Mossé 2006, Sec. 4.1 describe it: a feedback loop that keeps the miss ratio of admitted
queries and the freshness of what they read near targets.

    processor free      too stale: update more; else: admit more
    processor overloaded    fresher than need be: update less; else: reject what comes until it has recovered

Updates are dropped for the items with the fewest reads per update. The targets and steps are ours; the paper gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies.base import checked
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, Updates

MISSES, FRESH, BUSY = 0.05, 0.95, 0.98
STEP = 0.1


@dataclass(slots=True)
class Loop:
    reads: list[int]
    updates: list[int]
    flex: float = 1.0
    dropped: float = 0.0
    # Items whose updates are dropped.
    cold: set[int] = field(default_factory=set)
    shedding: bool = False
    busy_s: float = 0.0
    admitted: int = 0
    missed: int = 0
    answered: int = 0
    fresh: int = 0


class Qmf(QueryPolicy):
    updates: Updates = "periods"

    def __init__(self, every_s: float = 1000.0) -> None:
        self.every_s = every_s

    def begin(self, items: Items) -> Loop:
        return Loop([0] * len(items), [0] * len(items))

    def admit(self, situation: QuerySituation, query: Query, memory: Loop) -> Cause | None:
        for item in query.reads:
            memory.reads[item] += 1
        if memory.shedding:
            return Cause.OVERLOAD
        cause = checked(situation, query, memory.flex)
        return None if cause is Cause.OTHERS else cause

    def take(self, situation: QuerySituation, item: int, memory: Loop) -> bool:
        memory.updates[item] += 1
        return item not in memory.cold

    def plain(self, memory: Loop) -> dict[str, Any]:
        return {**asdict(memory), "cold": sorted(memory.cold)}

    def of_plain(self, items: Items, found: dict[str, Any]) -> Loop:
        return Loop(**{**found, "cold": set(found["cold"])})

    def stretched(self, memory: Loop) -> Iterable[tuple[int, float]]:
        return ((item, inf) for item in memory.cold)

    def figures(self, memory: Loop) -> Mapping[str, float]:
        return {"c_flex": memory.flex}

    def ended(self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: Loop) -> None:
        if ending is not Ending.REJECTED:
            memory.admitted += 1
            memory.missed += ending is Ending.MISSED
            memory.answered += ending is not Ending.MISSED
            memory.fresh += ending is Ending.SUCCESS

    def wake(self, situation: QuerySituation, lot: float, memory: Loop) -> None:
        busy = (situation.busy_s - memory.busy_s) / (self.every_s or 1.0)
        misses = memory.missed / max(1, memory.admitted)
        fresh = memory.fresh / memory.answered if memory.answered else 1.0
        overloaded = busy >= BUSY or misses > MISSES
        memory.shedding = False
        if not overloaded:
            if fresh < FRESH:
                memory.dropped = max(0.0, memory.dropped - STEP)
            else:
                memory.flex = max(0.5, memory.flex * (1 - STEP))
        elif fresh >= FRESH and memory.dropped < 1 - STEP / 2:
            memory.dropped = min(1.0, memory.dropped + STEP)
        else:
            memory.flex = min(2.0, memory.flex * (1 + STEP))
            memory.shedding = misses > MISSES
        self._choose(memory)
        memory.busy_s = situation.busy_s
        memory.admitted = memory.missed = memory.answered = memory.fresh = 0

    def _choose(self, memory: Loop) -> None:
        """The items with the fewest reads per update, until so much of the updates is dropped."""
        memory.cold = set()
        left = memory.dropped * sum(memory.updates)
        if left <= 0:
            return
        ratio: Any = [
            reads / updates if updates else 0.0 for reads, updates in zip(memory.reads, memory.updates, strict=True)
        ]
        for item in sorted(range(len(ratio)), key=ratio.__getitem__):
            if left <= 0:
                break
            memory.cold.add(item)
            left -= memory.updates[item]
