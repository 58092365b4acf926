"""Earliest deadline first. The deadline of an update is the arrival of its oldest batch plus the period of its table, so
every batch should be in before the next one comes. It knows no priorities: a baseline (Golab, Johnson, Shkapenyuk 2011,
Sec. 3.1)."""

from __future__ import annotations

from penstock.model.time import SECOND_US, format_instant
from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.index import IndexPolicy


class Edf(IndexPolicy):
    def index(self, job: ReadyJob) -> tuple[float, float]:
        return -job.deadline_us / SECOND_US, 0.0

    def why(self, job: ReadyJob, value: float) -> str:
        return f"has the earliest deadline, {format_instant(job.deadline_us)}"
