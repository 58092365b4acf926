"""Time or memory: the ways in which a flow could run, none of which is better than another in both, and the one to take.

Staged intermediates hold memory and save work; steps that run side by side hold more at once and end sooner. From the estimates of
a graph a few plans are made, with more or less in memory, and each is walked under several limits. What is left is the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.flows.graph import FlowGraph
from penstock.flows.ordering import LEAST_PEAK
from penstock.flows.staging import StagingPlan, plan_staging, timetable

Objective = Literal["time", "memory", "balanced"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# Of what a plan holds at once, the shares for which one is made that holds no more, the rest being on disk.
_SHARES = (0.75, 0.5, 0.25, 0.0)
# Of what lies between the least that a plan holds and all that it stages, the limits that are tried.
_LIMITS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class RunPreferences:
    """How a flow is to run, as far as somebody said so."""

    objective: Objective | None = None
    memory_bytes: int | None = None
    slots: int | None = None
    order: str | None = None

    def else_(self, other: RunPreferences) -> RunPreferences:
        """What another one says where this does not."""
        return RunPreferences(
            self.objective or other.objective,
            other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            self.slots or other.slots,
            self.order or other.order,
        )


ANYHOW = RunPreferences()


@dataclass(frozen=True)
class FrontierPoint:
    """One way to run: a plan, walked under a limit of memory for what is staged. Both figures are estimates."""

    plan: StagingPlan
    limit_bytes: float
    peak_bytes: float
    time_us: float


def frontier(
    graph: FlowGraph, slots: int = 4, memory_bytes: float | None = None, order: str = LEAST_PEAK
) -> tuple[FrontierPoint, ...]:
    """All of which none is better in time and in memory, the fastest last. With `memory_bytes` none holds more."""
    best = plan_staging(graph, memory_bytes, order=order)
    plans = [best]
    for share in _SHARES if best.peak_bytes else ():
        plans.append(plan_staging(graph, best.peak_bytes * share, order=order))
    plans.append(plan_staging(graph, memory_bytes, order=order, staged=False))
    points = [point for plan in plans for point in _walked(plan, slots, memory_bytes)]
    points.sort(key=lambda point: (point.peak_bytes, point.time_us))
    found: list[FrontierPoint] = []
    for point in points:
        if not found or point.time_us < found[-1].time_us * (1 - 1e-9):
            found.append(point)
    return tuple(found)


def _walked(plan: StagingPlan, slots: int, memory_bytes: float | None) -> list[FrontierPoint]:
    least, every = plan.peak_bytes, plan.memory_bytes
    limits = sorted({least + (every - least) * share for share in _LIMITS})
    if memory_bytes is not None:
        limits = sorted({min(limit, max(memory_bytes, least)) for limit in limits})
    found = []
    for limit in limits:
        turns = timetable(plan, slots, limit)
        ends = max(turn.end_us for turn in turns)
        found.append(FrontierPoint(plan, limit, max(turn.held_bytes for turn in turns), ends))
    return found


def chosen(points: tuple[FrontierPoint, ...], objective: Objective) -> FrontierPoint:
    """The fastest, the one that holds the least, or the one that is nearest to both."""
    if objective == "time":
        return points[-1]
    if objective == "memory":
        return points[0]
    most, slowest = points[-1].peak_bytes or 1.0, points[0].time_us or 1.0
    return min(points, key=lambda point: (point.peak_bytes / most) ** 2 + (point.time_us / slowest) ** 2)
