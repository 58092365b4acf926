"""Hold: a job that would keep better ones waiting starts only if its own waiting costs more. Not from the paper.

Updates are not interrupted. So before a job takes a track two losses are compared, both in priority * staleness * seconds:

  if it starts   the tables that go before it, and whose batches come while it runs, find one track less. With m tracks the best
                 of them up to a load of m, as slow as the machine is now, are served; the others, of weight U(m), get stale. The loss is
                 the integral of t * (U(m) - U(m + 1)) over the time that it runs, until jobs that end leave tracks enough.
  if it waits    until the next of the jobs ends that keep the better ones waiting as well, in R seconds: benefit * R, and as many
                 times more as jobs like it would follow on that track until the tracks are not busy any more (D / E; D as in `patient`).

A backfill can be far longer than the usual updates of its table, and its benefit grows while it waits. So whatever that is, jobs on old
partitions that take as long as the shortest period leave as many tracks as the tables need whose batches come meanwhile; one may always run.

It starts if waiting costs at least as much (`care` times). Tables that are not busy with what goes before a job hold nothing back, so
where all is served anyway no track idles. Those that go before it are all whose benefit per second is `better` times larger. How slow the machine is shows in the jobs that finish.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import accumulate
from math import ceil, inf
from typing import Any

from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import NOTHING, Outlook, ReadyJob, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Recurring, Why, recurring, recurs, upkeep

_FROM_A_FAILURE = 2.0
# The most of its time that a table counts as busy with itself, and the part of the busy time that is still to come: as in `patient`.
_ALONE, _LASTS = 0.5, 0.5
# A job that takes longer than expected is expected to take half as much again, and then a little more.
_LONGER, _LEAST_LEFT = 1.5, 0.1


class JobOrder:
    """All tables in the order in which they go when each has the data of one period."""

    def __init__(self, graph: Graph, jobs: Iterable[Recurring]) -> None:
        self._graph = graph
        self._tables = {job.table: self._entry(job) for job in jobs}
        self._sorted = sorted((entry[0], name) for name, entry in self._tables.items())
        # In this order: indices, weights, loads. And the tables by period, which does not change.
        self._keys = [key for key, _ in self._sorted]
        self._weights = [self._tables[name][1] for _, name in self._sorted]
        self._loads = [self._tables[name][2] for _, name in self._sorted]
        self._by_period = sorted((graph.updated_every_us[name] / SECOND_US, name) for name in self._tables)
        # Of the first so many together, as far as somebody asked: among ten thousand tables that is rarely far.
        self._weight, self._load = [0.0], [0.0]
        self._within: list[float] | None = None

    def _entry(self, job: Recurring) -> tuple[float, float, float, float]:
        """Its (negated) benefit per second, its weight, its load in tracks, and how many times its benefit counts."""
        names = (job.table, *self._graph.updated_with[job.table])
        slack = 1 / (1 - min(_ALONE, job.utilisation))
        weight = slack * sum(self._graph.inherited[name] for name in names)
        own = slack * sum(self._graph.tables[name].priority for name in names)
        return -weight * job.period_s / job.cost_s, own, job.utilisation, slack

    def change(self, jobs: Iterable[Recurring]) -> None:
        for job in jobs:
            n = bisect_left(self._sorted, (self._tables[job.table][0], job.table))
            del self._sorted[n], self._keys[n], self._weights[n], self._loads[n]
            del self._weight[n + 1 :], self._load[n + 1 :]
            key, weight, load, _ = self._tables[job.table] = self._entry(job)
            n = bisect_left(self._sorted, (key, job.table))
            self._sorted.insert(n, (key, job.table))
            self._keys.insert(n, key)
            self._weights.insert(n, weight)
            self._loads.insert(n, load)
            del self._weight[n + 1 :], self._load[n + 1 :]
        self._within = None

    def _sum(self, first: int) -> None:
        done = len(self._load)
        if first >= done:
            self._weight[-1:] = accumulate(self._weights[done - 1 : first], initial=self._weight[-1])
            self._load[-1:] = accumulate(self._loads[done - 1 : first], initial=self._load[-1])

    def key(self, table: str) -> float:
        """Where it goes: the smaller, the sooner."""
        return self._tables[table][0] if table in self._tables else 0.0

    def slack(self, table: str) -> float:
        return self._tables[table][3] if table in self._tables else 1.0

    def before(self, key: float) -> int:
        """How many tables go before."""
        return bisect_left(self._keys, key)

    def within(self, seconds: float) -> float:
        """The load of the tables whose next batch comes in so much time."""
        if self._within is None:
            self._within = list(accumulate((self._tables[name][2] for _, name in self._by_period), initial=0.0))
        return self._within[bisect_right(self._by_period, (seconds, chr(0x10FFFF)))]

    @property
    def shortest_s(self) -> float:
        return self._by_period[0][0] if self._by_period else inf

    def load(self, first: int) -> float:
        self._sum(first)
        return self._load[first]

    def unserved(self, first: int, capacity: float) -> float:
        """The weight of those of the first so many tables that a capacity of tracks is not enough for."""
        self._sum(first)
        weight, load = self._weight, self._load
        if capacity <= 0:
            return weight[first]
        if load[first] <= capacity:
            return 0.0
        n = bisect_right(load, capacity, 0, first + 1) - 1
        part = (capacity - load[n]) / (load[n + 1] - load[n])
        return weight[first] - weight[n] - part * (weight[n + 1] - weight[n])


class Hold(Placement):
    def __init__(
        self,
        *,
        headroom: float = 1.1,
        forget: float = 0.95,
        care: float = 1.0,
        tries: int = 16,
        better: float = 3.0,
        graph: Graph | None = None,
    ) -> None:
        self.headroom, self.forget, self.care, self.tries = headroom, forget, care, tries
        self.better = better
        self._graph = graph
        # What was found for an outlook and its version.
        self._planned: tuple[Outlook, int, JobOrder] | None = None

    def knowing(self, graph: Graph) -> Hold:
        return Hold(
            headroom=self.headroom,
            forget=self.forget,
            care=self.care,
            tries=self.tries,
            better=self.better,
            graph=graph,
        )

    def order(self, outlook: Outlook) -> JobOrder | None:
        if self._graph is None:
            return None
        planned = self._planned
        if planned is None or planned[0] is not outlook:
            found = JobOrder(self._graph, recurring(self._graph, outlook))
        elif planned[1] == outlook.version:
            return planned[2]
        else:
            changed, found = outlook.changed_since(planned[1]), planned[2]
            if changed is None:
                found = JobOrder(self._graph, recurring(self._graph, outlook))
            else:
                found.change(recurs(self._graph, outlook, name) for name in changed)
        self._planned = (outlook, outlook.version, found)
        return found

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        """How slow the machine is now, against what was expected: the latest jobs count most."""
        slowness = float(situation.memory.get("slowness", 1.0))
        for done in situation.finished:
            if done.expected_s <= 0:
                continue  # nothing was expected of it
            seen = done.took_s / done.expected_s
            if done.failed:
                # It shows at most that the machine is slower than was thought, and perhaps only a time-out.
                seen = max(slowness, min(seen, _FROM_A_FAILURE * slowness))
            slowness = self.forget * slowness + (1 - self.forget) * seen
        return {"slowness": slowness}

    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        order = self.order(situation.outlook)
        slow, now = memory.get("slowness", 1.0), situation.now_us
        busy_s = _LASTS * (now - memory.get("busy_since_us", now)) / SECOND_US
        free = list(situation.free)
        starts: list[Start] = []
        # Of each job that runs, how long it still takes and where its table goes; only if somebody asks.
        held: list[tuple[float, float]] | None = None
        refused, taken, factor = 0, len(situation.running), self.headroom * slow
        for value, job in ranked:
            if job.upkeep:
                return tuple(starts) if starts else upkeep(situation, job, free)
            if order is not None and job.awaited_us is None:
                key, benefit = self._rank(situation, job, order)
                first = order.before(key)
                waits = job.late > 0 and self._too_long(situation, job, starts, slow, order)
                if not waits and first and order.load(first) * factor > situation.tracks - 1 - taken:
                    if held is None:
                        held = _held(situation, order, slow)
                        for start in starts:
                            insort(held, (situation.ready[start.table].expected_s * slow, order.key(start.table)))
                    waits = not self._worth(situation.tracks, job, held, busy_s, slow, order, key, benefit)
                if waits:
                    refused += 1
                    if refused >= self.tries:
                        break
                    continue
                if held is not None:
                    insort(held, (job.expected_s * slow, order.key(job.table)))
            taken += 1
            starts.append(Start(job.table, free.pop(0), partial(_said, why, job, value, slow)))
            if not free:
                break
        return tuple(starts)

    def _rank(self, situation: Situation, job: ReadyJob, order: JobOrder) -> tuple[float, float]:
        """Where it goes among the tables, and what it brings."""
        gain_s = job.gain_us / SECOND_US
        if job.late:
            gain_s += job.history_weight * job.late * (situation.now_us - job.late_since_us) / SECOND_US
        benefit = order.slack(job.table) * job.inherited * gain_s
        return -self.better * benefit / job.expected_s, benefit

    def _too_long(self, situation: Situation, job: ReadyJob, starts: list[Start], slow: float, order: JobOrder) -> bool:
        """Whether it would make old partitions on a track that the tables need whose batches come meanwhile."""
        length, shortest = job.expected_s * slow, order.shortest_s
        if length < shortest:
            return False
        long = sum(run.expected_s * slow >= shortest for run in situation.running.values())
        long += sum(situation.ready[start.table].expected_s * slow >= shortest for start in starts)
        needed = ceil(self.headroom * slow * order.within(length) - 1e-9)
        return long >= max(1, situation.tracks - needed)

    def _worth(
        self,
        tracks: int,
        job: ReadyJob,
        held: list[tuple[float, float]],
        busy_s: float,
        slow: float,
        order: JobOrder,
        key: float,
        benefit: float,
    ) -> bool:
        """Whether to wait would cost more than to start."""
        length = job.expected_s * slow
        factor = self.headroom * slow
        blocking = [left for left, its in held if its >= key]
        first = order.before(key) if blocking else 0
        if not first:
            return True
        tracks -= 1 + len(blocking)
        if order.load(first) * factor <= tracks:
            return True
        loss, at = 0.0, 0.0
        here = order.unserved(first, tracks / factor)
        for left in (*blocking, length):
            tracks += 1
            until, more = min(left, length), order.unserved(first, tracks / factor)
            loss += (here - more) * (until * until - at * at) / 2
            at, here = until, more
            if at >= length or here <= 0:
                break
        return benefit * blocking[0] * (1 + busy_s / length) >= self.care * loss


def _held(situation: Situation, order: JobOrder, slow: float) -> list[tuple[float, float]]:
    found = []
    for run in situation.running.values():
        whole = run.expected_s * slow
        part = (situation.now_us - run.started_us) / SECOND_US / whole
        left = max(1 - part, (_LONGER - part) / 2, _LEAST_LEFT) * whole
        found.append((left, order.key(run.table)))
    found.sort()
    return found


def _said(why: Why, job: Any, value: float, slowness: float) -> str:
    return f"{why(job, value)}; updates now take {slowness:.2f} of their usual time"
