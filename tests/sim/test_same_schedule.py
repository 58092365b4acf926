"""Three simulators, one schedule: the controller, the lean loop, and one that goes second by second."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.scheduling.jobs import Decision, Situation
from penstock.scheduling.policies import DEFAULT, find_policy
from penstock.scheduling.policies.index import Fifo
from penstock.sim import lean, runtime
from penstock.sim.scenario import Scenario, SimTable, Slowdown
from tests.sim import unit_step

POLICIES = (
    "max-benefit",
    "fifo",
    "edf",
    "edf-p",
    "random(seed=7)",
    "max-benefit-lookahead",
    "edf-partitioned / edf",
    "edf-partitioned(aggressive)",
    "proportional(basic)",
    "proportional(all, aggressive) / max-benefit / inherit=sum",
    "proportional(all, P, k=2) / edf-p / inherit=none",
    "max-benefit / inherit=max-plus(2)",
    "reserve / random(seed=3)",
    "reserve / patient / inherit=chain",
    "max-benefit-youngest / inherit=chain",
    "proportional(all) / patient",
)


def tree(chance: Random, *, several_sources: bool = False) -> list[SimTable]:
    tables = []
    for number in range(chance.randint(1, 5)):
        period = chance.choice((20, 50, 100, 400))
        tables.append(
            SimTable(
                f"b{number}",
                period_s=period,
                phase_s=chance.randrange(period),
                priority=chance.choice((1, 1, 10, 0.5)),
                alpha_s=chance.randint(1, 6),
                beta=chance.choice((0, 1, 2, 5, 20)) / period,
            )
        )
    for number in range(chance.randint(0, 6)):
        names = [t.name for t in tables]
        sources = tuple(chance.sample(names, min(len(names), chance.randint(1, 3) if several_sources else 1)))
        tables.append(
            SimTable(
                f"d{number}",
                sources,
                priority=chance.choice((1, 3, 30)),
                alpha_s=chance.randint(1, 5),
                beta=chance.choice((0.0, 0.05)),
            )
        )
    return tables


@pytest.mark.parametrize("joins", [False, True], ids=["trees", "joins"])
@pytest.mark.parametrize("seed", range(48))
def test_the_lean_loop_does_what_the_controller_does(seed: int, joins: bool) -> None:
    chance = Random(seed)
    scenario = Scenario(
        tuple(tree(chance, several_sources=joins)),
        tracks=chance.randint(1, 4),
        horizon_s=3000,
        jitter=chance.choice((0.0, 0.5)),
        slowdown=chance.choice((None, Slowdown(3, 500), Slowdown(phases=((70, 1.0), (300, 2.5), (41, 0.5))))),
    )
    if chance.random() < 0.5:
        scenario = replace(scenario, tables=tuple(replace(t, phase_s=None) for t in scenario.tables))
    policy = find_policy(POLICIES[seed % len(POLICIES)])
    slow = runtime.simulate(scenario, policy, seed, trace=True)
    fast = lean.simulate(scenario, policy, seed, trace=True)
    assert fast.trace == slow.trace
    assert fast.staleness_s == slow.staleness_s
    assert (fast.events, fast.updates, fast.utilisation) == (slow.events, slow.updates, slow.utilisation)


@pytest.mark.parametrize("seed", range(40))
def test_both_chop(seed: int) -> None:
    """What base tables load, and what views take up: anywhere, however long the partitions are."""
    chance = Random(500 + seed)
    tables = tuple(t for t in tree(chance, several_sources=seed % 2 == 0) if t.is_base or seed % 3)
    tables = tuple(t if t.is_base else replace(t, beta=chance.choice((0.05, 0.4))) for t in tables)
    partition = chance.choice(("minute", "10 minutes", "hour", "day"))
    scenario = Scenario(tables, tracks=1, horizon_s=3000, jitter=0.5, slowdown=Slowdown(5, 800), partition=partition)
    policy = find_policy(
        ("max-benefit", "fifo", "edf-p", DEFAULT)[seed % 4] + f" / chop={1 + seed % 4}" * (seed % 4 < 3)
    )
    slow = runtime.simulate(scenario, policy, seed, trace=True)
    assert lean.simulate(scenario, policy, seed, trace=True).trace == slow.trace


@pytest.mark.parametrize("seed", range(30))
def test_what_is_simulated_is_what_the_controller_does(seed: int) -> None:
    """With everything on: views, partitions, chopping."""
    chance = Random(2000 + seed)
    tables = tuple(
        replace(t, alpha_s=chance.choice((0.01, 0.2, 3)), beta=chance.choice((0.0, 0.1, 0.3)))
        for t in tree(chance, several_sources=seed % 2 == 0)
    )
    scenario = Scenario(
        tables,
        tracks=chance.randint(1, 2),
        horizon_s=2000,
        jitter=0.5,
        slowdown=chance.choice((None, Slowdown(8, 1000))),
        partition=chance.choice(("minute", "10 minutes", "hour", "day")),
    )
    name = DEFAULT if seed % 2 else POLICIES[seed % len(POLICIES)] + chance.choice(("", " / chop=2", " / chop=3..10"))
    found = lean.run(scenario, name, seed, trace=True)
    assert found.trace == runtime.simulate(scenario, find_policy(name), seed, trace=True).trace


@pytest.mark.parametrize("seed", range(60))
def test_the_lean_loop_does_what_a_step_by_step_one_does(seed: int) -> None:
    chance = Random(1000 + seed)
    tables = tree(chance, several_sources=True)
    graph = Scenario(tuple(tables)).graph
    period = {name: us // 1_000_000 for name, us in graph.periods_us.items()}
    # Whole seconds of work per period of data.
    work = {t.name: round(t.beta * period[t.name]) for t in tables}
    tables = [replace(t, beta=work[t.name] / period[t.name]) for t in tables]
    # Views take parts of periods, which are no whole seconds of work: they cost the same whatever they take.
    tables = [t if t.is_base else replace(t, beta=0.0) for t in tables]
    order = ("max-benefit", "fifo", "edf", "edf-p")[seed % 4]
    chop = chance.choice((None, None, 1, 3))
    tracks = chance.randint(1, 3)
    plain = [
        unit_step.Plain(
            t.name,
            list(t.sources),
            int(t.period_s),
            int(t.phase_s or 0),
            t.priority,
            int(t.alpha_s),
            work[t.name] if t.is_base else 0,
        )
        for t in tables
    ]
    starts, stale = unit_step.run(plain, tracks, 3000, order, chop)
    policy = find_policy(order + (f" / chop={chop}" if chop else ""))
    found = lean.simulate(Scenario(tuple(tables), tracks=tracks, horizon_s=3000), policy, 0, trace=True)
    seconds = [(at // 10**6, name, track, took // 10**6) for at, name, track, took in found.trace]
    assert seconds == starts
    assert found.staleness_s == pytest.approx(stale, rel=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_is_repeatable(policy: str) -> None:
    scenario = Scenario(tuple(tree(Random(3))), tracks=2, horizon_s=2000, jitter=0.5)
    one, other = (lean.simulate(scenario, find_policy(policy), 5, trace=True) for _ in range(2))
    assert one == other
    assert lean.simulate(scenario, find_policy(policy), 6, trace=True).trace != one.trace


class OneByOne(Fifo):
    """Never more than one file at a time."""

    def decide(self, situation: Situation) -> Decision:
        found = super().decide(situation)
        return found._replace(starts=tuple(start._replace(take=1) for start in found.starts))


def test_what_the_lean_loop_cannot_do_the_controller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario((SimTable("a", period_s=10, phase_s=5, alpha_s=25, beta=0.0),), tracks=1, horizon_s=1000)
    all_there_is = lean.run(scenario, "fifo", 1).staleness_s["a"]
    monkeypatch.setattr(lean, "find_policy", lambda name: OneByOne())
    found = lean.run(scenario, "one by one", 1)
    assert found == runtime.simulate(scenario, OneByOne(), 1) and found.staleness_s["a"] > all_there_is
