"""Workloads that are in no paper: families of scenarios, drawn by a seed.

Each family has one thing that makes it hard; everything else (how many tables and tracks, how long, how dear, how important,
how busy) is drawn anew for each scenario. `any_workload.py` runs the default policy on them against all policies of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp
from random import Random

from penstock.model.time import SECOND_US
from penstock.sim.scenario import Outage, Redelivery, Scenario, SimTable, Slowdown, loaded_to

PERIOD_S = 100.0
# The most that one table may be busy by itself.
_BUSIEST = 0.95
Family = Callable[["Draft"], None]


@dataclass
class Draft:
    """A scenario on the way: a family changes what it is about."""

    chance: Random
    tables: list[SimTable]
    scenario: Scenario
    utilisation: float
    horizon_s: float = 0.0

    def each(self, **of: Callable[[SimTable], object]) -> None:
        """Draw some fields of every table anew."""
        self.tables = [replace(t, **{key: draw(t) for key, draw in of.items()}) for t in self.tables]  # type: ignore[arg-type]

    def bases(self, **of: Callable[[SimTable], object]) -> None:
        views = [table for table in self.tables if not table.is_base]
        self.tables = [table for table in self.tables if table.is_base]
        self.each(**of)
        self.tables += views

    def set(self, **of: object) -> None:
        self.scenario = replace(self.scenario, **of)  # type: ignore[arg-type]


def drawn(family: str, seed: int, events: int) -> Scenario:
    """The scenario of a family and a seed, long enough for about so many events."""
    chance = Random(f"{family}/{seed}")
    tracks = chance.choice((1, 2, 3, 4, 4, 6, 8, 16))
    count = min(300, max(10, int(tracks * exp(chance.uniform(1.0, 3.2)))))
    start_up = exp(chance.uniform(-2.5, 2.0))
    tables = _views(
        chance,
        [
            SimTable(f"t{n:03d}", period_s=PERIOD_S, alpha_s=start_up, beta=0.1)
            for n in range(max(2, round(count * chance.choice((1.0, 1.0, 0.5)))))
        ],
        count,
        levels=1,
        joins=0.0,
    )
    draft = Draft(chance, tables, Scenario((), family, tracks, jitter=chance.choice((0.0, 0.5))), 0.0)
    # Most warehouses are mildly busy; but it is the others in which the order matters.
    draft.utilisation = chance.choice((0.6, 0.75, 0.85, 0.9, 0.95, 1.0, 1.05))
    if chance.random() < 0.35:
        factor = chance.choice((2.0, 3.0, 5.0))
        draft.set(slowdown=Slowdown(factor, PERIOD_S * chance.choice((20, 60, 200)), 1 / (factor - 1) / 2))
    FAMILIES[family](draft)
    made = replace(draft.scenario, tables=tuple(draft.tables))
    made = _possible(replace(made, tables=loaded_to(made.tables, draft.utilisation, made.tracks, made.slowdown)))
    rate = sum(2 * SECOND_US / period for period in made.graph.periods_us.values())
    longest_s = max(made.graph.periods_us.values()) / SECOND_US
    horizon_s = max(events / rate, 4 * longest_s)
    if made.slowdown is not None:  # whole cycles, or the load is not the stated one
        cycle = made.slowdown.cycle
        cycle_s = sum(length for length, _ in cycle)
        shorter = min(1.0, 3 * horizon_s / cycle_s)
        made = replace(made, slowdown=Slowdown(phases=tuple((length * shorter, factor) for length, factor in cycle)))
        horizon_s = max(1, round(horizon_s / cycle_s)) * cycle_s * shorter
    return _ended(replace(made, horizon_s=horizon_s), chance)


def _possible(made: Scenario) -> Scenario:
    """Nothing can help a table whose own updates take longer than its period: there is none."""
    periods = made.graph.periods_us
    busy = {name: cost_s * SECOND_US / periods[name] for name, cost_s in made.costs_s.items()}
    part = {name: min(1.0, _BUSIEST / max(_BUSIEST, own)) for name, own in busy.items()}
    tables = (replace(t, alpha_s=t.alpha_s * part[t.name], beta=t.beta * part[t.name]) for t in made.tables)
    return replace(made, tables=tuple(tables))


def _ended(made: Scenario, chance: Random) -> Scenario:
    """What happens at parts of a run whose length is known only now: storms and backfills, drawn as parts of 1."""
    end_s = made.horizon_s
    return replace(
        made,
        outages=tuple(replace(o, start_s=o.start_s * end_s, end_s=o.end_s * end_s) for o in made.outages),
        backfills=tuple(
            replace(b, at_s=b.at_s * end_s, from_s=b.from_s * end_s, to_s=b.to_s * end_s) for b in made.backfills
        ),
    )


def _views(chance: Random, bases: list[SimTable], count: int, levels: int, joins: float) -> list[SimTable]:
    """Views up to a number of tables: each reads one table of the level above, or several of any."""
    tables = list(bases)
    level = [[table.name for table in bases]]
    while len(tables) < count:
        above = level[len(level) - 1 if len(level[-1]) > len(bases) // 3 or len(level) == 1 else len(level) - 2]
        if len(level) <= levels and len(level[-1]) >= max(1, (count - len(bases)) // levels):
            level.append([])
            above = level[-2]
        if len(level) == 1:
            level.append([])
        sources = [chance.choice(above)]
        while chance.random() < joins and len(sources) < 4:
            sources.append(chance.choice(tables).name)
        name = f"v{len(tables):03d}"
        like = bases[0]
        tables.append(SimTable(name, tuple(dict.fromkeys(sources)), alpha_s=like.alpha_s, beta=like.beta))
        level[-1].append(name)
    return tables


def _skewed(chance: Random, sigma: float) -> Callable[[SimTable], float]:
    return lambda table: chance.lognormvariate(0.0, sigma)


def _tails(draft: Draft) -> None:
    """Periods and costs from heavy tails: most are short, a few are a hundred times longer."""
    chance = draft.chance
    draft.bases(period_s=lambda t: PERIOD_S * min(100.0, chance.paretovariate(1.1)))
    draft.each(
        alpha_s=lambda t: t.alpha_s * min(100.0, chance.paretovariate(1.2)),
        beta=lambda t: t.beta * min(30.0, chance.paretovariate(1.2)),
    )


def _clusters(draft: Draft) -> None:
    """Two to four kinds of feeds: each has its period and its costs."""
    chance = draft.chance
    kinds = [(3.0 ** (2 * n), exp(chance.uniform(-1.5, 1.5)), 10 ** chance.uniform(-2, 1)) for n in range(4)]
    kinds = kinds[: chance.choice((2, 3, 3, 4))]
    fair = chance.random() < 0.5
    of = {table.name: chance.choice(kinds) for table in draft.tables}
    draft.bases(period_s=lambda t: PERIOD_S * of[t.name][0])
    draft.each(
        beta=lambda t: t.beta * of[t.name][1],
        alpha_s=lambda t: t.alpha_s * of[t.name][2],
        priority=lambda t: 100.0 / of[t.name][0] if fair else 1.0,
    )


def _deep(draft: Draft) -> None:
    """Three to seven levels with joins and shared ancestors."""
    chance, count = draft.chance, len(draft.tables)
    bases = [table for table in draft.tables if table.is_base][: max(2, count // 4)]
    draft.tables = _views(chance, bases, count, chance.randint(3, 7), chance.choice((0.2, 0.5)))
    if chance.random() < 0.5:
        draft.each(priority=lambda t: 0.01 if t.is_base else chance.choice((0.1, 1.0, 1.0, 10.0)))


def _fan_out(draft: Draft) -> None:
    """A few sources, each read by many."""
    chance, count = draft.chance, len(draft.tables)
    bases = [table for table in draft.tables if table.is_base][: max(1, count // 20)]
    draft.tables = _views(chance, bases, count, 1, 0.1)
    draft.each(priority=_skewed(chance, 1.0))


def _priorities(draft: Draft) -> None:
    """Priorities over several powers of ten."""
    draft.each(priority=_skewed(draft.chance, 2.0))


def _elephant(draft: Draft) -> None:
    """One table is half of the load."""
    chance = draft.chance
    whole = sum(t.alpha_s + t.beta * PERIOD_S for t in draft.tables)
    first = next(number for number, table in enumerate(draft.tables) if table.is_base)
    share = min(0.5, 0.95 / (draft.utilisation * draft.scenario.tracks))
    long = chance.choice((1.0, 10.0, 50.0))
    draft.tables[first] = replace(
        draft.tables[first],
        period_s=PERIOD_S * long,
        beta=share / (1 - share) * whole / PERIOD_S,
        priority=chance.choice((1.0, 1.0, 1 / long)),
    )


def _in_phase(draft: Draft) -> None:
    """All feeds deliver at the same time."""
    chance = draft.chance
    draft.bases(period_s=lambda t: PERIOD_S * chance.choice((1, 1, 2, 5)), phase_s=lambda t: PERIOD_S / 2)
    draft.each(beta=lambda t: t.beta * exp(chance.uniform(-1.5, 1.5)))


def _shifting(draft: Draft) -> None:
    """The load shifts slowly between nearly enough and too much."""
    chance = draft.chance
    steps = [(PERIOD_S * chance.choice((10, 30, 100)), chance.uniform(0.7, 1.4)) for _ in range(8)]
    draft.set(slowdown=Slowdown(phases=tuple(steps)))
    draft.utilisation = chance.uniform(0.85, 1.05)
    draft.each(beta=lambda t: t.beta * exp(chance.uniform(-1.0, 1.0)))


def _slowdowns(draft: Draft) -> None:
    """Slowdowns of random length and depth, on tables that differ."""
    chance = draft.chance
    phases: list[tuple[float, float]] = []
    for _ in range(8):
        phases.append((PERIOD_S * chance.expovariate(1 / 20), 1.0))
        phases.append((PERIOD_S * min(100.0, chance.expovariate(1 / 15)), 1 + chance.expovariate(1 / 2)))
    draft.set(slowdown=Slowdown(phases=tuple((max(1.0, length), factor) for length, factor in phases)))
    draft.bases(period_s=lambda t: PERIOD_S * chance.choice((1, 1, 3, 10)))
    draft.each(beta=lambda t: t.beta * exp(chance.uniform(-1.5, 1.5)), priority=_skewed(chance, 0.7))


def _start_ups(draft: Draft) -> None:
    """Nearly all that an update takes is its start, or nothing is."""
    chance = draft.chance
    draft.each(alpha_s=lambda t: t.alpha_s * chance.choice((0.0, 0.0, 1.0, 30.0)))
    draft.bases(period_s=lambda t: PERIOD_S * chance.choice((1, 1, 4)))


def _bursts(draft: Draft) -> None:
    """Batches come several at once."""
    chance = draft.chance
    draft.bases(
        arrivals=lambda t: chance.choice(("bursty", "bursty", "periodic")),
        burst=lambda t: chance.choice((2, 4, 10)),
        period_s=lambda t: PERIOD_S * chance.choice((1, 1, 3)),
    )


def _jittered(draft: Draft) -> None:
    """Batches come late by up to a period, and of several sizes."""
    chance = draft.chance
    draft.bases(arrivals=lambda t: "jittered", arrival_jitter=lambda t: chance.uniform(0.2, 1.0))
    draft.each(beta=lambda t: t.beta * exp(chance.uniform(-1.5, 1.5)))


def _storms(draft: Draft) -> None:
    """All feeds are out for a while, and then everything comes at once; some of them by themselves, too."""
    chance = draft.chance
    outages = []
    for n in range(3):
        start = (n + chance.uniform(0.1, 0.5)) / 3
        table = None if n != 1 else next(t.name for t in draft.tables if t.is_base)
        outages.append(Outage(start, start + chance.uniform(0.01, 0.05), table))
    draft.set(outages=tuple(outages), slowdown=None)
    draft.utilisation = chance.uniform(0.6, 0.9)


def _learned(draft: Draft) -> None:
    """Costs that nobody says."""
    _clusters(draft)
    draft.set(costs="learned")


def _failures(draft: Draft) -> None:
    """Updates fail, and are tried again."""
    draft.set(failures=draft.chance.uniform(0.01, 0.05), costs=draft.chance.choice(("known", "learned")))
    draft.utilisation = min(0.95, draft.utilisation)
    draft.each(beta=lambda t: t.beta * exp(draft.chance.uniform(-1.0, 1.0)))


def _backfills(draft: Draft) -> None:
    """Long stretches of old data are delivered again beside the live feeds."""
    chance = draft.chance
    bases = [table.name for table in draft.tables if table.is_base]
    found = []
    for n in range(4):
        at = (n + 1.5) / 6
        found.append(Redelivery(at, chance.choice(bases), 0.0, at * chance.uniform(0.2, 1.0)))
    draft.set(backfills=tuple(found), partition="hour", slowdown=None)
    draft.utilisation = chance.uniform(0.6, 0.85)


def _drift(draft: Draft) -> None:
    """What an update takes changes while it runs, and is learned."""
    chance = draft.chance
    draft.each(drift=lambda t: 4.0 ** chance.uniform(-1, 1), beta=lambda t: t.beta * exp(chance.uniform(-1.0, 1.0)))
    draft.set(costs="learned")
    draft.utilisation *= 0.85


def _plain(draft: Draft) -> None:
    """Tables that are alike."""


FAMILIES: dict[str, Family] = {
    "alike": _plain,
    "heavy tails": _tails,
    "clusters": _clusters,
    "deep joins": _deep,
    "fan-out": _fan_out,
    "priorities": _priorities,
    "elephant": _elephant,
    "in phase": _in_phase,
    "shifting load": _shifting,
    "slowdowns": _slowdowns,
    "start-ups": _start_ups,
    "bursts": _bursts,
    "jitter": _jittered,
    "storms": _storms,
    "learned": _learned,
    "failures": _failures,
    "backfills": _backfills,
    "drift": _drift,
}
