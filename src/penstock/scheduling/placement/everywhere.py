"""Global scheduling: whenever a track is free, the first job takes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from penstock.scheduling.jobs import NOTHING, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Why, upkeep

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
