"""What all placements share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import NOTHING, ByIndex, Outlook, ReadyJob, Situation, Start

M = TypeVar("M", bound=Mapping[Any, Any])
Ranked = Iterable[tuple[float, ReadyJob]]
Why = Callable[[ReadyJob, float], str]


def among(
    situation: Situation, ranked: Ranked, group_of: Mapping[str, Hashable], may_start: Callable[[Any], bool]
) -> Ranked:
    """The jobs in order, of those groups of tables only that may start something when their turn comes."""
    if isinstance(ranked, ByIndex) and ranked.ready is situation.ready:
        return ranked.ready.among(ranked.now_us, group_of, may_start, ranked.busy_since_us)
    return (entry for entry in ranked if may_start(group_of.get(entry[1].table)))


def unless_equal(new: M, before: M | None) -> M:
    """The mapping from before if nothing changed: what is kept by group then need not be made anew."""
    return before if before is not None and new == before else new


class Placement(ABC):
    # Whether it asks for jobs by group: then it is given more than an iterator.
    grouped = False

    @abstractmethod
    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        """Jobs and their tracks, from jobs in the order of the policy."""

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        """What to know now and at the next decision."""
        return NOTHING

    def knowing(self, graph: Graph) -> Placement:
        """The same placement, for these tables."""
        return self


class Recurring(NamedTuple):
    """The update of one table, or of a group, as it comes back every period."""

    table: str
    period_s: float
    cost_s: float

    @property
    def utilisation(self) -> float:
        return self.cost_s / self.period_s


def recurring(graph: Graph, outlook: Outlook) -> list[Recurring]:
    return [recurs(graph, outlook, name) for name in graph.updated_with]


def recurs(graph: Graph, outlook: Outlook, name: str) -> Recurring:
    return Recurring(name, graph.updated_every_us[name] / SECOND_US, outlook.period_cost_s(name))


def upkeep(situation: Situation, job: ReadyJob, free: list[int]) -> tuple[Start, ...]:
    """Upkeep leaves a track free for what may come, unless there is only one."""
    if len(free) > min(1, situation.tracks - 1):
        return (Start(job.table, free[0], "nothing else to do: small files are merged"),)
    return ()


# Global scheduling: whenever a track is free, the first job takes it.

# Half the time of the constructor, which is felt in a simulation: this is asked more often than anything else.
_new = tuple.__new__


class Global(Placement):
    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        starts: list[Start] = []
        # The tracks first: when they are used up, no further job is asked for.
        for track, (value, job) in zip(situation.free, ranked, strict=False):
            if job.upkeep:  # and so are all that follow
                return tuple(starts) if starts else upkeep(situation, job, list(situation.free))
            starts.append(_new(Start, (job.table, track, partial(why, job, value), None)))
        return tuple(starts)


def first_on(situation: Situation, why: Why) -> tuple[Start, ...]:
    """The same where a single track is free, which is most of the time, and nothing but the index says who is first."""
    best = situation.ready.best(situation.now_us)
    if best is None:
        return ()
    value, job = best
    if job.upkeep:
        return upkeep(situation, job, list(situation.free))
    return (_new(Start, (job.table, situation.free[0], partial(why, job, value), None)),)
