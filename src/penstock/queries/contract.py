"""What a query needs: until when, how fresh, how consistent, and what each way of ending is worth to who asks.

Qu, Labrinidis, Mossé 2006, Sec. 2. A deadline is firm: an answer after it has no value. Freshness can be said as time
(complete up to at most so long ago) or as lag (so many arrived updates are not in the data yet); the paper's percentage
is `Freshness.of_percent`. With nothing said, a query is strict: nothing that has arrived may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import floor
from typing import Literal

from penstock.model.time import format_duration


@dataclass(frozen=True, slots=True)
class Freshness:
    """Both bounds hold if both are said; with none, any data will do."""

    # At most so old: now minus the time up to which the answer is complete.
    age_us: int | None = None
    # At most so many updates that have arrived and are not applied.
    lag: int | None = None

    def __post_init__(self) -> None:
        if self.age_us is not None and self.age_us < 0:
            raise ValueError(f"an age of {self.age_us} us lies in the future; the freshest there is has age 0")
        if self.lag is not None and self.lag < 0:
            raise ValueError(f"a lag of {self.lag} updates is negative; 0 is the strictest")

    @classmethod
    def of_percent(cls, percent: float) -> Freshness:
        """The paper's Eq. (1): freshness is 1 / (1 + lag). So 90 % allows no unapplied update at all, 50 % one.

        >>> Freshness.of_percent(90).lag, Freshness.of_percent(50).lag, Freshness.of_percent(10).lag
        (0, 1, 9)
        """
        if not 0 < percent <= 100:
            raise ValueError(f"{percent} % is no freshness; it lies above 0 and is at most 100")
        return cls(lag=floor(100 / percent - 1 + 1e-9))

    def met(self, age_us: int | None, lag: int | None) -> bool:
        """Whether data of this age and lag satisfy the need. What is not known does not satisfy a bound on it."""
        if self.age_us is not None and (age_us is None or age_us > self.age_us):
            return False
        return self.lag is None or (lag is not None and lag <= self.lag)

    def __str__(self) -> str:
        parts = []
        if self.age_us is not None:
            parts.append(f"no older than {format_duration(self.age_us)}")
        if self.lag is not None:
            parts.append("nothing that arrived missing" if self.lag == 0 else f"at most {self.lag} updates missing")
        return " and ".join(parts) or "of any age"


STRICT = Freshness(lag=0)
ANY = Freshness()


class WhenStale(StrEnum):
    """What to do with an answer that is in time, yet not as fresh as needed."""

    MARK = "mark"
    WITHHOLD = "withhold"


@dataclass(frozen=True, slots=True)
class OutcomeWeights:
    """Gain of a success, and penalties (positive numbers) of the three failures: G_s, C_r, C_fm, C_fs."""

    success: float = 1.0
    rejected: float = 0.0
    missed: float = 0.0
    stale: float = 0.0

    def __post_init__(self) -> None:
        if self.success <= 0:
            raise ValueError(f"a success must be worth something; found {self.success}")
        for name in ("rejected", "missed", "stale"):
            if getattr(self, name) < 0:
                raise ValueError(f"the penalty `{name}` is written as a positive number; found {getattr(self, name)}")

    @property
    def naive(self) -> bool:
        """Whether only successes count."""
        return not (self.rejected or self.missed or self.stale)

    @property
    def span(self) -> float:
        """From the best to the worst that can happen (the paper's range of USM)."""
        return self.success + max(self.rejected, self.missed, self.stale)

    def counting_no_more_than(self, other: OutcomeWeights) -> OutcomeWeights:
        """The same preferences, made smaller where they would count more against the queries of others than these weights do."""
        if self.span <= other.span:
            return self
        part = other.span / self.span
        return OutcomeWeights(self.success * part, self.rejected * part, self.missed * part, self.stale * part)


NAIVE = OutcomeWeights()


@dataclass(frozen=True, slots=True)
class Contract:
    """What one query asks for. `within_us` counts from its arrival; None: it waits as long as it takes."""

    within_us: int | None = None
    freshness: Freshness = STRICT
    # All tables of the answer reflect the same state of their sources.
    consistent: bool = True
    weights: OutcomeWeights = NAIVE
    when_stale: WhenStale = WhenStale.MARK

    def __post_init__(self) -> None:
        if self.within_us is not None and self.within_us <= 0:
            raise ValueError(f"a deadline {self.within_us} us after arrival has passed; it must be positive")

    def deadline_us(self, arrived_us: int) -> int | None:
        return None if self.within_us is None else arrived_us + self.within_us


Role = Literal["reader", "operator"]


@dataclass(frozen=True, slots=True)
class Profile:
    """A user or an application: what its queries need unless they say otherwise, and which part of the capacity for
    queries is kept for it when all want more than there is."""

    name: str = "default"
    contract: Contract = field(default_factory=Contract)
    share: float = 1.0
    # Whether it may change something, or only look.
    role: Role = "reader"

    def __post_init__(self) -> None:
        if self.share <= 0:
            raise ValueError(f"profile {self.name}: a share must be positive; found {self.share}")
