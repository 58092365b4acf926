"""Everything random in a simulation: one generator a table and purpose, so that policies which run in other orders still
see the same arrivals, and the n-th update of a table meets the same luck (paired seeds)."""

from __future__ import annotations

from bisect import bisect_right
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


def slow_phases(scenario: Scenario) -> list[tuple[int, float]]:
    """The phases of a cycle of the machine: up to when each lasts, and how many times longer updates take in it."""
    found: list[tuple[int, float]] = []
    end_s = 0.0
    for length_s, factor in scenario.slowdown.cycle if scenario.slowdown is not None else ((1.0, 1.0),):
        end_s += length_s
        if us(end_s) > (found[-1][0] if found else 0):
            found.append((us(end_s), factor))
    return found


def slow_at(scenario: Scenario) -> Callable[[int], float]:
    """The factor of the machine at a time."""
    ends, factors = zip(*slow_phases(scenario), strict=True)
    return lambda now_us: float(factors[bisect_right(ends, now_us % ends[-1])])
