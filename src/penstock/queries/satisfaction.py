"""The user satisfaction metric (Qu, Labrinidis, Mossé 2006, Sec. 2.3): gains less penalties, per query that was asked.

    USM = S - R - F_m - F_s

Tallies add up: over time, and over profiles to the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.queries.contract import Weights
from penstock.queries.outcome import Ending, Outcome, ending, value


@dataclass(frozen=True, slots=True)
class Tally:
    """How many queries ended how, and what that was worth."""

    success: int = 0
    rejected: int = 0
    missed: int = 0
    stale: int = 0
    # Sums of gains, and of penalties as positive numbers.
    gained: float = 0.0
    cost_rejected: float = 0.0
    cost_missed: float = 0.0
    cost_stale: float = 0.0

    @classmethod
    def of(cls, kind: Ending, weights: Weights) -> Tally:
        worth = value(kind, weights)
        match kind:
            case Ending.SUCCESS:
                return cls(success=1, gained=worth)
            case Ending.REJECTED:
                return cls(rejected=1, cost_rejected=-worth)
            case Ending.MISSED:
                return cls(missed=1, cost_missed=-worth)
            case Ending.STALE:
                return cls(stale=1, cost_stale=-worth)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.success + other.success,
            self.rejected + other.rejected,
            self.missed + other.missed,
            self.stale + other.stale,
            self.gained + other.gained,
            self.cost_rejected + other.cost_rejected,
            self.cost_missed + other.cost_missed,
            self.cost_stale + other.cost_stale,
        )

    @property
    def queries(self) -> int:
        return self.success + self.rejected + self.missed + self.stale

    @property
    def total(self) -> float:
        """The paper's Eq. (4)."""
        return self.gained - self.cost_rejected - self.cost_missed - self.cost_stale

    @property
    def usm(self) -> float:
        """The paper's Eq. (5); 0 as long as nothing was asked."""
        return self.total / self.queries if self.queries else 0.0

    def ratio(self, kind: Ending) -> float:
        """R_s, R_r, R_fm, R_fs: the part of all queries that ended so."""
        count = {
            Ending.SUCCESS: self.success,
            Ending.REJECTED: self.rejected,
            Ending.MISSED: self.missed,
            Ending.STALE: self.stale,
        }[kind]
        return count / self.queries if self.queries else 0.0


class Satisfaction(Mapping[str, Tally]):
    """The tally of every profile, and of all."""

    def __init__(self, profiles: Mapping[str, Tally] | None = None) -> None:
        self._profiles = dict(profiles or {})
        self._overall = sum(self._profiles.values(), Tally())

    def add(self, profile: str, outcome: Outcome | Ending, weights: Weights) -> None:
        one = Tally.of(outcome if isinstance(outcome, Ending) else ending(outcome), weights)
        self._profiles[profile] = self._profiles.get(profile, Tally()) + one
        self._overall += one

    @property
    def overall(self) -> Tally:
        return self._overall

    def __getitem__(self, profile: str) -> Tally:
        return self._profiles[profile]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def plain(self) -> dict[str, dict[str, Any]]:
        """For a store; `of_plain` reads it."""
        return {name: asdict(tally) for name, tally in self._profiles.items()}

    @classmethod
    def of_plain(cls, found: Mapping[str, Mapping[str, Any]]) -> Satisfaction:
        return cls({name: Tally(**values) for name, values in found.items()})
