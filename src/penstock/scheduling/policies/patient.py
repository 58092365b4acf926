"""Patient: the job with the most periods of data first, the one with the larger benefit per second among equals. An index
for an overload that lasts. Not from the paper.

    (gain / period) ^ patience * benefit / expected time

All data must be loaded some time, so the only work that can be saved in an overload is the start-up cost of updates that
run too often. Max Benefit runs a cheap table at every batch, because its benefit per second is always highest; each of
these runs pays the start-up again, while dear tables pile up. With a price on time the best interval between updates does
not depend on beta at all (Whittle's index of an age with a set-up cost is p * n^2 / 2 alpha), which is why EDF-P does better
there. While nothing is late n is 1 everywhere, and this is Max Benefit; patience 0 is Max Benefit always. In cycles of
slowdown and recovery the backlog should rather wait where it is dear to work off: then about 1 is best.
"""

from __future__ import annotations

from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.max_benefit import MaxBenefit


class Patient(MaxBenefit):
    def __init__(self, patience: float = 8.0) -> None:
        self.patience = patience

    def index(self, job: ReadyJob) -> tuple[float, float]:
        a, b = super().index(job)
        periods = job.gain_us / max(1, job.deadline_us - job.release_us)
        scale = max(1.0, periods) ** self.patience
        return a * scale, b * scale
