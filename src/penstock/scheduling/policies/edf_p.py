"""Prioritised EDF (Golab, Johnson, Shkapenyuk 2011, Sec. 3.1): by priority, then by deadline."""

from __future__ import annotations

from penstock.model.time import format_instant
from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.index import IndexPolicy


class EdfP(IndexPolicy):
    def index(self, job: ReadyJob) -> tuple[float, float]:
        return job.inherited, 0.0

    def tie(self, job: ReadyJob) -> int:
        return job.deadline_us

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has the highest priority, {job.inherited:g}, and of those the earliest deadline, {format_instant(job.deadline_us)}"
