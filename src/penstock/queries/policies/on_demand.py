"""On-demand update (ODU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): an item is updated when a query that is to run finds it stale. Every query
is admitted."""

from __future__ import annotations

from typing import Any

from penstock.queries.policies.base import BasePolicy
from penstock.queries.situation import Next, QuerySituation, Updates, promising


class OnDemand(BasePolicy):
    updates: Updates = "on-demand"
    refreshes = True

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        return False

    def next(self, situation: QuerySituation, memory: Any) -> Next:
        if situation.updates:
            return situation.updates[0][2]
        query = promising(situation)
        return query.item if query is not None and situation.items.stale(query.item) else query
