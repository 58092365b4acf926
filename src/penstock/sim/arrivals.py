"""When batches come. Batch n of a table holds the data of its n-th period, which ends when it should come."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from penstock.sim.scenario import Outage, Scenario, SimTable, us

# Everything random in a simulation: one generator a table and purpose, so that policies which run in other orders still
# see the same arrivals, and the n-th update of a table meets the same luck (paired seeds).


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


class Batch(NamedTuple):
    table: str
    number: int
    arrives_us: int
    # The data are from this stretch of time, and sometimes there are rows from an older one.
    from_us: int
    to_us: int
    late_us: tuple[int, int] | None = None


def first_batch_end_us(table: SimTable, seed: int) -> int:
    """A period after the time up to which the table is complete at the start, which is not in the future."""
    if table.arrivals == "traced":
        return us(min(table.trace_s[0], table.period_s))
    return first_arrival_us(table, seed)


def batches(scenario: Scenario, table: SimTable, seed: int) -> Iterator[Batch]:
    """All batches of a table in order of arrival, without end unless traced."""
    # In order: one may lead into the next.
    outages = sorted((o for o in scenario.outages if o.table in (None, table.name)), key=lambda o: o.start_s)
    chance = generator(seed, table.name, "arrivals")
    period = us(table.period_s)
    before = first_batch_end_us(table, seed) - period
    last = before
    for number, (due, comes) in enumerate(_times(table, seed)):
        late = None
        if table.late_share and chance.random() < table.late_share:
            late = (before - us(table.late_s), before - us(table.late_s) + period)
        last = max(last, _delayed(comes, outages))
        yield Batch(table.name, number, last, before, due, late)
        before = due


def _times(table: SimTable, seed: int) -> Iterator[tuple[int, int]]:
    """Up to when the data of each batch reach, and when it comes."""
    if table.arrivals == "traced":
        yield from ((us(at), us(at)) for at in sorted(set(table.trace_s)))
        return
    first, period = first_arrival_us(table, seed), us(table.period_s)
    chance = generator(seed, table.name, "jitter")
    number = 0
    while True:
        due = first + number * period
        comes = due
        if table.arrivals == "jittered":
            comes += int(chance.random() * table.arrival_jitter * period)
        elif table.arrivals == "bursty":
            comes = first + ((number // table.burst + 1) * table.burst - 1) * period
        yield due, comes
        number += 1


def _delayed(comes_us: int, outages: list[Outage]) -> int:
    for outage in outages:
        if us(outage.start_s) <= comes_us < us(outage.end_s):
            comes_us = us(outage.end_s)
    return comes_us
