"""Scheduling by an index: the ready job with the largest index goes first. Alone it is a global policy (whenever a track
is free, the first job takes it); a placement says otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.model.graph import Graph
from penstock.scheduling.jobs import NOTHING, Decision, ReadyJob, Situation
from penstock.scheduling.placement.everywhere import Global


class IndexPolicy(ABC):
    """A local order. Subclasses say how a job ranks (a + b * now) and why, nothing else."""

    @abstractmethod
    def index(self, job: ReadyJob) -> tuple[float, float]: ...

    @abstractmethod
    def why(self, job: ReadyJob, value: float) -> str: ...

    # What is needed only by orders that are more than an index.

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        """The ready jobs with their values, first to last."""
        return situation.ready.ranked(situation.now_us, self.busy_since_us(situation))

    def busy_since_us(self, situation: Situation) -> int | None:
        """Since when the tracks have been busy, for `lines`, if the order has them and they depend on that."""
        return None

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        """What to know at the next decision. Asked for before the jobs are ranked."""
        return NOTHING

    def knowing(self, graph: Graph, weights: Mapping[str, float]) -> IndexPolicy:
        """The same order, for these tables with these priorities."""
        return self

    def decide(self, situation: Situation) -> Decision:
        known = self.remember(situation)
        return Decision(Global().place(situation, self.ranked(situation), self.why), None, known)
