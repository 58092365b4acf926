"""Admission control and on-demand refresh, without any modulation of updates: the baseline that modulation must beat.

A query is admitted if it passes both checks (deadline and satisfaction) with the refreshes that it and those before it need. A stale item
is refreshed when its query is to run and the time left allows it; if not, the query runs on stale data only where that is
the lesser evil.
"""

from __future__ import annotations

from typing import Any

from penstock.queries.admission import checked, refreshing
from penstock.queries.outcome import Cause
from penstock.queries.policies.on_demand import OnDemand
from penstock.queries.situation import Next, Query, QuerySituation


class Admitting(OnDemand):
    def admit(self, situation: QuerySituation, query: Query, memory: Any) -> Cause | None:
        return checked(situation, query, need=refreshing(situation))

    def next(self, situation: QuerySituation, memory: Any) -> Next:
        if situation.updates:
            return situation.updates[0][2]
        items, weights = situation.items, situation.weights
        for deadline, _, query in situation.waiting:
            left = deadline - situation.now_s
            if items.stale(query.item):
                if items.cost_s[query.item] + query.left_s <= left:
                    return query.item
                if weights.stale < weights.missed and query.left_s <= left:
                    return query
            elif query.left_s <= left:
                return query
        return None
