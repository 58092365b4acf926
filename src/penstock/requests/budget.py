"""How to split the time that a change may wait in queues over the stages of a pipeline.

A table at the end may be so much out of date; what its run times leave of that is the waiting budget of every way to it.
Splitting it evenly over the stages is not the best (beyond Xu, Gao, Davidson 2023, Sec. 4.2): an update that a queue
saves early is saved at all later stages, too, and a queue only helps where several streams of changes meet in it.

A queue that is opened by the first request and closed q seconds later turns requests that come at a rate r into
updates at the rate r / (1 + r q). `split` finds the waits per stage that make the cost of all updates least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Pipeline:
    """What reads what (each table after all that it reads), how often changes come from outside, what an update costs."""

    inputs: Mapping[str, Sequence[str]]
    rate_per_s: Mapping[str, float]
    cost: Mapping[str, float]

    @cached_property
    def stage(self) -> dict[str, int]:
        """Of each table how many others are one after the other above it."""
        found: dict[str, int] = {}
        for name, inputs in self.inputs.items():
            found[name] = max((found[source] + 1 for source in inputs), default=0)
        return found

    @property
    def stages(self) -> int:
        return max(self.stage.values()) + 1

    def cost_per_s(self, waits_s: Sequence[float]) -> float:
        """What all updates cost if each stage waits for so long."""
        rates: dict[str, float] = {}
        total = 0.0
        for name, inputs in self.inputs.items():
            rate = self.rate_per_s.get(name, 0.0) + sum(rates[source] for source in inputs)
            rates[name] = rate / (1.0 + rate * waits_s[self.stage[name]])
            total += self.cost.get(name, 1.0) * rates[name]
        return total

    def waits_s(self, by_stage: Sequence[float]) -> dict[str, float]:
        return {name: by_stage[stage] for name, stage in self.stage.items()}


def even(pipeline: Pipeline, budget_s: float) -> tuple[float, ...]:
    return (budget_s / pipeline.stages,) * pipeline.stages


def split(pipeline: Pipeline, budget_s: float, shares: int = 64) -> tuple[float, ...]:
    """The waits of the stages, which add up to the budget, that cost least: shares of the budget are moved from stage to
    stage as long as that helps, a half of what a stage has first and single shares in the end."""
    stages = pipeline.stages
    best, least = even(pipeline, budget_s), pipeline.cost_per_s(even(pipeline, budget_s))
    step = budget_s / 2
    while step >= budget_s / shares > 0:
        moved = False
        for giving in range(stages):
            for taking in range(stages):
                amount = min(step, best[giving])
                if giving == taking or amount <= 0:
                    continue
                tried = list(best)
                tried[giving] -= amount
                tried[taking] += amount
                cost = pipeline.cost_per_s(tried)
                if cost < least * (1 - 1e-9):
                    best, least, moved = tuple(tried), cost, True
        step = step if moved else step / 2
    return best
