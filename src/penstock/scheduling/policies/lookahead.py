"""Max Benefit with lookahead (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1).

The job J with the largest marginal benefit would keep the track for E. If a better job K is expected before that time
is over, other ready jobs that bridge the time until then, and K after them, may bring more per second than J:

    B[S] = (sum of benefits in S + benefit of K) / (sum of times in S + time of K)   for r_K <= time of S < E_J

(line 2a prints E_j for E_i). The paper finds almost no gain, and in a long mild overload it is worse than Max Benefit:
it is here to be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.scheduling.jobs import ReadyJob, Situation
from penstock.scheduling.policies.max_benefit import MaxBenefit

# Sets are made of so many of the best short jobs, and of so many at once, to keep their number in bounds.
_BRIDGES = 6
_TOGETHER = 3


class Lookahead(MaxBenefit):
    def __init__(self, graph: Graph | None = None, weights: Mapping[str, float] | None = None) -> None:
        self._graph = graph
        self._weights = weights or {}

    def knowing(self, graph: Graph, weights: Mapping[str, float]) -> Lookahead:
        return Lookahead(graph, weights)

    def ranked(self, situation: Situation) -> Iterator[tuple[float, ReadyJob]]:
        jobs = list(situation.ready.ranked(situation.now_us))
        if len(jobs) > 1 and self._graph is not None and not jobs[0][1].upkeep:
            chosen = self.chosen(situation, [entry for entry in jobs if not entry[1].upkeep])
            jobs.insert(0, jobs.pop(chosen))
        return iter(jobs)

    def chosen(self, situation: Situation, jobs: list[tuple[float, ReadyJob]]) -> int:
        """Which of the ready jobs goes first."""
        best, first = jobs[0]
        bridges = [
            (number, benefit, job) for number, (benefit, job) in enumerate(jobs) if job.expected_s < first.expected_s
        ][:_BRIDGES]
        found, value = 0, best
        for in_s, benefit, time_s in self._upcoming(situation, first.expected_s):
            if benefit / time_s <= best:
                continue
            for size in range(1, min(_TOGETHER, len(bridges)) + 1):
                for some in combinations(bridges, size):
                    total_s = sum(job.expected_s for _, _, job in some)
                    if not in_s <= total_s < first.expected_s:
                        continue
                    together = (sum(rate * job.expected_s for _, rate, job in some) + benefit) / (total_s + time_s)
                    if together > value:
                        found, value = some[0][0], together
        return found

    def _upcoming(self, situation: Situation, within_s: float) -> Iterator[tuple[float, float, float]]:
        """Base tables whose next batch is expected within a time: in how many seconds, its benefit, its cost."""
        assert self._graph is not None
        busy = {job.table for job in situation.running.values()}
        outlook = situation.outlook
        for name, table in self._graph.tables.items():
            if not table.is_base or name in situation.ready or name in busy:
                continue
            release = outlook.next_release_us(name)
            if release is None or not situation.now_us < release:
                continue
            in_s = (release - situation.now_us) / SECOND_US
            if in_s <= within_s:
                benefit = self._weights[name] * self._graph.periods_us[name] / SECOND_US
                yield in_s, benefit, outlook.period_cost_s(name)
