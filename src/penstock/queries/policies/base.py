"""What the simplest policy does; others say where they differ. Updates go before queries, each in order of deadlines (the paper's dual
priority queue)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.queries.contract import Weights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.situation import Items, Next, Query, QuerySituation, Updates, promising


class BasePolicy:
    every_s: float | None = None
    yielding = False
    updates: Updates = "always"
    refreshes = False

    def begin(self, items: Items, weights: Weights) -> Any:
        return None

    def admit(self, situation: QuerySituation, query: Query, memory: Any) -> Cause | None:
        return None

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        return True

    def next(self, situation: QuerySituation, memory: Any) -> Next:
        if situation.updates:
            return situation.updates[0][2]
        return promising(situation)

    def ended(self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: Any) -> None:
        return None

    def wake(self, situation: QuerySituation, lot: float, memory: Any) -> None:
        return None

    def stretched(self, memory: Any) -> Iterable[tuple[int, float]]:
        return ()
