"""Max Benefit (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1): the most priority-weighted freshness per second of work.

    benefit = priority * (freshness delta + history_weight * sum over changed old partitions of their age)

divided by the expected time alpha + beta * amount. The second term is ours: at the leading edge alone a backfill would
have no benefit and would starve. It grows while the job waits, so the index is linear in time.
"""

from __future__ import annotations

from penstock.model.time import SECOND_US, format_duration
from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.index import IndexPolicy


class MaxBenefit(IndexPolicy):
    def index(self, job: ReadyJob) -> tuple[float, float]:
        weight = job.inherited / job.expected_s
        if not job.late:
            return weight * job.gain_us / SECOND_US, 0.0
        history = job.history_weight * job.late
        return (
            weight * (job.gain_us - history * job.late_since_us) / SECOND_US,
            weight * history,
        )

    def why(self, job: ReadyJob, value: float) -> str:
        parts = []
        if job.gain_us:
            parts.append(f"gains {format_duration(job.gain_us)} of freshness")
        if job.late:
            parts.append(f"brings {job.late} changed old partition{'s' if job.late > 1 else ''} up to date")
        what = " and ".join(parts) or "has work"
        return (
            f"{what} in about {job.expected_s:.2f}s at priority {job.inherited:g}: "
            f"benefit {value:.3g} per second, the largest of the ready tables"
        )
