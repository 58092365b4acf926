"""How long a query will run: predicted from the shape of its plan and the sizes of the versions that it would read, and corrected by
experience.

    time = (start-up + pace * work) * habit(shape)

`work` counts the bytes that are read, more for joins, aggregates and sorts. Start-up and pace are those of the machine and are
learned from all queries: least squares of relative errors, older ones forgotten. A shape that was seen before has a habit: by which
factor its queries took longer or shorter than that. It counts the more, the more often it was seen. An error far beyond the
usual counts only as one at its limit, so that one query on a busy machine does not spoil what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import exp, expm1, log, sqrt
from typing import Any

from penstock.queries.estimate import Estimate

_START_UP_S = 0.3
_PACE_S_PER_MB = 0.01
_FORGET = 0.98
_FORGET_HABIT = 0.85
_FIRST = 0.4
# How often a shape must be seen until its habit counts for half.
_HALF = 1.0
# In logarithms: what is taken as the usual error before anything is known, the least and the most that is ever assumed.
_USUAL, _LEAST, _MOST = 0.7, 0.05, 2.0
_LIMIT = 2.5
# So many shapes are remembered, those seen last.
SHAPES = 1000


@dataclass(frozen=True, slots=True)
class PlanShape:
    """What a query does, without constants: queries that differ only in these share a `key`."""

    key: str
    joins: int = 0
    aggregates: int = 0
    sorts: int = 0
    windows: int = 0

    def work_mb(self, size_bytes: int) -> float:
        weight = 1 + self.joins + 0.5 * self.aggregates + 0.5 * self.sorts + self.windows
        return weight * size_bytes / 1e6


@dataclass(slots=True)
class _Habit:
    weight: float = 0.0
    shift: float = 0.0
    error: float = _USUAL


@dataclass(slots=True)
class Predictor:
    """Mutable: the working memory of who runs queries; `plain` and `of_plain` keep it."""

    # Sums over what was seen: of 1/p^2, w/p^2, w^2/p^2, t/p^2, w t/p^2, for work w, time t and the then predicted time p.
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    start_up_s: float = _START_UP_S
    pace_s: float = _PACE_S_PER_MB
    error: float = _USUAL
    habits: dict[str, _Habit] = field(default_factory=dict)

    def predict(self, shape: PlanShape, size_bytes: int) -> Estimate:
        """The expected time of a query that reads so many bytes, and its spread."""
        base = self.start_up_s + self.pace_s * shape.work_mb(size_bytes)
        habit = self.habits.get(shape.key)
        if habit is None:
            return _estimate(log(base), self.error)
        known = habit.weight / (habit.weight + _HALF)
        return _estimate(log(base) + known * habit.shift, known * habit.error + (1 - known) * self.error)

    def observe(self, shape: PlanShape, size_bytes: int, took_s: float) -> None:
        took = max(took_s, 1e-3)
        work = shape.work_mb(size_bytes)
        base = self.start_up_s + self.pace_s * work
        habit = self.habits.pop(shape.key, None) or _Habit(error=self.error)
        self.habits[shape.key] = habit  # now the one seen last
        if len(self.habits) > SHAPES:
            del self.habits[next(iter(self.habits))]
        residual = log(took / base)
        if habit.weight:
            off = residual - habit.shift
            limit = _LIMIT * habit.error
            held = max(-limit, min(limit, off))
            habit.error = _followed(habit.error, off, 0.15)
        else:
            held = residual
        # The first query of a shape is slower than all others: its plan is compiled. It counts until there are others.
        habit.weight = _FORGET_HABIT * habit.weight + (1 if habit.weight else _FIRST)
        seen = habit.shift + held  # what this query says of its shape, without what is beyond belief
        habit.shift += held / habit.weight if habit.weight > _FIRST else held
        self.error = _followed(self.error, residual, 0.05)
        self._fit(work, base, base * exp(seen))

    def _fit(self, work: float, base: float, took: float) -> None:
        weight = 1 / (base * base)
        for place, value in enumerate(
            (weight, work * weight, work * work * weight, took * weight, work * took * weight)
        ):
            self.sums[place] = _FORGET * self.sums[place] + value
        one, w, ww, t, wt = self.sums
        # What is assumed at the start counts like two queries, one small and one large.
        p = _START_UP_S
        one, t = one + 1 / p**2, t + 1 / p
        large = 100.0
        q = _START_UP_S + _PACE_S_PER_MB * large
        one, w, ww, t, wt = one + 1 / q**2, w + large / q**2, ww + (large / q) ** 2, t + 1 / q, wt + large / q
        determinant = one * ww - w * w
        start_up, pace = (t * ww - w * wt) / determinant, (one * wt - w * t) / determinant
        # Both are times: where one would be negative, the other explains everything.
        if pace < 0:
            start_up, pace = t / one, 0.0
        elif start_up < 1e-3:
            start_up, pace = 1e-3, wt / ww
        self.start_up_s, self.pace_s = start_up, pace

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plain(cls, found: Mapping[str, Any]) -> Predictor:
        habits = {key: _Habit(**habit) for key, habit in found["habits"].items()}
        return cls(list(found["sums"]), found["start_up_s"], found["pace_s"], found["error"], habits)


def _followed(error: float, off: float, step: float) -> float:
    """The usual error moves up if this one was larger than half of all would be, else down: it tracks the median, so that it does not
    matter how large the large ones are."""
    return max(_LEAST, min(_MOST, error * exp(step if abs(off) > 0.6745 * error else -step)))


def _estimate(log_median: float, error: float) -> Estimate:
    """Of a log-normal with this median: its mean is larger, the more so the wider it is (but a guess is no excuse for that)."""
    variance = min(error, 1.0) ** 2
    median = exp(log_median)
    mean = median * exp(variance / 2)
    return Estimate(mean, mean * sqrt(expm1(variance)))
