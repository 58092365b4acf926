"""The two checks of admission control (Qu, Labrinidis, Mossé 2006, Sec. 3.3). Both look at the queries that wait, as the paper's do.

    deadline      C_flex EST + q_e < q_t, where EST is the work that goes before
    satisfaction  reject if n (G_s + C_fm) > G_s + C_r, where n queries would miss their deadlines because of this one

The second is corrected: printed as costs only, it would never reject when all penalties are 0.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.queries.outcome import Cause
from penstock.queries.situation import Query, QuerySituation

# The work that an admitted query still needs, given what those before it need.
Need = Callable[[Query, set[int]], float]


def alone(query: Query, refreshed: set[int]) -> float:
    return query.left_s


def refreshing(situation: QuerySituation) -> Need:
    """Queries of stale items need a refresh, the first of each item."""
    items = situation.items

    def need(query: Query, refreshed: set[int]) -> float:
        item = query.item
        if item in refreshed or not items.stale(item):
            return query.left_s
        refreshed.add(item)
        return query.left_s + items.cost_s[item]

    return need


def checked(situation: QuerySituation, query: Query, flex: float = 1.0, need: Need = alone) -> Cause | None:
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
