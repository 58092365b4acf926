"""Patient: an index that knows when it pays to wait for the next batch. Not from the paper.

All data must be loaded some time, so the only work that can be saved when there is too much of it is the start-up of
updates that run too often. Put a price on track time: a table that is updated every n periods P then costs

    priority * P * n / 2      staleness
    price * alpha / (P * n)   start-ups

and the price at which n and n + 1 are equally good is its Whittle index (Whittle 1988),

    priority * P^2 * n * (n + 1) / (2 alpha)

whatever beta is. That is just after a batch came. The nearer the next one is, the better it is to wait for it and to pay one
start-up for both: in the same way one finds that n + 1/2 becomes n * (1 - x / (1 + 2 beta)) + 1/2 when x periods have passed.
The root of the index is linear in time, and that is what is ranked, times the benefit per second to the power of 1 / patience:

    patience -> infinity   as if the load would never end
    patience 16            for an overload that lasts (`patient`)
    patience 2             the geometric mean with Max Benefit: for overloads that come and go (`balanced`)
    patience -> 0          Max Benefit

The price is taken per period, P / alpha for P^2 / alpha: between tables of very different periods benefit decides.
From `upto` periods on more of them weigh no more. If even the rarest updates are too many for the machine, some table has to
fall behind, and that had better be one that is dear to update. A job whose next batch is overdue waits no longer. A change of
old partitions counts as its weighted age, as in Max Benefit.
"""

from __future__ import annotations

from math import sqrt

from penstock.model.time import SECOND_US, format_duration
from penstock.scheduling.jobs import ReadyJob
from penstock.scheduling.policies.index import IndexPolicy

# No start-up is so short, against the data of a period, that waiting would save nothing at all.
_LEAST_START_UP = 0.01
_Lines = tuple[tuple[float, float], tuple[int, float, float]]


class Patient(IndexPolicy):
    def __init__(self, patience: float = 16.0, upto: float = 16.0) -> None:
        if not patience > 0 or not upto >= 1:
            raise ValueError("expected patience above 0 and upto of at least 1")
        self.patience, self.upto = patience, upto
        self._last: tuple[ReadyJob | None, _Lines] = None, ((0.0, 0.0), (0, 0.0, 0.0))

    def index(self, job: ReadyJob) -> tuple[float, float]:
        return self._lines(job)[0]

    def turn(self, job: ReadyJob) -> tuple[int, float, float] | None:
        return self._lines(job)[1]

    def why(self, job: ReadyJob, value: float) -> str:
        late = f" and {job.late} changed old partition{'s' if job.late > 1 else ''}" if job.late else ""
        return (
            f"brings {format_duration(job.gain_us)} of data{late} in about {job.expected_s:.2f}s, of which {job.start_up_s:.2f}s "
            f"start-up, at priority {job.inherited:g}: waiting for more would save less than that of any other ready table"
        )

    def _lines(self, job: ReadyJob) -> _Lines:
        """The index until the next batch is due, and from when on it is which. Both are asked for, one after the other."""
        if self._last[0] is job:
            return self._last[1]
        period_s = max(1, job.deadline_us - job.release_us) / SECOND_US
        gain_s = job.gain_us / SECOND_US
        data_s = max(0.0, job.expected_s - job.start_up_s)
        beta = min(1.0, data_s / gain_s) if gain_s else 0.0
        start_up_s = max(job.start_up_s, _LEAST_START_UP * (beta * period_s or data_s))
        benefit = job.inherited * max(gain_s, period_s) / job.expected_s
        price = job.inherited * period_s / (2 * start_up_s)
        scale = benefit ** (1 / self.patience) * sqrt(price)
        periods = min(gain_s / period_s, self.upto)
        # How much of the waiting since the last batch counts against it, in periods per second.
        wait = periods / (1 + 2 * beta) / period_s
        # When the newest of its batches came, if they came as they should.
        last_s = (job.release_us + max(0, job.gain_us - (job.deadline_us - job.release_us))) / SECOND_US
        ageing = job.history_weight * job.late / period_s
        due = periods + 0.5 - ageing * job.late_since_us / SECOND_US
        before = scale * (due + wait * last_s), scale * (ageing - wait)
        found = before, (int((last_s + period_s) * SECOND_US), scale * due, scale * ageing)
        self._last = job, found
        return found
