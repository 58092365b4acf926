"""Pure scheduling, fast: a loop that knows arrivals, updates and edges, and nothing of files, partitions or requests.

It hands the same situations to the same policies as the controller does, and the tests check that both give the same
schedule to the microsecond. For experiments of a million events a point; everything that a real warehouse has besides
(late data, failures, backfills, learned costs) is simulated with the controller itself, in `runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from penstock.model.time import SECOND_US
from penstock.scheduling.inheritance import inherited
from penstock.scheduling.jobs import NOTHING, FinishedJob, ReadyJob, ReadyJobs, RunningJob, Situation, UpdatePolicy
from penstock.scheduling.policies import bound
from penstock.sim.chance import factors, first_arrival_us, slow_at
from penstock.sim.outcome import FreshnessSum, Outcome
from penstock.sim.scenario import Scenario, ScenarioError, us

_NEVER = 1 << 62


def supports(scenario: Scenario) -> bool:
    return (
        not scenario.outages
        and not scenario.backfills
        and not scenario.failures
        and scenario.costs == "known"
        and all(t.arrivals == "periodic" and not t.late_share for t in scenario.tables if t.is_base)
    )


class Known:
    """The outlook of a simulation whose costs and arrivals are known."""

    version = 0

    def __init__(self, costs_s: dict[str, float]) -> None:
        self._costs_s = costs_s
        self.next_us: dict[str, int] = {}

    def period_cost_s(self, table: str) -> float:
        return self._costs_s[table]

    def next_release_us(self, table: str) -> int | None:
        return self.next_us.get(table)


class _Table:
    __slots__ = (
        "alpha",
        "at_us",
        "base",
        "beta",
        "draw",
        "fresh_us",
        "inherited",
        "limit_us",
        "name",
        "newest_us",
        "number",
        "period_us",
        "priority",
        "readers",
        "release_us",
        "running",
        "since_us",
        "sources",
        "taking_us",
        "total",
    )

    name: str
    number: int
    base: bool
    period_us: int
    priority: float
    inherited: float
    alpha: float
    beta: float
    draw: Callable[[], float]
    sources: list[_Table]
    readers: list[_Table]
    # How far its data reach, how far they could, and how far they will when the running update is done.
    fresh_us: int
    newest_us: int
    taking_us: int
    # The most that one update takes.
    limit_us: int
    # When the oldest change came that is not taken yet, and the oldest that is being taken.
    release_us: int
    at_us: int
    running: bool
    total: int
    since_us: int


def simulate(
    scenario: Scenario,
    policy: UpdatePolicy,
    seed: int = 0,
    *,
    max_events: int | None = None,
    trace: bool = False,
) -> Outcome:
    """Run a scenario. With `max_events` it ends after so many arrivals and completions, if the horizon is not sooner."""
    return _Lean(scenario, policy, seed, trace).run(max_events or _NEVER)


class _Lean:
    def __init__(self, scenario: Scenario, policy: UpdatePolicy, seed: int, trace: bool) -> None:
        if not supports(scenario):
            raise ScenarioError("the lean simulation knows periodic arrivals and slowdowns only")
        self.scenario = scenario
        graph = scenario.graph
        self.policy = bound(policy, graph)
        self.ready = ReadyJobs(getattr(self.policy, "index", None), getattr(self.policy, "tie", None))
        self.factor = scenario.mean_factor
        self.slow_at = slow_at(scenario)
        self.tracks = scenario.tracks
        chop: float | None = getattr(self.policy, "chop", None)
        weights = inherited(graph, "max")
        self.tables: list[_Table] = []
        by_name: dict[str, _Table] = {}
        specs = {spec.name: spec for spec in scenario.tables}
        for number, name in enumerate(graph.order):
            spec = specs[name]
            table = _Table()
            table.name, table.number, table.base = name, number, spec.is_base
            table.period_us = graph.periods_us[name]
            table.priority, table.inherited = spec.priority, weights[name]
            table.alpha, table.beta = spec.alpha_s, spec.beta
            table.draw = factors(scenario, spec, seed)
            table.sources = [by_name[source] for source in dict.fromkeys(spec.sources)]
            table.readers = []
            for source in table.sources:
                source.readers.append(table)
            if spec.is_base:
                table.fresh_us = first_arrival_us(spec, seed) - table.period_us
            else:
                table.fresh_us = min(source.fresh_us for source in table.sources)
            table.newest_us = table.fresh_us
            table.limit_us = _NEVER if chop is None else int(chop * table.period_us)
            if chop is not None and spec.is_base:
                table.limit_us = int(chop) * table.period_us
            table.release_us = table.at_us = _NEVER
            table.running = False
            table.total = table.since_us = 0
            table.taking_us = 0
            by_name[name] = table
            self.tables.append(table)
        self.by_name = by_name
        self.outlook = Known(scenario.costs_s)
        self.trace: list[tuple[int, str, int, int]] | None = [] if trace else None

    def run(self, max_events: int) -> Outcome:
        horizon = us(self.scenario.horizon_s)
        tracks = self.tracks
        ready = self.ready
        put = self._put
        policy_decide = self.policy.decide
        by_name = self.by_name
        outlook = self.outlook
        next_us = outlook.next_us
        slow_at = self.slow_at
        trace = self.trace
        learns = bool(getattr(self.policy, "learns", True))
        memory = NOTHING
        running: dict[int, RunningJob] = {}
        on_track: list[_Table | None] = [None] * tracks
        started: list[int] = [0] * tracks
        free = list(range(tracks))
        finished: list[FinishedJob] = []
        # (time, 0 = end of a job | 1 = arrival, sequence, track or table)
        heap: list[tuple[int, int, int, int]] = []
        for table in self.tables:
            if table.base:
                first = table.fresh_us + table.period_us
                heap.append((first, 1, table.number, table.number))
                next_us[table.name] = first
        heapify(heap)
        tables = self.tables
        events = updates = busy_us = 0
        sequence = len(tables)
        now = 0
        while heap[0][0] < horizon and events < max_events:
            now = heap[0][0]
            while heap[0][0] == now:
                _, kind, _, number = heap[0]
                events += 1
                if kind:
                    table = tables[number]
                    due = now + table.period_us
                    heapreplace(heap, (due, 1, number, number))
                    next_us[table.name] = due
                    table.newest_us = now
                    if table.release_us == _NEVER:
                        table.release_us = now
                    if not table.running:
                        put(table)
                    continue
                heappop(heap)
                done = on_track[number]
                assert done is not None
                on_track[number] = None
                free.append(number)
                if learns:
                    job = running[number]
                    took = (now - started[number]) / SECOND_US
                    finished.append(FinishedJob(done.name, number, now, job.expected_s, took))
                del running[number]
                updates += 1
                done.total += done.fresh_us * (now - done.since_us)
                done.since_us = now
                done.fresh_us = done.taking_us
                done.running = False
                at = now if done.base else done.at_us
                for reader in done.readers:
                    edge = done.fresh_us
                    for source in reader.sources:
                        if source.fresh_us < edge:
                            edge = source.fresh_us
                    if edge > reader.newest_us:
                        reader.newest_us = edge
                        if at < reader.release_us:
                            reader.release_us = at
                        if not reader.running:
                            put(reader)
                if done.newest_us > done.fresh_us:
                    put(done)
            if not free or not ready:
                continue
            free.sort()
            situation = Situation(now, ready, running, tuple(free), tracks, memory, tuple(finished), outlook)
            decision = policy_decide(situation)
            memory = decision.memory
            if finished:
                finished = []
            for start in decision.starts:
                name, track = start.table, start.track
                job_ = ready[name]
                ready.discard(name)
                free.remove(track)
                table = by_name[name]
                table.running = True
                table.taking_us = table.fresh_us + job_.gain_us
                table.at_us = table.release_us
                if table.newest_us == table.taking_us:
                    table.release_us = _NEVER
                elif table.base:
                    table.release_us = table.taking_us + table.period_us
                seconds = (table.alpha + table.beta * (job_.amount / SECOND_US)) * slow_at(now) * table.draw()
                took_us = max(1, round(seconds * SECOND_US))
                busy_us += took_us
                running[track] = RunningJob(name, track, now, job_.expected_s)
                on_track[track] = table
                started[track] = now
                sequence += 1
                heappush(heap, (now + took_us, 0, sequence, track))
                if trace is not None:
                    trace.append((now, name, track, took_us))
        return self._outcome(horizon if events < max_events else now, events, updates, busy_us)

    def _put(self, table: _Table) -> None:
        gain = table.newest_us - table.fresh_us
        if gain > table.limit_us:
            gain = table.limit_us
        amount = float(gain)
        release = table.release_us
        self.ready.put(
            ReadyJob(
                table.name,
                table.priority,
                table.inherited,
                release,
                release + table.period_us,
                gain,
                0,
                0,
                0.1,
                amount,
                self.factor * (table.alpha + table.beta * (amount / SECOND_US)),
            )
        )

    def _outcome(self, horizon: int, events: int, updates: int, busy_us: int) -> Outcome:
        stale: dict[str, float] = {}
        weighted = 0.0
        for table in self.tables:
            total = FreshnessSum(table.fresh_us)
            total.total, total.since_us = table.total, table.since_us
            stale[table.name] = total.mean_s(horizon)
            weighted += table.priority * stale[table.name]
        return Outcome(stale, weighted, busy_us / (horizon * self.tracks), events, updates, trace=self.trace or [])
