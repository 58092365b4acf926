"""How long something takes, as far as it can be known: a mean and a spread (standard deviation) in seconds.

Times are never negative and have a long tail, so the distribution is taken as log-normal with these two moments. Sums
of independent times keep their mean and variance exactly and are taken as log-normal again (Fenton and Wilkinson).
"""

from __future__ import annotations

from math import erfc, exp, hypot, inf, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple

_NORMAL = NormalDist()
# What is this certain counts as certain.
_CERTAIN = 1e-9


class Estimate(NamedTuple):
    mean_s: float
    spread_s: float = 0.0

    def then(self, other: Estimate) -> Estimate:
        """One after the other."""
        return Estimate(self.mean_s + other.mean_s, hypot(self.spread_s, other.spread_s))

    def chance(self, within_s: float) -> float:
        """The probability that it takes at most so long.

        >>> Estimate(2).chance(1.9), Estimate(2).chance(2), round(Estimate(2, 1).chance(2), 3)
        (0.0, 1.0, 0.593)
        """
        if within_s == inf:
            return 1.0
        if self.spread_s <= 0 or self.mean_s <= 0:
            return 1.0 if within_s >= self.mean_s else 0.0
        if within_s <= 0:
            return 0.0
        place, scale = self._log()
        if not scale:  # too small a spread to make a difference
            return 1.0 if within_s >= self.mean_s else 0.0
        return 0.5 * erfc((place - log(within_s)) / (scale * sqrt(2)))

    def quantile(self, chance: float) -> float:
        """The shortest time within which it is done with this probability; infinite if that is never so certain."""
        if chance > 1 or (self.spread_s > 0 and self.mean_s > 0 and chance > 1 - _CERTAIN):
            return inf
        if chance <= 0:
            return 0.0
        if self.spread_s <= 0 or self.mean_s <= 0:
            return self.mean_s
        place, scale = self._log()
        return exp(place + scale * _NORMAL.inv_cdf(chance))

    def _log(self) -> tuple[float, float]:
        variance = log1p((self.spread_s / self.mean_s) ** 2)
        return log(self.mean_s) - variance / 2, sqrt(variance)


AT_ONCE = Estimate(0.0)
