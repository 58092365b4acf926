"""Random warehouses with everything on, driven through the controller: what is promised while its premises hold, holds.

Demand, queries that are refreshed for, upkeep, backfills of base tables and of views, redelivered stretches, partitions longer than periods,
fan-out, joins, jitter, several outages; and in some of them costs that rise, updates that fail, restarts. `wide` adds to these what else can
be declared (roll-ups, groups, windows, closed partitions, periods, chops, patience, queues, lateness, learned costs, arguments of the policy)
and can happen (pauses of feeds, faults, restarts from a saved state, declarations that change).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

from penstock.control.audit import Audit
from penstock.control.controller import Controller
from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    Event,
    FaultEnded,
    FaultMet,
    FeedPaused,
    FeedResumed,
    RefreshRequested,
    RunStarted,
    StartUpdate,
    WarehouseDeclared,
)
from penstock.control.premises import PremiseWatch
from penstock.control.snapshot import dump, load
from penstock.control.views.health import FeedWatch
from penstock.model.graph import Graph
from penstock.model.tables import Source
from penstock.requests.job import Job, PublishedTable
from penstock.scheduling.policies import bound, find_policy
from penstock.sim.driver import ARRIVAL
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Outage, Redelivery, Scenario, SimTable, us


@dataclass(frozen=True)
class Promised(Scenario):
    """A scenario whose tables have declared costs, and some of them a guarantee."""

    declared_s: Mapping[str, float] = field(default_factory=dict)
    guaranteed: frozenset[str] = frozenset()
    upkeep_s: float = 0.0
    policy: str = "adaptive"
    # What else is declared of tables, and of feeds.
    said: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    said_of_feeds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # How often something happens that is no business of the scenario.
    pauses: int = 0
    faults: int = 0
    declarations: int = 0
    saved: bool = False

    @cached_property
    def graph(self) -> Graph:
        graph = Scenario.graph.func(self)  # type: ignore[attr-defined]
        jitters = {t.name: us(t.arrival_jitter * t.period_s) if t.arrivals == "jittered" else 0 for t in self.tables}
        feeds = [replace(feed, jitter_us=jitters[feed.name]) for feed in graph.feeds.values()]
        tables = [
            replace(t, cost_us=us(self.declared_s[t.name]), guarantee=t.name in self.guaranteed, attempts=1_000_000)
            for t in graph.tables.values()
        ]
        feeds = [replace(feed, **self.said_of_feeds.get(feed.name, {})) for feed in feeds]
        return Graph(feeds, [replace(t, **self.said.get(t.name, {})) for t in tables])


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


_GRAINS = ("minute", "hour", "day", "none")
_LENGTH_S = {"minute": 60, "hour": 3600, "day": 86400, "none": 0}


def wide(seed: int) -> Promised:
    """The same with everything that can be declared and can happen."""
    found, chance = world(seed), Random(seed + 77)
    said: dict[str, dict[str, Any]] = {}
    grains: dict[str, str] = {}
    tables = {table.name: table for table in found.tables}
    mixed, costs_learned = chance.random() < 0.6, chance.random() < 0.15
    grouped = [t.name for t in found.tables if t.sources and not any(s.startswith("v") for s in t.sources)]
    group = set(grouped[:2]) if len(grouped) > 1 and chance.random() < 0.3 else set[str]()
    for name, table in tables.items():
        mine = said.setdefault(name, {})
        finest = max((_GRAINS.index(grains[s]) for s in table.sources), default=0)
        grain = grains[name] = _GRAINS[chance.randint(finest, 3)] if mixed else found.partition
        period_s = max([tables[s].period_s for s in table.sources], default=table.period_s)
        if mixed:
            mine["partition"] = grain
        if not table.sources:
            mine["queue_us"] = us(chance.choice([0, 0, 30, 600]))
            continue
        mine["exact_time"] = chance.random() < 0.6
        mine["foldable"] = chance.random() < 0.6
        mine["patience_us"] = chance.choice([None, None, us(60), us(900)])
        mine["queue_us"] = us(chance.choice([0, 0, 60]))
        mine["overrun"] = chance.choice(["queue", "queue", "queue", "preempt"])
        if chance.random() < 0.2:
            mine["chop"] = chance.choice([1, 2, 16])
        if chance.random() < 0.2:
            mine["period_us"] = us(period_s * chance.choice([0.5, 2, 3]))
        if grain not in ("none",) and chance.random() < 0.25:
            length = _LENGTH_S[grain]
            mine["when"] = "closed"
            mine["period_us"] = us(length * max(1, period_s // length))
        if grain in ("minute", "hour") and len(table.sources) == 1 and chance.random() < 0.2:
            window = chance.choice([(0, 2), (-1, 0), (-1, 1)])
            mine["sources"] = (Source(table.sources[0], window),)
        if chance.random() < 0.2:
            mine["recovery_us"] = us(period_s * chance.choice([0.3, 0.6, 0.9]))
        if name in group:
            mine["group"] = "g"
    if costs_learned:
        for name in tables:
            if chance.random() < 0.6:
                said[name]["cost_us"] = None
    if chance.random() < 0.3:
        for name in tables:
            said[name]["attempts"] = 4
    feeds = {name: {"lateness_us": us(chance.choice([0, 0, 45]))} for name, t in tables.items() if not t.sources}
    many = [0, 0, 0, 1, 2]
    return replace(
        found,
        tables=tuple(replace(t, group="g") if t.name in group else t for t in found.tables),
        horizon_s=0.7 * found.horizon_s,
        policy=chance.choice(["adaptive"] * 5 + ["adaptive(shared)", "adaptive(plain)", "adaptive(margin=2)"]),
        said=said,
        said_of_feeds=feeds,
        failures=chance.choice([0.0, 0.0, 0.02, 0.1]),
        pauses=chance.choice(many),
        faults=chance.choice(many),
        declarations=chance.choice(many),
        saved=chance.random() < 0.5,
    )


def _above(sources: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    return {s for one in sources.get(name, ()) for s in ({one} | _above(sources, one))}


class Live(Simulation):
    """The world under `adaptive`, with the watch on its premises, and what was promised of it."""

    def __init__(self, scenario: Promised, seed: int) -> None:
        self._given_up: set[str] = set()
        super().__init__(scenario, find_policy(scenario.policy), seed, keep_log=True)
        state = self.controller.state
        state.reading.updates, state.declaration.policy = "demand", scenario.policy
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
        for what, many in (
            (self._pauses, scenario.pauses),
            (self._faults, scenario.faults),
            (self._declares, scenario.declarations),
        ):
            for _ in range(many):
                self.kernel.at(chance.randrange(end), ARRIVAL, what)

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

    def _pauses(self, now: int) -> None:
        feed = self.chance.choice(list(self.controller.state.feeds))
        self.apply(FeedPaused(now, feed))
        later = now + us(self.chance.uniform(60, 3000))
        self.kernel.at(later, ARRIVAL, lambda at: self.apply(FeedResumed(at, feed)))

    def _faults(self, now: int) -> None:
        running = self.controller.state.on_tracks
        if running and not self.controller.state.faults.open:
            job = running[min(running)].job
            self._given_up.add(job.id)
            self.apply(FaultMet(now, "storage", "it is full", job.id, job.table))
            self.kernel.at(
                now + us(self.chance.uniform(5, 600)),
                ARRIVAL,
                lambda at: self.apply(FaultEnded(at, "storage", now, "it is full")),
            )

    def _declares(self, now: int) -> None:
        """Costs are declared anew."""
        graph, state = self.controller.state.graph, self.controller.state
        more = self.chance.choice([1.0, 1.2])
        tables = [replace(t, cost_us=int(t.cost_us * more)) if t.cost_us else t for t in graph.tables.values()]
        policy, updates = state.policy, state.updates
        self.apply(WarehouseDeclared(now, tuple(graph.feeds.values()), tuple(tables), state.tracks, policy, updates))

    def _restarts(self, now: int) -> None:
        self._given_up |= {running.job.id for running in self.controller.state.busy.values()}
        if self.promised_scenario.saved:
            state = load(json.loads(json.dumps(dump(self.controller.state))))
            self.controller = Controller(state, bound(find_policy(self.promised_scenario.policy), state.graph))
            self.outages, self.premises = FeedWatch(state), PremiseWatch(self.controller)
            self.audit.controller, self.audit.premises = self.controller, self.premises
        self.apply(RunStarted(now, "second"))

    def start(self, now_us: int, command: StartUpdate) -> None:
        if command.job.kind == "upkeep" and self.premises is not None and self.premises.model is not None:
            took = max(1, int(self.premises.model.outside_us * self.promised_scenario.upkeep_s))
            self.kernel.at(now_us + took, 0, lambda now: self._finish(now, command.job, took))
            return
        super().start(now_us, command)

    def _loaded(self, job: Job, edge: int) -> PublishedTable:
        found = super()._loaded(job, edge)
        assert found.complete_us is not None
        late_us = self.controller.state.graph.feeds[job.table].lateness_us
        return replace(found, complete_us=found.complete_us - late_us)

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


def lived(seed: int, *, everything: bool = False) -> Audit:
    live = Live((wide if everything else world)(seed), seed)
    live.run()
    return live.audit
