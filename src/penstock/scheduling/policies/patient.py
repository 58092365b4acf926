"""Patient: Max Benefit that knows when it pays to wait for the next batch. Not from the paper.

All data must be loaded some time, so the only work that can be saved when there is too much of it is the start-up of
updates that run too often. Put a price on track time: a table that is updated every n periods P then costs

    priority * P * n / 2      staleness
    price * alpha / (P * n)   start-ups

and the price at which n and n + 1 are equally good is its Whittle index (Whittle 1988),

    W = priority * P^2 * n * (n + 1) / (2 alpha)

whatever beta is. That is just after a batch came. The nearer the next one is, the better it is to wait for it and to pay one
start-up for both: in the same way one finds that n + 1/2 becomes n * (1 - x / (1 + 2 beta)) + 1/2 when x periods have passed.

What track time is worth depends on what waits for it, and for how long. A second more now, and the backlog is a second
shorter until there is none any more: a table of the backlog brings its benefit per second once for each of the D seconds
that the tracks stay busy. So W counts only up to that. The order is by

    min(W / D, benefit per second)

which is Max Benefit in an overload that soon ends (D -> 0), and the Whittle index in one that never does. Nobody knows D. But what
has lasted long mostly lasts long: it is taken as a part, `lasts`, of the time since which more jobs waited than tracks were free.

The index is Max Benefit until it meets W / D, falls from there to what that will be when the next batch is due, and is back
if the batch does not come. (W / D is bent, and taken as a straight line.) Between equals the one whose batch came last goes first:
it would have to wait longest for the next. A change of old partitions waits for nothing: it is worth its benefit.

Two more things that Max Benefit does not see. A table cannot run beside itself, so what it has lost it makes good only in the
time in which it is not busy anyway: with the part u of its time for its own data, its benefit counts 1 / (1 - u) times (u up to `alone`: that
would be true only if nobody else were behind).
And while the tracks have been busy for less time than a job takes (D < E), what follows from it will find tracks that are free: its
followers then cost nobody anything, and it weighs as much as all of them together. Later the inherited priority counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, sqrt
from typing import Any, NamedTuple

from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.scheduling.inheritance import inherited
from penstock.scheduling.jobs import NOTHING, Bends, ReadyJob, Situation
from penstock.scheduling.policies.index import MaxBenefit

# No start-up is so short, against the data of a period, that waiting would save nothing at all.
_LEAST_START_UP = 0.01
# A job whose index would begin to fall so late in its period does not wait.
_TOO_LATE = 1 / 64


class Patient(MaxBenefit):
    def __init__(self, lasts: float = 0.5, alone: float = 0.5, weights: Mapping[str, float] = NOTHING) -> None:
        if not 0 <= lasts < inf:
            raise ValueError("expected a finite lasts of at least 0")
        if not 0 <= alone < 1:
            raise ValueError("expected an alone of at least 0 and less than 1")
        # By table, how many times more than it inherits it weighs with all that follows from it.
        self.lasts, self.alone, self._more = lasts, alone, weights

    def knowing(self, graph: Graph, weights: Mapping[str, float]) -> Patient:
        every = inherited(graph, "sum")
        more = {}
        for name, others in graph.updated_with.items():
            own = sum(weights[each] for each in (name, *others))
            more[name] = sum(every[each] for each in (name, *others)) / own if own else 1.0
        return Patient(self.lasts, self.alone, more)

    def index(self, job: ReadyJob) -> tuple[float, float]:
        a, b = super().index(job)
        if job.gain_us and not job.late:
            busy = (job.expected_s - job.start_up_s) / (job.gain_us / SECOND_US)
            a /= 1 - min(self.alone, max(0.0, busy))
        return a, b

    def busy_since_us(self, situation: Situation) -> int | None:
        if len(situation.ready.fresher) <= len(situation.free):
            return None
        known = situation.memory.get("busy_since_us")
        if known is None:
            # What is ready now found no track before.
            ready = situation.ready
            known = min(situation.now_us, *(ready[table].release_us for table in ready.fresher))
        return int(known)

    def remember(self, situation: Situation) -> Mapping[str, Any]:
        since_us = self.busy_since_us(situation)
        return NOTHING if since_us is None else {"busy_since_us": since_us}

    def tie(self, job: ReadyJob) -> int:
        return -_came_us(job)

    def lines(self, job: ReadyJob, busy_since_us: int | None) -> Bends:
        more = self._more.get(job.table, 1.0)
        later = self._later(job, busy_since_us)
        if more == 1.0:
            return later
        a, b = self.index(job)
        soon = (0, more * a, more * b)
        if busy_since_us is None or not self.lasts:
            return (soon,)
        until = busy_since_us + int(job.expected_s / self.lasts * SECOND_US)
        number = max(number for number, line in enumerate(later) if not number or line[0] <= until)
        return (soon, (until, *later[number][1:]), *later[number + 1 :])

    def _later(self, job: ReadyJob, busy_since_us: int | None) -> Bends:
        """When the tracks have been busy for longer than it takes."""
        a, b = self.index(job)
        if busy_since_us is None or job.late or not job.gain_us or not self.lasts:
            return ((0, a, b),)
        worth = _Worth.of(job)
        since_s = busy_since_us / SECOND_US
        came_s = _came_us(job) / SECOND_US
        due_s = came_s + worth.period_s

        def counted(at_s: float, price: float) -> float:
            return min(a, price / (self.lasts * (at_s - since_s))) if at_s > since_s else a

        last = counted(due_s, worth.price(worth.period_s))
        if last >= a:
            return ((0, a, 0.0),)
        meets_s = came_s + worth.until(a * self.lasts, came_s - since_s)
        first = a
        if meets_s <= came_s:
            meets_s, first = came_s, counted(came_s, worth.price(0.0))
        after = (int(due_s * SECOND_US), counted(due_s, worth.price(0.0)), 0.0)
        if due_s - meets_s < _TOO_LATE * worth.period_s:
            return ((0, first, 0.0), after)
        slope = (last - first) / (due_s - meets_s)
        return ((0, first, 0.0), (int(meets_s * SECOND_US), first - slope * meets_s, slope), after)

    def why(self, job: ReadyJob, value: float) -> str:
        said = super().why(job, value)
        if not job.late and value > 1.001 * self.index(job)[0]:
            said += ", counted with all that follows from it, since the tracks have not been busy for long"
        if not job.late and value < 0.999 * self.index(job)[0]:
            said += (
                f", and counted below its own {self.index(job)[0]:.3g}, since the tracks have long been busy and one start "
                f"({job.start_up_s:.2f}s) would also do for its next batch"
            )
        return said


class _Worth(NamedTuple):
    """The price of track time up to which an update is worth its start-up: scale * (whole - fall * s)^2 after s seconds."""

    period_s: float
    scale: float
    whole: float
    fall: float

    @classmethod
    def of(cls, job: ReadyJob) -> _Worth:
        period_s = max(1, job.deadline_us - job.release_us) / SECOND_US
        gain_s = job.gain_us / SECOND_US
        data_s = max(0.0, job.expected_s - job.start_up_s)
        beta = min(1.0, data_s / gain_s)
        start_up_s = max(job.start_up_s, _LEAST_START_UP * (beta * period_s or job.expected_s))
        periods = gain_s / period_s
        return cls(
            period_s,
            job.inherited * period_s**2 / (2 * start_up_s),
            periods + 0.5,
            periods / (1 + 2 * beta) / period_s,
        )

    def price(self, after_s: float) -> float:
        return self.scale * (self.whole - self.fall * after_s) ** 2

    def until(self, rate: float, busy_s: float) -> float:
        """After how many seconds the price is only what track time is worth, rate * (seconds + busy_s)."""
        # In left = whole - fall * seconds: scale * left^2 + rate / fall * left = rate * (busy_s + whole / fall)
        half = rate / self.fall / 2
        left = (sqrt(half**2 + self.scale * rate * (busy_s + self.whole / self.fall)) - half) / self.scale
        return (self.whole - left) / self.fall


def _came_us(job: ReadyJob) -> int:
    """When the newest of its batches came, if they came as they should."""
    return job.release_us + max(0, job.gain_us - (job.deadline_us - job.release_us))
