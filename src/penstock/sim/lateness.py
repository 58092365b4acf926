"""Relative lateness: the staleness of a run against that of the same scenario without contention, where every update
starts when it is released (Golab, Johnson, Shkapenyuk 2011, Sec. 4.1). 1 means that nobody
waited; where it is better to cut long work than to take all there is, it can be less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.scheduling.policies import find_policy
from penstock.sim import lean, runtime
from penstock.sim.outcome import Outcome
from penstock.sim.scenario import Scenario


@dataclass(frozen=True)
class MeasuredRun:
    policy: str
    seed: int
    relative_lateness: float
    outcome: Outcome


def run(
    scenario: Scenario, policy: str, seed: int, *, trace: bool = False, full: bool = False, cut_views: bool = False
) -> Outcome:
    """One run: by the lean loop if that gives the same schedule, else (or with `full`) through the controller. With
    `cut_views` also where views are chopped: the lean loop cuts them anywhere, as the paper does."""
    found = find_policy(policy)
    same = lean.supports(scenario) and not hasattr(found, "follow")
    if same and not full and (cut_views or not lean.cuts_views(scenario, found)):
        try:
            return lean.simulate(scenario, found, seed, trace=trace)
        except lean.BeyondLean:
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
    cut_views: bool = False,
) -> list[MeasuredRun]:
    """All policies on the same arrivals and the same luck."""
    ideal = uncontended(scenario, seed, full=full).weighted_s
    found = []
    for policy in policies:
        outcome = run(scenario, policy, seed, trace=trace, full=full, cut_views=cut_views)
        found.append(MeasuredRun(policy, seed, outcome.weighted_s / ideal, outcome))
    return found
