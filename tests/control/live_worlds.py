"""Random warehouses with everything on, driven through the controller: what is promised while its premises hold, holds.

Demand, queries that are refreshed for, upkeep, backfills of base tables and of views, redelivered stretches, partitions longer than periods,
fan-out, joins, jitter, several outages; and in some of them costs that rise, updates that fail, restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from penstock.control.audit import Audit
from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    Event,
    RefreshRequested,
    RunStarted,
    StartUpdate,
)
from penstock.control.premises import PremiseWatch
from penstock.control.views.health import FeedWatch
from penstock.model.graph import Graph
from penstock.requests.job import Job
from penstock.scheduling.policies import find_policy
from penstock.sim.driver import ARRIVAL
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Outage, Redelivery, Scenario, SimTable, us


@dataclass(frozen=True)
class Promised(Scenario):
    """A scenario whose tables have declared costs, and some of them a guarantee."""

    declared_s: Mapping[str, float] = field(default_factory=dict)
    guaranteed: frozenset[str] = frozenset()
    upkeep_s: float = 0.0

    @cached_property
    def graph(self) -> Graph:
        graph = Scenario.graph.func(self)  # type: ignore[attr-defined]
        jitters = {t.name: us(t.arrival_jitter * t.period_s) if t.arrivals == "jittered" else 0 for t in self.tables}
        feeds = [replace(feed, jitter_us=jitters[feed.name]) for feed in graph.feeds.values()]
        tables = [
            replace(t, cost_us=us(self.declared_s[t.name]), guarantee=t.name in self.guaranteed, attempts=1_000_000)
            for t in graph.tables.values()
        ]
        return Graph(feeds, tables)


def world(seed: int) -> Promised:
    chance = Random(seed)
    tracks = chance.randint(1, 4)
    base = [f"b{n}" for n in range(chance.randint(1, 4))]
    views = [f"v{n}" for n in range(chance.randint(0, 4))]
    jitter = chance.choice([0.0, 0.2])
    load = tracks * chance.choice([0.2, 0.4, 0.6, 0.8])
    rises = chance.random() < 0.2
    tables: list[SimTable] = []
    sources: dict[str, tuple[str, ...]] = {}
    for name in views:
        known = [*base, *sources]
        sources[name] = tuple(chance.sample(known, k=min(len(known), chance.choice([1, 1, 2]))))
    periods = {name: float(chance.choice([60, 120, 300])) for name in base}
    for name in views:
        periods[name] = max(periods[source] for source in sources[name])
    weights = {name: chance.random() + 0.05 for name in [*base, *views]}
    declared: dict[str, float] = {}
    for name in [*base, *views]:
        cost = min(0.95, weights[name] * load / sum(weights.values())) * periods[name]
        start_up = chance.random() * cost
        declared[name] = round(cost * (1 + jitter) + 0.001, 3)
        tables.append(
            SimTable(
                name,
                sources.get(name, ()),
                periods[name],
                alpha_s=start_up,
                beta=(cost - start_up) / periods[name],
                arrivals=chance.choice(["periodic", "jittered"]) if name in base else "periodic",
                arrival_jitter=0.2,
                priority=chance.choice([1.0, 5.0]),
                drift=1.6 if rises and chance.random() < 0.3 else 1.0,
            )
        )
    longest = max(periods.values())
    horizon = 60 * longest
    outages = [
        Outage(start := chance.uniform(4, 25) * longest, start + chance.uniform(1, 12) * longest, name)
        for name in base
        if chance.random() < 0.6
    ]
    backfills = [
        Redelivery(chance.uniform(20, 50) * longest, chance.choice(base), 2 * longest, chance.uniform(4, 15) * longest)
        for _ in range(chance.choice([0, 0, 1]))
    ]
    some = {name for name in views if chance.random() < 0.6}
    above = {s for name in some for s in _above(sources, name)}
    guaranteed = frozenset(some | above) if chance.random() < 0.4 else frozenset[str]()
    return Promised(
        tuple(tables),
        f"world {seed}",
        tracks,
        horizon,
        jitter,
        outages=tuple(outages),
        backfills=tuple(backfills),
        failures=chance.choice([0.0, 0.0, 0.0, 0.02]),
        costs="learned",
        partition=chance.choice(["minute", "hour", "day", "none"]),
        declared_s=declared,
        guaranteed=guaranteed,
        upkeep_s=chance.choice([0.5, 1.0, 1.0, 1.5]),
    )


def _above(sources: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    return {s for one in sources.get(name, ()) for s in ({one} | _above(sources, one))}


class Live(Simulation):
    """The world under `adaptive`, with the watch on its premises, and what was promised of it."""

    def __init__(self, scenario: Promised, seed: int) -> None:
        self._given_up: set[str] = set()
        super().__init__(scenario, find_policy("adaptive"), seed, keep_log=True)
        state = self.controller.state
        state.reading.updates, state.declaration.policy = "demand", "adaptive"
        self.outages = FeedWatch(state)
        self.premises = PremiseWatch(self.controller)
        self.audit = Audit(self.controller, self.premises)
        self.promised_scenario = scenario
        self.chance = chance = Random(seed + 1)
        self.apply(RunStarted(0, "first"))
        end = us(scenario.horizon_s)
        for _ in range(chance.randint(0, 20)):
            self.kernel.at(chance.randrange(end), ARRIVAL, self._reads)
        for _ in range(chance.choice([0, 3, 10])):
            self.kernel.at(chance.randrange(end), ARRIVAL, self._asks)
        for _ in range(chance.choice([0, 1, 2])):
            self.kernel.at(chance.randrange(end // 2, end), ARRIVAL, self._backfills)
        if chance.random() < 0.2:
            self.kernel.at(chance.randrange(end), ARRIVAL, self._restarts)

    # The world

    def _reads(self, now: int) -> None:
        names = list(self.specs)
        self.apply(DemandSeen(now, tuple((name, self.chance.randint(1, 50)) for name in self.chance.sample(names, 1))))

    def _asks(self, now: int) -> None:
        name = self.chance.choice(list(self.specs))
        edge = self.fresh[name].fresh_us
        wanted = ((name, ((max(0, edge - us(600)), edge + us(600)),)),)
        self.apply(RefreshRequested(now, f"q{now}", wanted, now + us(300)))

    def _backfills(self, now: int) -> None:
        name = self.chance.choice(list(self.specs))
        low, high = self.begin_us[name], self.fresh[name].fresh_us
        if high > low:
            self.apply(BackfillRequested(now, name, ((low, self.chance.randint(low + 1, high)),)))

    def _restarts(self, now: int) -> None:
        self._given_up |= {running.job.id for running in self.controller.state.busy.values()}
        self.apply(RunStarted(now, "second"))

    def start(self, now_us: int, command: StartUpdate) -> None:
        if command.job.kind == "upkeep" and self.premises is not None and self.premises.model is not None:
            took = max(1, int(self.premises.model.outside_us * self.promised_scenario.upkeep_s))
            self.kernel.at(now_us + took, 0, lambda now: self._finish(now, command.job, took))
            return
        super().start(now_us, command)

    def _finish(self, now_us: int, job: Job, took_us: int) -> None:
        if job.id not in self._given_up:
            super()._finish(now_us, job, took_us)

    def _fail(self, now_us: int, job: Job, took_us: int) -> None:
        if job.id not in self._given_up:
            super()._fail(now_us, job, took_us)

    def apply(self, event: Event) -> None:
        audit: Audit | None = getattr(self, "audit", None)
        if audit is not None:
            audit.before(event)
        super().apply(event)
        if audit is not None:
            audit.after(event)


def lived(seed: int) -> Audit:
    live = Live(world(seed), seed)
    live.run()
    return live.audit
