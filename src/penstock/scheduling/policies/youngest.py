"""Max Benefit, where of equal jobs the one released last goes first. Not from the paper.

Ties are the rule among tables that are alike. Max Benefit gives them to who waits longest; but that one's next batch is
also the nearest, and if it waits a little more it loads two batches and pays its start-up once. The youngest would have to
wait longest for that. At full load the difference is large: on the workload of Fig. 6 Random is better than Max Benefit with
the oldest first, and this is better than Random.
"""

from __future__ import annotations

from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.max_benefit import MaxBenefit


class Youngest(MaxBenefit):
    def tie(self, job: ReadyJob) -> int:
        return -job.release_us
