"""Global scheduling: whenever a track is free, the first job takes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from penstock.scheduling.jobs import NOTHING, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Why, upkeep


class Global(Placement):
    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        free = list(situation.free)
        starts: list[Start] = []
        if not free:
            return ()
        for value, job in ranked:
            if job.upkeep:  # and so are all that follow
                return tuple(starts) if starts else upkeep(situation, job, free)
            starts.append(Start(job.table, free.pop(0), partial(why, job, value)))
            if not free:
                break
        return tuple(starts)
