"""First in, first out: the job whose work has waited longest. The baseline to compare with."""

from __future__ import annotations

from penstock.model.time import SECOND_US, format_instant
from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.index import IndexPolicy


class Fifo(IndexPolicy):
    def index(self, job: ReadyJob) -> tuple[float, float]:
        return -job.release_us / SECOND_US, 0.0

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has waited longest, since {format_instant(job.release_us)}"
