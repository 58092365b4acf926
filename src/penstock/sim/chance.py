"""Everything random in a simulation: one generator a table and purpose, so that policies which run in other orders still
see the same arrivals, and the n-th update of a table meets the same luck (paired seeds)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.sim.scenario import Scenario, SimTable, us


def generator(seed: int, table: str, purpose: str) -> Random:
    return Random(f"{seed}/{table}/{purpose}")


def first_arrival_us(table: SimTable, seed: int) -> int:
    """The first batch comes somewhere in the first period: streams in step would hide what their order matters."""
    if table.phase_s is not None:
        return us(table.phase_s)
    period = us(table.period_s)
    return min(period - 1, int(generator(seed, table.name, "phase").random() * period))


def luck(table: SimTable, seed: int) -> Callable[[], float]:
    """Between 0 and 1, one after the other for the updates of a table."""
    return generator(seed, table.name, "time").random


def factors(scenario: Scenario, table: SimTable, seed: int) -> Callable[[], float]:
    """How much longer or shorter than expected the updates of a table take, one after the other."""
    draw = luck(table, seed)
    least, spread = 1 - scenario.jitter, 2 * scenario.jitter
    return lambda: least + spread * draw()


def slow_phase(scenario: Scenario) -> tuple[int, int, float]:
    """The length of a cycle, of its normal part, which comes first, and how slow the rest is."""
    slow = scenario.slowdown
    if slow is None:
        return 1, 1, 1.0
    return us(slow.cycle_s), us(slow.cycle_s * (1 - slow.share)), slow.factor


def slow_at(scenario: Scenario) -> Callable[[int], float]:
    """The factor of the machine at a time."""
    cycle, normal, factor = slow_phase(scenario)
    return lambda now_us: factor if now_us % cycle >= normal else 1.0
