"""What the simplest policy does; others say where they differ. Updates go before queries, each in order of deadlines (the paper's dual
priority queue)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.situation import Items, Next, Query, QuerySituation, Updates, promising

# The two checks of admission control (Qu, Labrinidis, Mossé 2006, Sec. 3.3). Both look at the queries that wait, as the paper's do.
#
#     deadline      C_flex EST + q_e < q_t, where EST is the work that goes before
#     satisfaction  reject if n (G_s + C_fm) > G_s + C_r, where n queries would miss their deadlines because of this one
#
# The second is corrected: printed as costs only, it would never reject when all penalties are 0.

# The work that an admitted query still needs, given what those before it need.
Worth = Callable[[Query, set[int]], float]


def alone(query: Query, refreshed: set[int]) -> float:
    return query.left_s


def refreshing(situation: QuerySituation) -> Worth:
    """Queries of stale items need a refresh, the first of each item."""
    items = situation.items

    def need(query: Query, refreshed: set[int]) -> float:
        item = query.item
        if item in refreshed or not items.stale(item):
            return query.left_s
        refreshed.add(item)
        return query.left_s + items.cost_s[item]

    return need


def checked(situation: QuerySituation, query: Query, flex: float = 1.0, need: Worth = alone) -> Cause | None:
    """Why not to admit a query, or None. `OVERLOAD`: it would be in time but for the updates before it; `DEADLINE`: with less caution it
    might be, or the queries before it take too long."""
    refreshed: set[int] = set()
    start = situation.update_work_s
    waiting = situation.waiting
    at = 0
    while at < len(waiting) and waiting[at][0] <= query.deadline_s:
        start += need(waiting[at][2], refreshed)
        at += 1
    own = need(query, refreshed)
    within = query.deadline_s - situation.now_s
    if flex * start + own > within:
        if own > within:
            return Cause.IMPOSSIBLE
        updates = situation.update_work_s
        if min(flex, 1.0) * start + own > within and updates and min(flex, 1.0) * (start - updates) + own <= within:
            return Cause.OVERLOAD
        return Cause.DEADLINE
    weights = situation.weights
    worth = weights.success + weights.missed
    bearable = weights.success + weights.rejected
    lost = 0.0
    end = situation.now_s + start + own
    while at < len(waiting):
        deadline, _, other = waiting[at]
        end += need(other, refreshed)
        if end - own <= deadline < end:
            lost += worth
            if lost > bearable:
                return Cause.OTHERS
        at += 1
    return None


class BasePolicy:
    every_s: float | None = None
    yielding = False
    updates: Updates = "always"
    refreshes = False

    def begin(self, items: Items, weights: OutcomeWeights) -> Any:
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


class Immediate(BasePolicy):
    """Immediate update (IMU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): every update runs as it comes, every query is admitted. All
    answers are fresh; under load there are few."""


class OnDemand(BasePolicy):
    """On-demand update (ODU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): an item is updated when a query that is to run finds it stale. Every query
    is admitted."""

    updates: Updates = "on-demand"
    refreshes = True

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        return False

    def next(self, situation: QuerySituation, memory: Any) -> Next:
        if situation.updates:
            return situation.updates[0][2]
        query = promising(situation)
        return query.item if query is not None and situation.items.stale(query.item) else query


class Admitting(OnDemand):
    """Admission control and on-demand refresh, without any modulation of updates: the baseline that modulation must beat.

    A query is admitted if it passes both checks (deadline and satisfaction) with the refreshes that it and those before it need. A stale item
    is refreshed when its query is to run and the time left allows it; if not, the query runs on stale data only where that is
    the lesser evil."""

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
