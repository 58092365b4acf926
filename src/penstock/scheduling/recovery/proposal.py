"""Recovery periods with which the tables of a warehouse recover soonest, under all of its targets.

The paper gives each table the shortest recovery period there is room for while no other recovers, (7), and leaves open which are
best. A longer one makes its own recovery longer. But a table that uses less of the tracks meanwhile lets others recover beside it,
and others wait less for it, so that all bounds are smaller. Any period between that of (7) and the table's own is as sound.
What is minimised is the time by which each table is proven to have recovered after an outage of all feeds, by priority: first
one factor for all, then table by table as long as that helps. No optimum is claimed, only that each step is better than the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from penstock.model.time import SECOND_US
from penstock.scheduling.recovery.bounds import Model
from penstock.scheduling.recovery.tasks import RecoveryTask, provisioned

# How far between the shortest period and the table's own.
_FACTORS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
# Beyond so many tables they all get one factor.
_MOST_ONE_BY_ONE = 40
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Proposed:
    table: str
    recovery_us: int
    proposed_us: int
    # After an outage of all feeds; None where nothing is known.
    recovers_us: int | None
    would_us: int | None


@dataclass(frozen=True, slots=True)
class Proposal:
    tables: tuple[Proposed, ...]
    # The mean time to recover, by priority.
    mean_us: float
    would_us: float
    # Targets that are not kept, before and with it.
    missed: int
    would_miss: int


def with_periods(model: Model, recovery_us: Mapping[str, int]) -> Model:
    """The same with other recovery periods, as far as they are no shorter than there is room for."""
    shortest = {task.table: task for task in provisioned(model.tasks, model.tracks)}
    tasks = [
        replace(task, recovery_us=min(task.period_us, max(wanted, shortest[task.table].recovery_us)))
        if (wanted := recovery_us.get(task.table)) is not None
        else task
        for task in model.tasks
    ]
    return replace(model, tasks=tuple(tasks))


def propose(
    model: Model, targets_us: Mapping[str, int], weights: Mapping[str, float], outage_us: int
) -> Proposal | None:
    """None if nothing is proven of this model."""
    before = _value(model, targets_us, weights, outage_us)
    if before is None:
        return None
    reserved = [task for task in provisioned(model.tasks, model.tracks) if task.reserved]
    best, chosen = before, dict[str, int]()

    def tried(wanted: Mapping[str, int]) -> None:
        nonlocal best, chosen
        found = _value(with_periods(model, wanted), targets_us, weights, outage_us)
        if found is not None and found < best:
            best, chosen = found, dict(wanted)

    for factor in _FACTORS:
        tried({task.table: _between(task, factor) for task in reserved})
    for _ in range(_ROUNDS if len(reserved) <= _MOST_ONE_BY_ONE else 0):
        start = best
        for task in reserved:
            for factor in _FACTORS:
                tried({**chosen, task.table: _between(task, factor)})
        if best == start:
            break
    then = with_periods(model, chosen)
    now_us, then_us = _recovers_us(model, outage_us), _recovers_us(then, outage_us)
    tables = tuple(
        Proposed(
            task.table,
            task.recovery_us,
            then.known[task.table].recovery_us,
            now_us.get(task.table),
            then_us.get(task.table),
        )
        for task in model.tasks
        if task.reserved
    )
    return Proposal(tables, before[1], best[1], before[0], best[0])


def _between(task: RecoveryTask, factor: float) -> int:
    """In whole seconds, as it is written down, where that is possible; always less than the period."""
    wanted = task.recovery_us + factor * (task.period_us - task.recovery_us)
    seconds = ceil(wanted / SECOND_US) * SECOND_US
    return seconds if seconds < task.period_us else task.recovery_us


def _recovers_us(model: Model, outage_us: int) -> dict[str, int | None]:
    out = {task.table: outage_us for task in model.tasks if task.reserved and task.table not in model.sources}
    recovery = model.recovery(model.reached(out))
    return {task.table: recovery.latest_us(task.table) for task in model.tasks if task.reserved}


def _value(
    model: Model, targets_us: Mapping[str, int], weights: Mapping[str, float], outage_us: int
) -> tuple[int, float] | None:
    """Targets that are missed, and the mean time to recover."""
    bounds = model.bounds()
    found = _recovers_us(model, outage_us)
    known = {name: us for name, us in found.items() if us is not None}
    if not bounds or len(known) < len(found) or not known:
        return None
    missed = sum(name not in bounds or bounds[name].staleness_us > target for name, target in targets_us.items())
    total = sum(weights.get(name, 1.0) for name in known)
    return missed, sum(weights.get(name, 1.0) * us for name, us in known.items()) / total
