"""Reserve: tracks are kept for short jobs as the machine is now, not as it is on average. Not from the paper.

Proportional shares the tracks out by mean load. When the machine slows down, the short jobs need more than their share
just when the long ones hold on to theirs for longest. How slow the machine is shows in the short jobs that finish: a
long job may start only while all jobs at least as long as it leave

    headroom * (time that finished short jobs took / time they were expected to take) * load of all shorter jobs

tracks to the shorter ones. Nobody has a home: a free track is taken by whoever comes first in the order and may start.
Clusters are those of Proportional.

A backfill can be far longer than the usual updates of its table. If a job that makes old partitions again takes as long as the
shortest period of its cluster, it counts as longer than all of that cluster, and as many tracks are kept free of such jobs as the
cluster needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import ceil
from typing import Any, Literal

from penstock.model.graph import Graph
from penstock.scheduling.jobs import NOTHING, Outlook, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Why, among, recurring, recurs, upkeep
from penstock.scheduling.placement.proportional import Clusters

_FROM_A_FAILURE = 2.0


@dataclass(frozen=True, slots=True)
class Loads:
    """Of each table its cluster, shortest jobs first; of each cluster the load of all shorter ones, in tracks."""

    cluster: Mapping[str, int]
    shorter: tuple[float, ...]
    # With its own load; and from when on a job is too long for it.
    upto: tuple[float, ...] = ()
    long_s: tuple[float, ...] = ()

    def too_long(self, table: str, expected_s: float) -> int | None:
        """The cluster for whose jobs it is too long, if it is."""
        cluster = self.cluster.get(table, 0)
        return cluster if cluster < len(self.long_s) and expected_s >= self.long_s[cluster] else None


class Reserve(Placement):
    grouped = True

    def __init__(
        self,
        *,
        k: float = 1.0,
        by: Literal["E", "P"] = "E",
        headroom: float = 1.1,
        forget: float = 0.9,
        least: int = 1,
        graph: Graph | None = None,
    ) -> None:
        self.k, self.by, self.headroom, self.forget, self.least = k, by, headroom, forget, least
        self._graph = graph
        # What was found for an outlook and its version.
        self._planned: tuple[Outlook, int, Clusters, Loads] | None = None

    def knowing(self, graph: Graph) -> Reserve:
        return Reserve(k=self.k, by=self.by, headroom=self.headroom, forget=self.forget, least=self.least, graph=graph)

    def loads(self, situation: Situation) -> Loads:
        outlook = situation.outlook
        if self._planned is None or self._planned[1] != outlook.version or self._planned[0] is not outlook:
            found = self._clusters(outlook, situation.tracks)
            upto = (0.0, *accumulate(found.loads))
            loads = Loads(found.cluster, upto[:-1], upto[1:], tuple(self.k * least for least in found.shortest_s))
            self._planned = (outlook, outlook.version, found, loads)
        return self._planned[3]

    def _clusters(self, outlook: Outlook, tracks: int) -> Clusters:
        """Those from before, as far as the outlook can say what is new."""
        if self._graph is None:
            return Clusters((), self.k, self.by, tracks)
        if self._planned is not None and self._planned[0] is outlook:
            changed = outlook.changed_since(self._planned[1])
            if changed is not None:
                self._planned[2].change(recurs(self._graph, outlook, name) for name in changed)
                return self._planned[2]
        return Clusters(recurring(self._graph, outlook), self.k, self.by, tracks)

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        """How slow the machine is now, against what was expected: of all but the longest jobs, the latest most."""
        loads = self.loads(situation)
        longest = len(loads.shorter) - 1
        slowness = float(situation.memory.get("slowness", 1.0))
        for done in situation.finished:
            if loads.cluster.get(done.table, longest) < longest:
                seen = done.took_s / done.expected_s
                if done.failed:
                    # It shows at most that the machine is slower than was thought, and perhaps only a time-out.
                    seen = max(slowness, min(seen, _FROM_A_FAILURE * slowness))
                slowness = self.forget * slowness + (1 - self.forget) * seen
        return {"slowness": slowness}

    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        loads = self.loads(situation)
        slowness = memory["slowness"]
        free = list(situation.free)
        starts: list[Start] = []
        count = len(loads.shorter)
        # How many more jobs of each cluster may start. A running job counts for its own cluster and all shorter ones.
        room = [
            self._room(situation, slowness, shorter) if number else situation.tracks
            for number, shorter in enumerate(loads.shorter)
        ]
        for running in situation.running.values():
            for number in range(loads.cluster.get(running.table, 0) + 1):
                if number < count:
                    room[number] -= 1

        def may_start(cluster: int | None) -> bool:
            return not cluster or all(room[number] > 0 for number in range(1, cluster + 1))

        for value, job in among(situation, ranked, loads.cluster, may_start):
            if job.upkeep:
                return tuple(starts) if starts else upkeep(situation, job, free)
            short = loads.too_long(job.table, job.expected_s) if job.late else None
            if short is not None:
                room_left = self._room(situation, slowness, loads.upto[short])
                if self._long_now(situation, loads.long_s[short], starts) >= room_left:
                    continue
            cluster = loads.cluster.get(job.table, 0)
            for number in range(min(cluster + 1, count)):
                room[number] -= 1
            starts.append(Start(job.table, free.pop(0), partial(_said, why, job, value, slowness)))
            if not free:
                break
        return tuple(starts)

    def _room(self, situation: Situation, slowness: float, load: float) -> int:
        """How many tracks are left to others than those who have this load."""
        return max(self.least, situation.tracks - ceil(self.headroom * slowness * load - 1e-9))

    def _long_now(self, situation: Situation, long_s: float, starts: list[Start]) -> int:
        """How many jobs run, or are about to, that take so long."""
        running = [job.expected_s for job in situation.running.values()]
        running += [situation.ready[start.table].expected_s for start in starts]
        return sum(expected_s >= long_s for expected_s in running)


def _said(why: Why, job: Any, value: float, slowness: float) -> str:
    return f"{why(job, value)}; short updates now take {slowness:.2f} of their usual time"
