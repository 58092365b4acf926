"""One processor that serves queries and updates as a policy says (Qu, Labrinidis, Mossé 2006, Sec. 3.1).

Work can be interrupted and resumed at any time. An update that waits takes in what arrives for its item (each restates the whole item,
so that only the last counts). An update aborts the queries that have read a part of its item: they begin anew
(two-phase locking, high priority first). A query whose deadline passes is gone. A query succeeds if it ends in time
and nothing that has arrived for its item is missing at that moment.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from random import Random
from typing import Any

from penstock.papers.queries.workload import Workload
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, UpdateJob

_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a run."""

    queries: int
    success: int
    rejected: int
    missed: int
    stale: int
    causes: dict[Cause, int]
    # By item: reads, updates that arrived, updates that were done.
    reads: list[int]
    arrived: list[int]
    updated: list[int]
    busy: float
    update_busy: float
    memory: Any

    def usm(self, weights: OutcomeWeights) -> float:
        worth = (
            weights.success * self.success
            - weights.rejected * self.rejected
            - weights.missed * self.missed
            - weights.stale * self.stale
        )
        return worth / max(1, self.queries)


def serve(load: Workload, policy: QueryPolicy, weights: OutcomeWeights = NAIVE, seed: int = 0) -> Served:
    items = Items.of(load.cost_s, load.period_s)
    situation = QuerySituation(items, weights)
    memory = policy.begin(items, weights)
    waiting, updates = situation.waiting, situation.updates
    lots = Random(f"{seed}/lots")
    count = len(items)
    reads, updated = [0] * count, [0] * count
    ends = dict.fromkeys(Ending, 0)
    causes: dict[Cause, int] = {}
    renewals = [(at, item) for item, at in enumerate(load.first_s)]
    heapify(renewals)
    # Of each item the last update that was taken and is not done.
    pending: dict[int, UpdateJob] = {}
    # Queries that were interrupted, by item; refreshes that were.
    begun: dict[int, list[Query]] = {}
    refreshes = situation.refreshes
    asked = load.queries
    number, sequence = 0, 0
    every = policy.every_s
    wake = every if every is not None else inf
    now = 0.0
    current: Query | UpdateJob | None = None
    update_busy = 0.0

    def end(query: Query, ending: Ending, cause: Cause | None = None) -> None:
        ends[ending] += 1
        policy.ended(situation, query, ending, cause, memory)

    def forget(query: Query) -> None:
        others = begun.get(query.item)
        if others is not None and query in others:
            others.remove(query)

    while True:
        following = asked[number][0] if number < len(asked) else inf
        # After the last query only what waits is still done.
        if following == inf and not waiting:
            break
        renewal = renewals[0][0]
        then = min(following, renewal, wake)
        if current is not None:
            then = min(then, now + current.left_s)
            if isinstance(current, Query):
                then = min(then, current.deadline_s)
        elif waiting:
            then = min(then, waiting[0][0])
        passed = then - now
        now = situation.now_s = then
        if current is not None:
            current.left_s -= passed
            situation.busy_s += passed
            if isinstance(current, UpdateJob):
                update_busy += passed
                if not policy.yielding:
                    situation.update_work_s -= passed
            if current.left_s <= _EPS:
                if isinstance(current, Query):
                    waiting.remove((current.deadline_s, current.id, current))
                    forget(current)
                    end(current, Ending.STALE if items.stale(current.item) else Ending.SUCCESS)
                else:
                    item = current.item
                    items.applied[item] = max(items.applied[item], current.version)
                    updated[item] += 1
                    if policy.yielding:
                        refreshes.pop(item, None)
                    else:
                        heappop(updates)
                        if pending.get(item) is current:
                            del pending[item]
                        if not updates:
                            situation.update_work_s = 0.0
                current = None
        while waiting and waiting[0][0] <= now + _EPS:
            query = waiting.pop(0)[2]
            forget(query)
            if query is current:
                current = None
            end(query, Ending.MISSED)
        if renewal <= now:
            item = renewals[0][1]
            heapreplace(renewals, (renewal + load.period_s[item], item))
            items.arrived[item] += 1
            if policy.take(situation, item, memory):
                cost = load.cost_s[item]
                queued = pending.get(item)
                if queued is not None and queued.left_s == cost:
                    queued.version = items.arrived[item]
                else:
                    sequence += 1
                    job = pending[item] = UpdateJob(item, now + load.period_s[item], cost, items.arrived[item])
                    heappush(updates, (job.deadline_s, sequence, job))
                    situation.update_work_s += cost
        if following <= now:
            at, item, cost, within = asked[number]
            query = Query(number, item, at, at + within, cost)
            number += 1
            reads[item] += 1
            cause = policy.admit(situation, query, memory)
            if cause is None:
                insort(waiting, (query.deadline_s, query.id, query))
            else:
                causes[cause] = causes.get(cause, 0) + 1
                end(query, Ending.REJECTED, cause)
        if wake <= now:
            policy.wake(situation, lots.random(), memory)
            wake += every or inf
        chosen = policy.next(situation, memory)
        if isinstance(chosen, int):
            refresh = refreshes.get(chosen) if policy.yielding else None
            if refresh is None or refresh.version < items.arrived[chosen]:
                refresh = UpdateJob(chosen, now, load.cost_s[chosen], items.arrived[chosen])
                if policy.yielding:
                    refreshes[chosen] = refresh
                else:
                    sequence += 1
                    heappush(updates, (refresh.deadline_s, sequence, refresh))
                    situation.update_work_s += refresh.left_s
            chosen = refresh
        if chosen is not current:
            if isinstance(current, Query) and current.left_s < current.cost_s:
                begun.setdefault(current.item, []).append(current)
            if isinstance(chosen, Query):
                forget(chosen)
            current = chosen
        if isinstance(current, UpdateJob) and begun.get(current.item):
            for query in begun.pop(current.item):
                query.left_s = query.cost_s
    return Served(
        len(asked),
        ends[Ending.SUCCESS],
        ends[Ending.REJECTED],
        ends[Ending.MISSED],
        ends[Ending.STALE],
        causes,
        reads,
        items.arrived,
        updated,
        situation.busy_s / max(now, 1.0),
        update_busy / max(now, 1.0),
        memory,
    )
