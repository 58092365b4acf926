"""The adaptive scheduler alone, fast and exact: feeds of files with times of arrival and timestamps, tables, tracks.

As in the model of the paper (Leontyev, Johnson, Anderson 2010, Sec. II) a base table loads the oldest files, so many a job, and
a derived one takes at most a period of data. Everything is recorded: what the tests and experiments compare with bounds.
The live policy runs the same scheduler behind the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from math import ceil
from typing import NamedTuple

from penstock.model.time import SECOND_US
from penstock.scheduling.recovery.bounds import Delivery, Model
from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.progress import ModeChange
from penstock.scheduling.recovery.tasks import PeriodRule, RecoveryTask, provisioned
from penstock.sim.arrivals import batches, factors
from penstock.sim.scenario import Scenario, us

# More files than this save hardly any start-up.
_MOST_MERGED = 16


class File(NamedTuple):
    arrives_us: int
    stamp_us: int


@dataclass(slots=True)
class TaskJob:
    table: str
    # 1 for the first of its table.
    number: int
    start_us: int
    end_us: int
    # Of the job of the sequence that it is; both None for one that ran in the background all its time.
    release_us: int | None = None
    deadline_us: int | None = None
    background: bool = False
    recovering: bool = False
    fresh_us: int = 0


# How long a job takes, from its table, its number and the length of data that it takes (files for base tables).
Duration = Callable[[str, int, int, int], int]


@dataclass
class Ran:
    jobs: list[TaskJob] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    # Of each table the times at which the trailing edge moved, and at which it got fresher: (time, edge).
    edges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    fresh: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    # The largest load (6) that was ever reserved.
    load: float = 0.0

    def of(self, table: str) -> list[TaskJob]:
        return [job for job in self.jobs if job.table == table]

    def lags(self, table: str) -> list[tuple[int, int]]:
        """How far behind its trailing edge a table was: (since, lag)."""
        steps = [(at, 0, edge) for at, edge in self.edges[table]] + [(at, 1, edge) for at, edge in self.fresh[table]]
        edge = fresh = 0
        found: list[tuple[int, int]] = []
        for at, kind, value in sorted(steps):
            edge, fresh = (edge, value) if kind else (value, fresh)
            if kind:
                fresh = value
            if found and found[-1][0] == at:
                found.pop()
            found.append((at, max(0, edge - fresh)))
        return found

    def stalest_us(self, table: str, since_us: int, until_us: int) -> int:
        """The largest staleness t - F in a stretch of time."""
        worst, fresh = 0, 0
        for at, value in self.fresh[table]:
            if since_us < at <= until_us:
                worst = max(worst, at - fresh)
            fresh = value if at <= until_us else fresh
            if at > until_us:
                break
        return max(worst, until_us - fresh)

    def stale_until_us(self, table: str, since_us: int, limit_us: int) -> int:
        """When a table was staler than a limit for the last time, from some time on; that time if it was not."""
        last, fresh = since_us, 0
        for at, value in self.fresh[table]:
            if at > since_us and at - fresh > limit_us:
                last = at
            fresh = value
        return last


def clearing_us(task: RecoveryTask, response_us: int, outage_us: int, jitter_us: int = 0) -> int | None:
    """x_k of Theorem 4: how long one table needs from when it enters recovery mode, if it goes on until it is fresh. None if the
    table cannot catch up, because its period would not shrink."""
    p, short = task.period_us, task.recovery_us
    if short >= p:
        return None
    return ceil((response_us * p + (outage_us + jitter_us + p) * short) / (p - short))


def run(
    modes: Modes,
    feeds: Mapping[str, Sequence[File]],
    sources: Mapping[str, Sequence[str]],
    duration: Duration,
    horizon_us: int,
    returns: Iterable[tuple[int, str]] = (),
) -> Ran:
    """Simulate until the horizon. `sources` has the derived tables, each after the tables it reads; `returns` says when an
    outage of which base table is over."""
    return _Run(modes, feeds, sources, duration, returns).until(horizon_us)


class _Run:
    def __init__(
        self,
        modes: Modes,
        feeds: Mapping[str, Sequence[File]],
        sources: Mapping[str, Sequence[str]],
        duration: Duration,
        returns: Iterable[tuple[int, str]],
    ) -> None:
        self.modes, self.feeds, self.sources, self.duration = modes, feeds, sources, duration
        self.readers: dict[str, list[str]] = {}
        for table, read in sources.items():
            for source in read:
                self.readers.setdefault(source, []).append(table)
        tables = [*feeds, *sources]
        self.fresh = dict.fromkeys(tables, 0)
        self.edge = dict.fromkeys(tables, 0)
        self.arrived = dict.fromkeys(feeds, 0)
        self.loaded = dict.fromkeys(feeds, 0)
        self.count = dict.fromkeys(tables, 0)
        self.ran = Ran(edges={t: [] for t in tables}, fresh={t: [] for t in tables})
        modes.changes = self.ran.changes
        self.running: dict[str, TaskJob] = {}
        # (time, 0 = end | 1 = arrival | 2 = return, sequence, table)
        self.heap: list[tuple[int, int, int, str]] = []
        self.sequence = 0
        for at_us, table in returns:
            self._plan(at_us, 2, table)
        for table, files in feeds.items():
            if files:
                self._plan(files[0].arrives_us, 1, table)

    def _plan(self, at_us: int, kind: int, table: str) -> None:
        self.sequence += 1
        heappush(self.heap, (at_us, kind, self.sequence, table))

    def until(self, horizon_us: int) -> Ran:
        modes, heap = self.modes, self.heap
        while True:
            due = modes.due_us
            now = min(heap[0][0] if heap else horizon_us, horizon_us if due is None else max(due, modes.now_us))
            if now >= horizon_us:
                return self.ran
            modes.advance(now)
            while heap and heap[0][0] == now:
                _, kind, _, table = heappop(heap)
                (self._end, self._arrive, self._return)[kind](now, table)
            modes.settle()
            self._adopt()
            for choice in list(self._chosen()):
                self._start(now, *choice)
            self.ran.load = max(self.ran.load, modes.load)

    def _chosen(self) -> Iterator[tuple[str, int]]:
        free = self.modes.tracks - len(self.running)
        if free > 0:
            for choice in self.modes.choices():
                yield choice.table, choice.take
                free -= 1
                if not free:
                    return

    def _adopt(self) -> None:
        """Jobs in the background that became those which were released."""
        for table, job in self.running.items():
            if job.release_us is None and self.modes[table].runs:
                last = self.modes[table].last
                assert last is not None
                job.release_us, job.deadline_us = last

    def _arrive(self, now: int, table: str) -> None:
        files = self.feeds[table]
        number = self.arrived[table]
        while number < len(files) and files[number].arrives_us <= now:
            number += 1
        self.arrived[table] = number
        if number < len(files):
            self._plan(files[number].arrives_us, 1, table)
        self._edge(now, table, files[number - 1].stamp_us)

    def _return(self, now: int, table: str) -> None:
        above = self.modes.above or {}
        for each in self.modes.tasks:
            if each == table or table in above.get(each, ()):
                self.modes.owe(now, each)

    def _edge(self, now: int, table: str, edge_us: int) -> None:
        if edge_us > self.edge[table]:
            self.edge[table] = edge_us
            self.ran.edges[table].append((now, edge_us))
            self.modes.lags(now, table, edge_us - self.fresh[table])

    def _start(self, now: int, table: str, take: int) -> None:
        self.modes.starts(now, table)
        progress = self.modes[table]
        self.count[table] += 1
        job = TaskJob(
            table, self.count[table], now, now, recovering=progress.recovering, background=progress.background
        )
        if not progress.background and progress.last is not None:
            job.release_us, job.deadline_us = progress.last
        if table in self.feeds:
            files = self.feeds[table][self.loaded[table] : min(self.arrived[table], self.loaded[table] + take)]
            amount = len(files)
            self.loaded[table] += amount
            job.fresh_us = files[-1].stamp_us
        else:
            job.fresh_us = min(self.edge[table], self.fresh[table] + take * self.modes.tasks[table].period_us)
            amount = job.fresh_us - self.fresh[table]
        job.end_us = now + max(1, self.duration(table, job.number, amount, job.fresh_us - self.fresh[table]))
        self.running[table] = job
        self._plan(job.end_us, 0, table)

    def _end(self, now: int, table: str) -> None:
        job = self.running.pop(table)
        self.ran.jobs.append(job)
        self.fresh[table] = job.fresh_us
        self.ran.fresh[table].append((now, job.fresh_us))
        self.modes.ends(now, table, self.edge[table] - job.fresh_us)
        for reader in self.readers.get(table, ()):
            self._edge(now, reader, min(self.fresh[source] for source in self.sources[reader]))


# Scenarios


def feeds_of(scenario: Scenario, seed: int) -> dict[str, list[File]]:
    """The files of a scenario, on the same arrivals as every other simulation of it."""
    horizon = us(scenario.horizon_s)
    return {
        table.name: [
            File(batch.arrives_us, batch.to_us)
            for batch in takewhile(lambda batch: batch.arrives_us < horizon, batches(scenario, table, seed))
            if batch.to_us > 0
        ]
        for table in scenario.tables
        if table.is_base
    }


def durations_of(scenario: Scenario, seed: int) -> Duration:
    """How long jobs of a scenario take, with the same luck as in every other simulation of it."""
    tables = {table.name: table for table in scenario.tables}
    draw = {name: factors(scenario, table, seed) for name, table in tables.items()}

    def duration(name: str, _number: int, amount: int, length_us: int) -> int:
        table = tables[name]
        data_s = amount * table.period_s if table.is_base else length_us / SECOND_US
        return round((table.alpha_s + table.beta * data_s) * draw[name]() * SECOND_US)

    return duration


def model_of(scenario: Scenario, *, worst: bool, periods: PeriodRule = "single", merge: bool = False) -> Model:
    """Tasks for the tables of a scenario, with the longest times that jobs take or with the average ones.

    With `merge` a job in the background loads as many files as fit into the longest jobs that there are anyway, so that
    nobody waits longer than without."""
    factor = 1 + scenario.jitter if worst else 1.0
    graph = scenario.graph
    costs = {t.name: round(factor * scenario.costs_s[t.name] * SECOND_US) for t in scenario.tables}
    limit = sorted(costs.values(), reverse=True)[min(scenario.tracks, len(costs)) - 1]
    tasks, merged = [], {}
    for table in scenario.tables:
        period = graph.periods_us[table.name]
        most, length = 1, costs[table.name]
        while merge and table.is_base and most < _MOST_MERGED:
            longer = round(factor * (table.alpha_s * SECOND_US + table.beta * (most + 1) * period))
            if longer > min(limit, period):
                break
            most, length = most + 1, longer
        if most > 1:
            merged[table.name] = length
        tasks.append(RecoveryTask(table.name, costs[table.name], period, period, priority=table.priority, most=most))
    deliveries = {
        table.name: Delivery(
            graph.periods_us[table.name],
            round(table.arrival_jitter * graph.periods_us[table.name]) if table.arrivals == "jittered" else 0,
        )
        for table in scenario.tables
        if table.is_base
    }
    sources = {name: graph_sources(scenario, name) for name in graph.order if not graph.tables[name].is_base}
    tasks = provisioned(tasks, scenario.tracks, periods)
    return Model(tuple(tasks), scenario.tracks, deliveries, sources, merged_us=merged).with_thresholds()


def graph_sources(scenario: Scenario, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source.table for source in scenario.graph.tables[name].sources))


def simulate(scenario: Scenario, model: Model, seed: int, *, plain: bool = False) -> Ran:
    """A scenario under the adaptive scheduler; `plain` is the paper's, without what was added to it."""
    modes = Modes(
        model.tasks,
        model.tracks,
        arbitration="increase" if plain else "staleness",
        background=not plain,
        above=None if plain else model.above,
    )
    bases = [table.name for table in scenario.tables if table.is_base]
    returns = [(us(o.end_s), name) for o in scenario.outages for name in ([o.table] if o.table else bases)]
    return run(
        modes, feeds_of(scenario, seed), model.sources, durations_of(scenario, seed), us(scenario.horizon_s), returns
    )
