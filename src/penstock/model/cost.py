"""How long an update takes: E = alpha + beta * amount, learned per table from finished jobs.

Least squares over exponentially forgotten observations, so that drift is followed; a residual beyond three times the
usual one counts only as much as that, so that one job on a busy machine does not spoil the estimate.

What is usual is soon known. How much of it is start-up and how much is data only shows when amounts differ, by more than what
times differ anyway. Until then half is taken for each, give or take a quarter: the slope is the most likely one between that
guess and what was seen. A feed whose files are all alike says nothing of a backfill of a year; nobody should conclude that it
takes no longer than one file.

What is usual is the amount of one period. It is learned from jobs that load new data, by how many periods these hold: a backlog that is
loaded at once is as many of them, a backfill none, and one huge file among small ones moves it a little only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, log2

from penstock.model.partitions import Interval, PartitionSet

# A job that is cut goes on until its data take so many times its start-up: cut shorter, it would only start more often.
WORTH_A_START = 19
# A longest job takes so many times what is usual, or so many usual deviations more.
LONGER = 1.25
_DEVIATIONS = 3
# Costs that plans are made from are told in steps of a fifth, so that plans do not change with every finished job. A step is a
# function of the cost alone: the same state gives the same plans, however it was reached.
_STEPS_PER_DOUBLING = 4
_FORGET = 0.9
# By how many times one job may change what the amount of a period is taken to be.
_PERIOD_STEP = 1.5
_START_UP_S = 0.5
# The part of the usual time that is taken to be for data, and the standard deviation of that guess: none and all are as far off
# as is likely.
_DATA, _DOUBT = 0.5, 0.25
# A standard deviation in mean absolute deviations.
_SIGMA = 1.25
# Of so many updates it is remembered by how much they missed what was expected of them, from the third on. That none of the last
# 59 took longer than something says: with 95 % confidence at most one in twenty does, whatever the distribution.
REMEMBERED, ENOUGH = 64, 59
_SETTLED = 2
# Amounts that differ by less than this part say nothing, however regular the times are.
_ALIKE = 1e-3


def step_s(seconds: float, rounded: Callable[[float], int] = round) -> float:
    return float(2.0 ** (rounded(log2(seconds) * _STEPS_PER_DOUBLING) / _STEPS_PER_DOUBLING))


@dataclass(slots=True)
class CostModel:
    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    spread_s: float = 0.0
    alpha_s: float = _START_UP_S
    beta_s: float = 0.0
    # The amount of one period; 0 while nothing is known.
    period: float = 0.0
    # Of the last updates, what they took as a multiple of what was expected when they started.
    ratios: list[float] = field(default_factory=list)

    def expected_s(self, amount: float) -> float:
        return max(1e-3, self.alpha_s + self.beta_s * amount)

    @property
    def usual_s(self) -> float:
        """With the amount of one period."""
        return self.expected_s(self.period or (self.x / self.weight if self.weight else 0.0))

    @property
    def longest_s(self) -> float:
        """What it takes at most with the usual amount, as far as that can be known: what bounds are computed from."""
        usual = self.usual_s
        seen = max(self.ratios, default=0.0) * usual
        return step_s(max(LONGER * usual, usual + _DEVIATIONS * self.spread_s, seen), ceil)

    def observe(self, amount: float, seconds: float) -> None:
        if 0 < self.weight < 2 and seconds < self.expected_s(amount) / 2:
            # The first job of a table pays for warming up: what a warm one takes is worth more.
            self.weight = self.x = self.y = self.xx = self.xy = 0.0
        if self.weight > _SETTLED:
            self.ratios = [*self.ratios[1 - REMEMBERED :], round(seconds / self.expected_s(amount), 4)]
        if self.weight:
            expected, unsure = self.expected_s(amount), self._unsure_s(amount)
            residual = seconds - expected
            limit = 3 * self.spread_s + unsure if self.weight > 2 else abs(residual)
            beyond = max(0.0, abs(residual) - unsure)
            self.spread_s = _FORGET * self.spread_s + (1 - _FORGET) * min(beyond, max(3 * limit, 1e-3))
            seconds = expected + max(-limit, min(limit, residual)) if limit else seconds
        else:
            self.spread_s = seconds / 2
        self.weight = _FORGET * self.weight + 1
        self.x = _FORGET * self.x + amount
        self.y = _FORGET * self.y + seconds
        self.xx = _FORGET * self.xx + amount * amount
        self.xy = _FORGET * self.xy + amount * seconds
        self._fit()

    def observe_period(self, amount: float) -> None:
        """New data came to so much per period."""
        if self.period:
            moved = _FORGET * self.period + (1 - _FORGET) * amount
            amount = max(self.period / _PERIOD_STEP, min(self.period * _PERIOD_STEP, moved))
        self.period = amount

    def observe_failure(self, amount: float, seconds: float) -> None:
        """A job that failed after so long would have taken at least that; one that failed soon says nothing."""
        if seconds > self.expected_s(amount):
            self.observe(amount, seconds)

    @property
    def seen(self) -> float:
        """How much of the slope was seen and not guessed, from 0 to 1."""
        if not self.xx:
            return 0.0
        variance, doubt = self._variance(), self._doubt()
        return variance / (variance + doubt)

    def _unsure_s(self, amount: float) -> float:
        """How far off the guess may be with another amount than usual: such a job is no outlier, but news."""
        if not self.xx:
            return 0.0
        return (1 - self.seen) * 2 * _DOUBT * self.y / self.x * abs(amount - self.x / self.weight)

    def _variance(self) -> float:
        mean = self.x / self.weight
        return max(0.0, self.xx / self.weight - mean * mean)

    def _doubt(self) -> float:
        """The variance of amounts at which what was seen counts as much as the guess: the more times differ, the more."""
        mean_x, mean_y = self.x / self.weight, self.y / self.weight
        noise = _SIGMA * self.spread_s / mean_y / _DOUBT if mean_y else 1.0
        return mean_x * mean_x * max(noise * noise / self.weight, _ALIKE * _ALIKE)

    def _fit(self) -> None:
        mean_x, mean_y = self.x / self.weight, self.y / self.weight
        if not self.xx:
            self.alpha_s, self.beta_s = mean_y, 0.0
            return
        covariance = self.xy / self.weight - mean_x * mean_y
        variance, doubt = self._variance(), self._doubt()
        guess = _DATA * mean_y / mean_x
        # Both parts are times, so neither may be negative: then the other explains everything.
        self.beta_s = max(0.0, (covariance + doubt * guess) / (variance + doubt))
        self.alpha_s = mean_y - self.beta_s * mean_x
        if self.alpha_s < 0:
            self.alpha_s = 0.0
            self.beta_s = self.xy / self.xx


# How many bytes a table holds, and in which stretch of time: what an update goes through that makes partitions from nothing


@dataclass(slots=True)
class Volume:
    size_bytes: float = 0.0
    # How much was read for that from files that were delivered.
    delivered_bytes: float = 0.0

    def added(self, size_bytes: float, delivered_bytes: float = 0.0) -> None:
        self.size_bytes += size_bytes
        self.delivered_bytes += delivered_bytes

    def replaced(self, before: Interval, where: PartitionSet, size_bytes: float) -> None:
        """Partitions were written again, of a table that had such a stretch of time before."""
        kept = max(0.0, self.size_bytes - self.within(before, where)) + size_bytes
        if self.size_bytes:
            self.delivered_bytes *= kept / self.size_bytes
        self.size_bytes = kept

    def within(self, has: Interval, where: PartitionSet) -> float:
        """About how much lies in some partitions of a table that has such a stretch of time."""
        start, end = has
        if start >= end:
            return self.size_bytes
        return self.size_bytes * (_length(where.within(start, end)) / (end - start))

    @property
    def inflation(self) -> float:
        """Delivered bytes for each byte that is stored."""
        return self.delivered_bytes / self.size_bytes if self.size_bytes and self.delivered_bytes else 1.0


def _length(where: PartitionSet) -> int:
    return sum(end - start for start, end in where)
