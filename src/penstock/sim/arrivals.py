"""When batches come. Batch n of a table holds the data of its n-th period, which ends when it should come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.sim.chance import first_arrival_us, generator
from penstock.sim.scenario import Outage, Scenario, SimTable, us


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
