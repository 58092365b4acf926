"""The checks of admission control, and the simple policies. Updates go before queries, each in order of deadlines (the paper's dual priority
queue)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.queries.outcome import Cause
from penstock.queries.situation import Query, QueryPolicy, QuerySituation, Updates

# The two checks of admission control (Qu, Labrinidis, Mossé 2006, Sec. 3.3). Both look at the queries that wait, as the paper's do.
#
#     deadline      C_flex EST + q_e < q_t, where EST is the work that goes before
#     satisfaction  reject if the sum of (G_s + C_fm) over the queries that would miss their deadlines because of this one
#                   is more than its own G_s + C_r
#
# The second is corrected: printed as costs only, it would never reject when all penalties are 0. Several lanes share the work that goes before.

# The work that an admitted query still needs, given what those before it need.
WorkLeft = Callable[[Query, set[int]], float]


def alone(query: Query, refreshed: set[int]) -> float:
    return query.left_s


def refreshing(situation: QuerySituation) -> WorkLeft:
    """Queries of stale items need refreshes, the first of each item."""

    def need(query: Query, refreshed: set[int]) -> float:
        work = query.left_s
        for item, enough in situation.steps(query):
            if item not in refreshed:
                refreshed.add(item)
                work += (situation.left(item) or 0.0) if enough else situation.cost(item).mean_s
        return work

    return need


def checked(situation: QuerySituation, query: Query, flex: float = 1.0, need: WorkLeft = alone) -> Cause | None:
    """Why not to admit a query, or None. `OVERLOAD`: it would be in time but for the updates before it; `DEADLINE`: with less caution it
    might be, or the queries before it take too long."""
    refreshed: set[int] = set()
    lanes = len(situation.lanes_s)
    updates = situation.update_work_s
    before = 0.0
    waiting = situation.waiting
    at = 0
    while at < len(waiting) and waiting[at][0] <= query.deadline_s:
        before += need(waiting[at][2], refreshed) / lanes
        at += 1
    start = updates + before
    own = need(query, refreshed)
    within = query.deadline_s - situation.now_s
    if flex * start + own > within:
        if own > within:
            return Cause.IMPOSSIBLE
        if min(flex, 1.0) * start + own > within and updates and min(flex, 1.0) * before + own <= within:
            return Cause.OVERLOAD
        return Cause.DEADLINE
    bearable = query.weights.success + query.weights.rejected
    lost = 0.0
    end = situation.now_s + start + own / lanes
    while at < len(waiting):
        deadline, _, other = waiting[at]
        end += need(other, refreshed) / lanes
        if end - own / lanes <= deadline < end:
            lost += other.weights.success + other.weights.missed
            if lost > bearable:
                return Cause.OTHERS
        at += 1
    return None


def first_refresh(situation: QuerySituation, query: Query) -> int | None:
    """Of the updates that a query needs, the first that can begin now."""
    steps = situation.steps(query)
    chain = {item for item, _ in steps}
    return next((item for item, enough in steps if not enough and situation.can_refresh(item, chain)), None)


class Immediate(QueryPolicy):
    """Immediate update (IMU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): every update runs as it comes, every query is admitted. All
    answers are fresh; under load there are few."""


class OnDemand(QueryPolicy):
    """On-demand update (ODU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): an item is updated when a query that is to run finds it stale. Every query
    is admitted."""

    updates: Updates = "on-demand"
    refreshes = True

    def take(self, situation: QuerySituation, item: int, memory: Any) -> bool:
        return False

    def next_of(self, situation: QuerySituation, query: Query, lane: bool, track: bool) -> Query | int | None:
        if situation.steps(query):
            return first_refresh(situation, query) if track else None
        return super().next_of(situation, query, lane, track)


class Admitting(OnDemand):
    """Admission control and on-demand refresh, without any modulation of updates: the baseline that modulation must beat.

    A query is admitted if it passes both checks (deadline and satisfaction) with the refreshes that it and those before it need. A stale item
    is refreshed when its query is to run and the time left allows it; if not, the query runs on stale data only where that is
    the lesser evil."""

    def admit(self, situation: QuerySituation, query: Query, memory: Any) -> Cause | None:
        return checked(situation, query, need=refreshing(situation))

    def passes(self, situation: QuerySituation, query: Query) -> bool:
        return True

    def next_of(self, situation: QuerySituation, query: Query, lane: bool, track: bool) -> Query | int | None:
        left = query.deadline_s - situation.now_s
        able = lane and situation.may_start(query) and query.left_s <= left
        steps = situation.steps(query)
        if not steps:
            return query if able else None
        work = sum((situation.left(item) or 0.0) if enough else situation.cost(item).mean_s for item, enough in steps)
        if work + query.cost_s <= left:
            return first_refresh(situation, query) if track else None
        return query if able and situation.takes_stale(query) else None
