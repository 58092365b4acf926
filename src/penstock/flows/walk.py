"""An executor's walk through a staging plan: what may start, and what may be let go. Pure; the executor runs the steps."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.flows.staging import StagedRows, StagingPlace, StagingPlan, Step


class Walk:
    """Steps that only write targets start as soon as what they read exists. Steps that stage in memory start in the
    order of the plan, when what is held and their own bytes fit the limit. As the plan's own order fits, one after the
    other, nothing waits for good."""

    def __init__(self, plan: StagingPlan, limit_bytes: float | None = None, slots: int = 4) -> None:
        self.plan = plan
        self.limit_bytes = max(limit_bytes or 0.0, plan.peak_bytes)
        self.slots = slots
        self.waiting = {step.name: step for step in plan.steps}
        self.running: dict[str, Step] = {}
        self.finished: set[str] = set()
        self.held: dict[str, StagedRows] = {}
        self.held_bytes = 0.0
        self._left = {staged.node: len(staged.readers) for staged in plan.staged.values()}

    @property
    def done(self) -> bool:
        return not self.waiting and not self.running

    def start(self) -> tuple[Step, ...]:
        """The steps to start now; they count as running."""
        started: list[Step] = []
        turn_taken = False  # a step that stages in memory waits, so later ones do
        for step in self.waiting.values():
            if len(self.running) + len(started) >= self.slots:
                break
            taken = sum(map(_in_memory, step.stages))
            fits = not taken or (not turn_taken and self.held_bytes + taken <= self.limit_bytes * (1 + 1e-9))
            if fits and self.finished.issuperset(step.after):
                started.append(step)
                self.held |= {staged.node: staged for staged in step.stages}
                self.held_bytes += taken
            elif taken:
                turn_taken = True
        for step in started:
            self.running[step.name] = self.waiting.pop(step.name)
        return tuple(started)

    def finish(self, name: str) -> tuple[StagedRows, ...]:
        """A step has ended well: what is to be released now."""
        step = self.running.pop(name)
        self.finished.add(name)
        released: list[StagedRows] = []
        for node in step.reads:
            self._left[node] -= 1
        for node in (*step.reads, *(staged.node for staged in step.stages)):
            if not self._left[node]:
                released.append(self.held.pop(node))
        self.held_bytes -= sum(map(_in_memory, released))
        return tuple(released)


def _in_memory(staged: StagedRows) -> float:
    return staged.bytes_ if staged.place is StagingPlace.MEMORY else 0.0


@dataclass(frozen=True)
class Turn:
    """When a step would run, and what is held in memory while it does."""

    step: Step
    start_us: float
    end_us: float
    held_bytes: float  # at its start, with its own


def timetable(plan: StagingPlan, slots: int = 4, limit_bytes: float | None = None) -> tuple[Turn, ...]:
    """The walk as it would go if every step took just its estimated work, in the order of starts. Steps that overlap
    run at the same time."""
    walk = Walk(plan, limit_bytes, slots)
    now_us = 0.0
    ends: list[tuple[float, int, str]] = []
    turns: list[Turn] = []
    while not walk.done:
        for step in walk.start():
            turns.append(Turn(step, now_us, now_us + step.cost_us, walk.held_bytes))
            heappush(ends, (now_us + step.cost_us, len(turns), step.name))
        now_us, _, name = heappop(ends)
        walk.finish(name)
    return tuple(turns)
