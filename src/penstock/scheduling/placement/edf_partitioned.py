"""EDF-Partitioned (Golab, Johnson, Shkapenyuk 2011, Sec. 3.2.1 and 3.2.2): tables get home tracks such that on each
track non-preemptive EDF would meet all deadlines,

    U + u_i <= 1 - Emax / Pmin          (with the job counted in)

and a job whose home is busy may be promoted to an idle track where that still holds. The printed promotion test leaves
the job out, and then all four jobs of the example of Sec. 3.2.4 would be promotable; the text says only one is.
Packing is next-fit by period, as in the example. Jobs for which there are too few tracks go one by one to the least
utilised track.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from penstock.model.graph import Graph
from penstock.scheduling.jobs import NOTHING, Situation, Start
from penstock.scheduling.placement.base import Placement, Ranked, Recurring, Why, among, recurring, unless_equal, upkeep


@dataclass(slots=True)
class Track:
    utilisation: float = 0.0
    longest_s: float = 0.0
    shortest_period_s: float = inf

    def admits(self, job: Recurring) -> bool:
        longest = max(self.longest_s, job.cost_s)
        shortest = min(self.shortest_period_s, job.period_s)
        return self.utilisation + job.utilisation <= 1 - longest / shortest + 1e-12

    def add(self, job: Recurring) -> None:
        self.utilisation += job.utilisation
        self.longest_s = max(self.longest_s, job.cost_s)
        self.shortest_period_s = min(self.shortest_period_s, job.period_s)


@dataclass(slots=True)
class Homes:
    """Of each table its home track, and the tracks to which it can be promoted. Tracks from `used` on are free."""

    home: dict[str, int] = field(default_factory=dict)
    promotable: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Both: tables that are alike in this can start on the same tracks.
    kind: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    used: int = 0
    fits: bool = True


def pack(jobs: Sequence[Recurring], tracks: int) -> Homes:
    """Next-fit over the jobs by period; the last tracks that remain are free."""
    made: list[Track] = []
    homes = Homes()
    for job in sorted(jobs, key=lambda job: (job.period_s, job.table)):
        current = len(made) - 1
        if homes.fits and (not made or not made[current].admits(job)):
            if len(made) < tracks:
                made.append(Track())
                current += 1
            else:
                homes.fits = False
        if not homes.fits:
            current = min(range(tracks), key=lambda r: made[r].utilisation)
        made[current].add(job)
        homes.home[job.table] = current
    homes.used = len(made)
    for job in jobs:
        homes.promotable[job.table] = tuple(
            r for r, track in enumerate(made) if r != homes.home[job.table] and track.admits(job)
        )
        homes.kind[job.table] = (homes.home[job.table], homes.promotable[job.table])
    return homes


class EdfPartitioned(Placement):
    grouped = True

    def __init__(self, *, aggressive: bool = False, graph: Graph | None = None) -> None:
        self.aggressive = aggressive
        self._graph = graph
        self._planned: tuple[int, int, Homes] | None = None

    def knowing(self, graph: Graph) -> EdfPartitioned:
        return EdfPartitioned(aggressive=self.aggressive, graph=graph)

    def homes(self, situation: Situation) -> Homes:
        version, tracks = situation.outlook.version, situation.tracks
        if self._planned is None or self._planned[:2] != (version, tracks):
            jobs = recurring(self._graph, situation.outlook) if self._graph is not None else []
            homes = pack(jobs, tracks)
            homes.kind = unless_equal(homes.kind, self._planned[2].kind if self._planned else None)
            self._planned = (version, tracks, homes)
        return self._planned[2]

    def place(
        self, situation: Situation, ranked: Ranked, why: Why, memory: Mapping[str, Any] = NOTHING
    ) -> tuple[Start, ...]:
        homes = self.homes(situation)
        free = list(situation.free)
        starts: list[Start] = []
        # Those that wait, by home, as far as the list has not come to them.
        later: Counter[int] = Counter()
        if not self.aggressive:
            later.update(homes.home.get(job.table, 0) for job in situation.ready.values() if not job.upkeep)

        def may_start(kind: tuple[int, tuple[int, ...]] | None) -> bool:
            home, promotable = kind or (0, ())
            return bool(free) and (home in free or free[-1] >= homes.used or any(r in free for r in promotable))

        for value, job in among(situation, ranked, homes.kind, may_start):
            if job.upkeep:
                return tuple(starts) if starts else upkeep(situation, job, free)
            home = homes.home.get(job.table, 0)
            later[home] -= 1
            if home in free:
                track, how = home, "on its home track"
            elif free[-1] >= homes.used:
                track, how = next(r for r in free if r >= homes.used), "on a free track"
            else:
                found = self._promoted(homes, job.table, free, later)
                if found is None:
                    continue
                track, how = found, f"promoted from track {home}, which is busy"
            free.remove(track)
            starts.append(Start(job.table, track, partial(_said, why, job, value, how)))
        return tuple(starts)

    def _promoted(self, homes: Homes, table: str, free: list[int], later: Mapping[int, int]) -> int | None:
        for track in homes.promotable.get(table, ()):
            # Whoever has a free home is never left out of the list, so these are counted right.
            if track in free and (self.aggressive or later.get(track, 0) <= 0):
                return track
        return None


def _said(why: Why, job: Any, value: float, how: str) -> str:
    return f"{why(job, value)}; {how}"
