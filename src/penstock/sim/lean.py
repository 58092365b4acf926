"""Pure scheduling, fast: a loop that knows arrivals, updates and edges, and nothing of files, partitions or requests.

It hands the same situations to the same policies as the controller does, and the tests check that both give the same
schedule to the microsecond. For experiments of a million events a point; everything that a real warehouse has besides
(late data, failures, backfills, learned costs) is simulated with the controller itself, in `runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil

from penstock.model.cost import WORTH_A_START
from penstock.model.time import SECOND_US
from penstock.scheduling import guard
from penstock.scheduling.chopping import Cut
from penstock.scheduling.jobs import NOTHING, FinishedJob, ReadyJob, RunningJob, Situation, UnknownOutlook
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import UpdatePolicy, powers
from penstock.sim import runtime
from penstock.sim.arrivals import first_arrival_us, luck, slow_phases
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
        and not any(t.group or t.drift != 1 for t in scenario.tables)
    )


class BeyondLean(Exception):
    """The policy wants to be woken, or a job to take a part of what there is: the controller can do that."""


class _Table:
    __slots__ = (
        "alpha",
        "at_us",
        "base",
        "beta",
        "cost_s",
        "draw",
        "fresh_us",
        "inherited",
        "lacks",
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
        "start_up_s",
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
    # What the job that the policy knows of takes, without slowdown or luck; what every one takes, with usual slowdowns.
    cost_s: float
    start_up_s: float
    draw: Callable[[], float]
    sources: list[_Table]
    readers: list[_Table]
    # How far its data reach, how far they could, and how far they will when the running update is done.
    fresh_us: int
    newest_us: int
    taking_us: int
    # The most that one update takes.
    limit_us: int
    # Of a view that is cut: up to which partition something is not taken yet, and since when, the oldest partitions first.
    lacks: list[tuple[int, int]]
    # When the oldest change came that is not taken yet, and the oldest that is being taken.
    release_us: int
    at_us: int
    running: bool
    total: int
    since_us: int


def _limit_us(cut: Cut, table: _Table) -> int:
    """The most that one update takes: so many periods, and as much as is worth a start; base tables load whole batches."""
    if not table.beta:
        return _NEVER
    periods = cut.periods(table.alpha, table.beta * table.period_us / SECOND_US)
    worth_s = WORTH_A_START * table.alpha / table.beta
    if not table.base:
        return max(int(periods * table.period_us), us(worth_s))
    return max(int(periods), ceil(worth_s * SECOND_US / table.period_us)) * table.period_us


class _Outlook(UnknownOutlook):
    """Costs and arrivals, as they are."""

    def __init__(self, costs_s: dict[str, float], tables: dict[str, _Table]) -> None:
        self._costs_s = costs_s
        self._tables = tables

    def period_cost_s(self, table: str) -> float:
        return self._costs_s[table]

    def changed_since(self, version: int) -> Iterable[str]:
        return ()

    def next_release_us(self, table: str) -> int | None:
        found = self._tables[table]
        return found.newest_us + found.period_us if found.base else None


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
        self.grain = next(iter(graph.tables.values())).grain
        self.policy = bound(policy, graph)
        can = powers(self.policy)
        self.learns = can.learns
        self.ready = can.no_jobs()
        self.factor = scenario.mean_factor
        self.tracks = scenario.tracks
        chop = can.cuts(graph)
        weights = can.weights_in(graph)
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
            table.start_up_s = self.factor * spec.alpha_s
            table.draw = luck(spec, seed)
            table.sources = [by_name[source] for source in dict.fromkeys(spec.sources)]
            table.readers = []
            for source in table.sources:
                source.readers.append(table)
            if spec.is_base:
                table.fresh_us = first_arrival_us(spec, seed) - table.period_us
            else:
                table.fresh_us = min(source.fresh_us for source in table.sources)
            table.newest_us = table.fresh_us
            table.limit_us = _limit_us(chop[name], table) if name in chop else _NEVER
            table.lacks = []
            table.release_us = table.at_us = _NEVER
            table.running = False
            table.total = table.since_us = 0
            table.taking_us = table.fresh_us
            by_name[name] = table
            self.tables.append(table)
        self.by_name = by_name
        self.outlook = _Outlook(scenario.costs_s, by_name)
        self.trace: list[tuple[int, str, int, int]] | None = [] if trace else None

    def run(self, max_events: int) -> Outcome:
        # A million times around: names are local, named tuples are made from tuples, nothing is asked twice.
        new = tuple.__new__
        horizon = us(self.scenario.horizon_s)
        tracks = self.tracks
        ready = self.ready
        put, discard = ready.put, ready.discard
        policy, decide = self.policy, guard.decide
        by_name = self.by_name
        outlook = self.outlook
        phases = slow_phases(self.scenario)
        phase, cycle_from = 0, 0
        slow_until, slow = phases[0] if len(phases) > 1 else (_NEVER, phases[0][1])
        least, spread = 1 - self.scenario.jitter, 2 * self.scenario.jitter
        mean_factor = self.factor
        never, second = _NEVER, SECOND_US
        trace = self.trace
        learns = self.learns
        memory = NOTHING
        running: dict[int, RunningJob] = {}
        on_track: list[_Table] = [self.tables[0]] * tracks
        free = list(range(tracks))
        finished: list[FinishedJob] = []
        # Tables whose job is another than the policy knows of, in the order in which that came about.
        changed: dict[_Table, None] = {}
        # When the next batch of each base table comes, and when each running update ends; there is always a last one.
        arrivals = [(table.fresh_us + table.period_us, table.number) for table in self.tables if table.base]
        heapify(arrivals)
        ends: list[tuple[int, int, int]] = [(never, 0, 0)]
        tables = self.tables
        events = updates = busy_us = sequence = 0
        now, due = 0, arrivals[0][0]
        while due < horizon and events < max_events:
            now = due
            while now >= slow_until:
                phase += 1
                if phase == len(phases):
                    phase, cycle_from = 0, slow_until
                slow_until, slow = cycle_from + phases[phase][0], phases[phase][1]
            while ends[0][0] == now:
                number = heappop(ends)[2]
                events += 1
                table = on_track[number]
                free.append(number)
                job = running.pop(number)
                if learns:
                    took = (now - job.started_us) / second
                    finished.append(FinishedJob(table.name, number, now, job.expected_s, took))
                updates += 1
                table.total += table.fresh_us * (now - table.since_us)
                table.since_us = now
                fresh = table.fresh_us = table.taking_us
                table.running = False
                for reader in table.readers:
                    edge = fresh
                    for source in reader.sources:
                        if source.fresh_us < edge:
                            edge = source.fresh_us
                    if edge > reader.newest_us:
                        at = now if table.base else table.at_us
                        if reader.limit_us < never:
                            self._lack(reader, reader.newest_us, edge, at)
                        reader.newest_us = edge
                        if at < reader.release_us:
                            reader.release_us = at
                        if not reader.running:
                            changed[reader] = None
                if table.newest_us > fresh:
                    changed[table] = None
            due, number = arrivals[0]
            while due == now:
                table = tables[number]
                heapreplace(arrivals, (now + table.period_us, number))
                events += 1
                table.newest_us = now
                if table.release_us == never:
                    table.release_us = now
                if not table.running:
                    changed[table] = None
                due, number = arrivals[0]
            if ends[0][0] < due:
                due = ends[0][0]
            if not free:
                continue
            for table in changed:
                gain = table.newest_us - table.fresh_us
                if gain > table.limit_us:
                    gain = table.limit_us
                release = table.release_us
                cost = table.cost_s = table.alpha + table.beta * (gain / second)
                put(
                    new(
                        ReadyJob,
                        (
                            table.name,
                            table.priority,
                            table.inherited,
                            release,
                            release + table.period_us,
                            gain,
                            0,
                            0,
                            0.1,
                            gain,
                            mean_factor * cost,
                            False,
                            None,
                            table.start_up_s,
                        ),
                    )
                )
            changed.clear()
            if not ready:
                continue
            if len(free) > 1:
                free.sort()
            starts, wake, known = decide(
                policy, new(Situation, (now, ready, running, tuple(free), tracks, memory, tuple(finished), outlook))
            )
            if wake is not None:
                raise BeyondLean
            if starts:
                memory = known
                if finished:
                    finished = []
            for name, track, _, take in starts:
                if take is not None:
                    raise BeyondLean
                started = discard(name)
                assert started is not None
                free.remove(track)
                table = by_name[name]
                table.running = True
                taking = table.taking_us = table.fresh_us + started.gain_us
                table.at_us = table.release_us
                if table.newest_us == taking:
                    table.release_us = never
                elif table.base:
                    table.release_us = taking + table.period_us
                if table.lacks:
                    self._take(table, taking)
                took_us = round(table.cost_s * slow * (least + spread * table.draw()) * second) or 1
                busy_us += took_us
                running[track] = new(RunningJob, (name, track, now, started.expected_s))
                on_track[track] = table
                sequence += 1
                heappush(ends, (now + took_us, sequence, track))
                if trace is not None:
                    trace.append((now, name, track, took_us))
            if ends[0][0] < due:
                due = ends[0][0]
        stop = horizon if events < max_events else now
        busy_us -= sum(end - stop for end, _, _ in ends if stop < end < never)
        return self._outcome(stop, events, updates, busy_us)

    def _lack(self, view: _Table, from_us: int, to_us: int, at_us: int) -> None:
        """There is something new for a view, since a change at some time. A partition remembers the oldest one only."""
        lacks = view.lacks
        last_us, known_us = lacks[-1] if lacks else (-_NEVER, 0)
        if last_us > from_us and at_us < known_us:
            # Of several partitions only the last one has both.
            begin_us = self.grain.floor(from_us)
            before_us = lacks[-2][0] if len(lacks) > 1 else view.taking_us
            lacks[-1:] = [(begin_us, known_us), (last_us, at_us)] if begin_us > before_us else [(last_us, at_us)]
        if last_us < to_us:
            lacks.append((self.grain.ceil(to_us), at_us))

    def _take(self, view: _Table, taking_us: int) -> None:
        """An update of a view starts that goes so far."""
        taken = [
            at_us for number, (_, at_us) in enumerate(view.lacks) if not number or view.lacks[number - 1][0] < taking_us
        ]
        view.at_us = min(taken)
        view.lacks = [] if view.newest_us == taking_us else [each for each in view.lacks if each[0] > taking_us]
        view.release_us = min((at_us for _, at_us in view.lacks), default=_NEVER)

    def _outcome(self, horizon: int, events: int, updates: int, busy_us: int) -> Outcome:
        stale: dict[str, float] = {}
        weighted = 0.0
        for table in self.tables:
            total = FreshnessSum(table.fresh_us)
            total.total, total.since_us = table.total, table.since_us
            stale[table.name] = total.mean_s(horizon)
            weighted += table.priority * stale[table.name]
        return Outcome(stale, weighted, busy_us / (horizon * self.tracks), events, updates, 0, self.trace or [], "lean")


# Relative lateness: the staleness of a run against that of the same scenario without contention, where every update
# starts when it is released (Golab, Johnson, Shkapenyuk 2011, Sec. 4.1). 1 means that nobody
# waited; where it is better to cut long work than to take all there is, it can be less.


@dataclass(frozen=True)
class MeasuredRun:
    policy: str
    seed: int
    relative_lateness: float
    outcome: Outcome


def run(scenario: Scenario, policy: str, seed: int, *, trace: bool = False, full: bool = False) -> Outcome:
    """One run: by the lean loop if that gives the same schedule, else (or with `full`) through the controller."""
    found = find_policy(policy)
    same = supports(scenario) and powers(found).follows is None
    if same and not full:
        try:
            return simulate(scenario, found, seed, trace=trace)
        except BeyondLean:
            pass
    return runtime.simulate(scenario, found, seed, trace=trace)


def uncontended(scenario: Scenario, seed: int, *, full: bool = False) -> Outcome:
    """As many tracks as tables: nobody waits for anybody. A table's own updates still follow one another."""
    return run(replace(scenario, tracks=len(scenario.tables)), "max-benefit", seed, full=full)


def measure(
    scenario: Scenario,
    policies: Sequence[str],
    seed: int,
    *,
    trace: bool = False,
    full: bool = False,
) -> list[MeasuredRun]:
    """All policies on the same arrivals and the same luck."""
    ideal = uncontended(scenario, seed, full=full).weighted_s
    found = []
    for policy in policies:
        outcome = run(scenario, policy, seed, trace=trace, full=full)
        found.append(MeasuredRun(policy, seed, outcome.weighted_s / ideal, outcome))
    return found
