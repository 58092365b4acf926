"""What policies are told of how long things take: the truth, or predictions with errors as those of a live warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, expm1, log, sqrt
from random import Random
from statistics import mean, pstdev

from penstock.queries.estimate import Estimate
from penstock.queries.predict import PlanShape, Predictor


class Exact:
    """Everything is known."""

    def query(self, item: int, true_s: float) -> Estimate:
        return Estimate(true_s)

    def update(self, true_s: float) -> Estimate:
        return Estimate(true_s)

    def took(self, item: int, true_s: float) -> None:
        """A query has run."""


@dataclass
class Noisy(Exact):
    """What is seen of each time is off by a factor: log-normal, with this deviation of the logarithm. The guess is calibrated: it knows how large its
    errors are, and what is usual."""

    error: float
    seed: int
    queries: tuple[float, float]
    updates: tuple[float, float]
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.seed}/guesses")

    def seen(self, true_s: float) -> float:
        return log(true_s) + self.chance.gauss(0, self.error)

    def query(self, item: int, true_s: float) -> Estimate:
        return self._shrunk(self.seen(true_s), *self.queries)

    def update(self, true_s: float) -> Estimate:
        return self._shrunk(self.seen(true_s), *self.updates)

    def _shrunk(self, seen: float, usual: float, spread: float) -> Estimate:
        known = 1 / self.error**2
        prior = 1 / max(spread, 0.05) ** 2
        place, variance = (seen * known + usual * prior) / (known + prior), 1 / (known + prior)
        expected = exp(place + variance / 2)
        return Estimate(expected, expected * sqrt(expm1(variance)))


class LearnsAsItGoes(Noisy):
    """Queries as the predictor of a live warehouse sees them: it knows nothing at the start, and what it sees of the size of a query is off by the error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.predictor = Predictor()
        self._sizes: dict[tuple[int, float], int] = {}

    def query(self, item: int, true_s: float) -> Estimate:
        # At the pace that it begins with a second is 100 MB; here it is other.
        size = self._sizes[item, true_s] = int(50e6 * exp(self.seen(true_s)))
        return self.predictor.predict(PlanShape(str(item)), size)

    def took(self, item: int, true_s: float) -> None:
        self.predictor.observe(PlanShape(str(item)), self._sizes.pop((item, true_s), int(50e6 * true_s)), true_s)


def guesses(error: float, cold: bool, seed: int, queries_s: Sequence[float], updates_s: Sequence[float]) -> Exact:
    if not error and not cold:
        return Exact()
    usual = [(mean(logs), pstdev(logs)) for logs in ([log(one) for one in some] for some in (queries_s, updates_s))]
    return (LearnsAsItGoes if cold else Noisy)(max(error, 0.05), seed, *usual)
