"""One processor that serves queries and updates as a policy says (Qu, Labrinidis, Mossé 2006, Sec. 3.1).

Work can be interrupted and resumed at any time. An update that waits takes in what arrives for its item (each restates the whole item,
so that only the last counts). An update aborts the queries that have read a part of its item: they begin anew
(two-phase locking, high priority first). A query whose deadline passes is gone. A query succeeds if it ends in time
and nothing that has arrived for what it reads is missing at that moment, but for so many updates as its freshness allows: of several items, that
which lacks most counts (the paper's minimum).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import exp, expm1, inf, log, sqrt
from random import Random
from statistics import mean, pstdev
from typing import Any

from penstock.papers.queries.workload import Asked, Workload
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Cause, Ending
from penstock.queries.predict import PlanShape, Predictor
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, UpdateJob

_EPS = 1e-6
# What is left of work that takes longer than was thought, as a part of that.
_SOON = 0.05


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


@dataclass(slots=True, eq=False)
class _Work:
    """What really is left of a query or an update, which no policy sees."""

    job: Query | UpdateJob
    whole_s: float
    left_s: float
    # As predicted.
    expected_s: float

    def done(self, seconds: float) -> None:
        self.left_s -= seconds
        if self.whole_s == self.expected_s:
            self.job.left_s = self.left_s
        else:
            self.job.left_s = max(self.expected_s - (self.whole_s - self.left_s), _SOON * self.expected_s)

    def begin_anew(self) -> None:
        self.left_s, self.job.left_s = self.whole_s, self.expected_s


def besides(asked: Asked) -> tuple[int, ...]:
    return asked[4] if len(asked) > 4 else ()


def serve(
    load: Workload,
    policy: QueryPolicy,
    weights: OutcomeWeights = NAIVE,
    seed: int = 0,
    guess: Exact | None = None,
    lag: int = 0,
) -> Served:
    """`guess`: what the policy is told of how long things take; `lag`: so many updates of each item may be missing in an answer."""
    guess = guess or Exact()
    costs = [guess.update(cost) for cost in load.cost_s]
    items = Items.of([one.mean_s for one in costs], load.period_s, [one.spread_s for one in costs])
    situation = QuerySituation(items)
    memory = policy.begin(items)
    waiting, updates = situation.waiting, situation.updates
    lots = Random(f"{seed}/lots")
    count = len(items)
    reads, updated = [0] * count, [0] * count
    ends = dict.fromkeys(Ending, 0)
    causes: dict[Cause, int] = {}
    renewals = [(at, item) for item, at in enumerate(load.first_s)]
    heapify(renewals)
    work: dict[int, _Work] = {}
    # Of each item the last update that was taken and is not done.
    pending: dict[int, UpdateJob] = {}
    # Queries that were interrupted, by item.
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
        for item in query.reads:
            others = begun.get(item)
            if others is not None and query in others:
                others.remove(query)

    def update(item: int, deadline_s: float) -> UpdateJob:
        job = UpdateJob(item, deadline_s, items.cost_s[item], items.arrived[item])
        work[id(job)] = _Work(job, load.cost_s[item], load.cost_s[item], items.cost_s[item])
        return job

    while True:
        following = asked[number][0] if number < len(asked) else inf
        # After the last query only what waits is still done.
        if following == inf and not waiting:
            break
        renewal = renewals[0][0]
        then = min(following, renewal, wake)
        if current is not None:
            then = min(then, now + work[id(current)].left_s)
            if isinstance(current, Query):
                then = min(then, current.deadline_s)
        elif waiting:
            then = min(then, waiting[0][0])
        passed = then - now
        now = situation.now_s = then
        if current is not None:
            doing = work[id(current)]
            before = current.left_s
            doing.done(passed)
            situation.busy_s += passed
            if isinstance(current, UpdateJob):
                update_busy += passed
                if not policy.yielding:
                    situation.update_work_s -= before - current.left_s
            if doing.left_s <= _EPS:
                del work[id(current)]
                if isinstance(current, Query):
                    waiting.remove((current.deadline_s, current.id, current))
                    forget(current)
                    guess.took(current.item, doing.whole_s)
                    stale = any(items.lag(item) > lag for item in current.reads)
                    end(current, Ending.STALE if stale else Ending.SUCCESS)
                else:
                    item = current.item
                    items.applied[item] = max(items.applied[item], current.version)
                    updated[item] += 1
                    if policy.yielding:
                        refreshes.pop(item, None)
                    else:
                        situation.update_work_s -= current.left_s
                        heappop(updates)
                        if pending.get(item) is current:
                            del pending[item]
                        if not updates:
                            situation.update_work_s = 0.0
                current = None
        while waiting and waiting[0][0] <= now + _EPS:
            query = waiting.pop(0)[2]
            forget(query)
            work.pop(id(query), None)
            if query is current:
                current = None
            end(query, Ending.MISSED)
        if renewal <= now:
            item = renewals[0][1]
            heapreplace(renewals, (renewal + load.period_s[item], item))
            items.arrived[item] += 1
            if policy.take(situation, item, memory):
                queued = pending.get(item)
                if queued is not None and queued is not current and queued.left_s == items.cost_s[item]:
                    queued.version = items.arrived[item]
                else:
                    sequence += 1
                    job = pending[item] = update(item, now + load.period_s[item])
                    heappush(updates, (job.deadline_s, sequence, job))
                    situation.update_work_s += job.left_s
        if following <= now:
            at, item, cost, within = asked[number][:4]
            expected = guess.query(item, cost)
            query = Query(
                number,
                item,
                at,
                at + within,
                expected.mean_s,
                others=besides(asked[number]),
                spread_s=expected.spread_s,
                weights=weights,
                lag=lag,
            )
            number += 1
            for one in query.reads:
                reads[one] += 1
            cause = policy.admit(situation, query, memory)
            if cause is None:
                work[id(query)] = _Work(query, cost, cost, expected.mean_s)
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
                work.pop(id(refresh), None)
                refresh = update(chosen, now)
                if policy.yielding:
                    refreshes[chosen] = refresh
                else:
                    sequence += 1
                    heappush(updates, (refresh.deadline_s, sequence, refresh))
                    situation.update_work_s += refresh.left_s
            chosen = refresh
        if chosen is not current:
            if isinstance(current, Query) and work[id(current)].left_s < work[id(current)].whole_s:
                for item in current.reads:
                    begun.setdefault(item, []).append(current)
            if isinstance(chosen, Query):
                forget(chosen)
            current = chosen
        if isinstance(current, UpdateJob) and begun.get(current.item):
            for query in list(begun[current.item]):
                forget(query)
                work[id(query)].begin_anew()
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


# What policies are told of how long things take: the truth, or predictions with errors as those of a live warehouse


class Exact:
    """Everything is known."""

    def query(self, item: int, true_s: float) -> Estimate:
        return Estimate(true_s)

    def update(self, true_s: float) -> Estimate:
        return Estimate(true_s)

    def took(self, item: int, true_s: float) -> None:
        """A query has run."""


@dataclass
class Noisy(Exact):
    """What is seen of each time is off by a factor: log-normal, with this deviation of the logarithm. The guess is calibrated: it knows how large its
    errors are, and what is usual."""

    error: float
    seed: int
    queries: tuple[float, float]
    updates: tuple[float, float]
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.seed}/guesses")

    def seen(self, true_s: float) -> float:
        return log(true_s) + self.chance.gauss(0, self.error)

    def query(self, item: int, true_s: float) -> Estimate:
        return self._shrunk(self.seen(true_s), *self.queries)

    def update(self, true_s: float) -> Estimate:
        return self._shrunk(self.seen(true_s), *self.updates)

    def _shrunk(self, seen: float, usual: float, spread: float) -> Estimate:
        known = 1 / self.error**2
        prior = 1 / max(spread, 0.05) ** 2
        place, variance = (seen * known + usual * prior) / (known + prior), 1 / (known + prior)
        expected = exp(place + variance / 2)
        return Estimate(expected, expected * sqrt(expm1(variance)))


class LearnsAsItGoes(Noisy):
    """Queries as the predictor of a live warehouse sees them: it knows nothing at the start, and what it sees of the size of a query is off by the error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.predictor = Predictor()
        self._sizes: dict[tuple[int, float], int] = {}

    def query(self, item: int, true_s: float) -> Estimate:
        # At the pace that it begins with a second is 100 MB; here it is other.
        size = self._sizes[item, true_s] = int(50e6 * exp(self.seen(true_s)))
        return self.predictor.predict(PlanShape(str(item)), size)

    def took(self, item: int, true_s: float) -> None:
        self.predictor.observe(PlanShape(str(item)), self._sizes.pop((item, true_s), int(50e6 * true_s)), true_s)


def guesses(error: float, cold: bool, seed: int, queries_s: Sequence[float], updates_s: Sequence[float]) -> Exact:
    if not error and not cold:
        return Exact()
    usual = [(mean(logs), pstdev(logs)) for logs in ([log(one) for one in some] for some in (queries_s, updates_s))]
    return (LearnsAsItGoes if cold else Noisy)(max(error, 0.05), seed, *usual)
