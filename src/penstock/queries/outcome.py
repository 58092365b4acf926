"""How a query can end (Qu, Labrinidis, Mossé 2006, Sec. 2.1). Every query ends in exactly one of four ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from penstock.queries.contract import Contract, Freshness, OutcomeWeights, WhenStale


class Ending(StrEnum):
    SUCCESS = "success"
    REJECTED = "rejected"
    MISSED = "deadline missed"
    STALE = "stale"


class Way(StrEnum):
    """How a query is answered."""

    NOW = "run now"
    OLDER = "read an older state"
    WAIT = "wait for a running update"
    REFRESH = "refresh first"
    REJECT = "reject"


class Cause(StrEnum):
    """Why a query was rejected. A controller that loosens a check must know which check rejected."""

    # It cannot be done before its deadline, even alone.
    IMPOSSIBLE = "impossible"
    # Too much work goes before it.
    DEADLINE = "deadline"
    # It would make others miss their deadlines.
    OTHERS = "others"
    # The data cannot be as fresh as it needs before its deadline.
    FRESHNESS = "freshness"
    # Its profile has used up its share.
    SHARE = "share"
    # Load is shed until the system recovers.
    OVERLOAD = "overload"


@dataclass(frozen=True, slots=True)
class Success:
    """In time and fresh enough. `took_us` counts from arrival; the answer is complete up to `complete_us`."""

    took_us: int
    complete_us: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Told at once, with what would have been accepted: the same query with this much time, or with this freshness."""

    why: str
    cause: Cause
    # The smallest `within_us` that would be accepted now; None if none would.
    acceptable_within_us: int | None = None
    # The strictest freshness that would be accepted now within the given deadline; None if none would.
    acceptable_freshness: Freshness | None = None


@dataclass(frozen=True, slots=True)
class DeadlineMissed:
    """Cancelled when its deadline came. `started` says whether it had begun to run."""

    after_us: int
    started: bool = False


@dataclass(frozen=True, slots=True)
class Stale:
    """In time, yet not as fresh as needed. `withheld`: the contract wants no such answer, so there is none."""

    took_us: int
    complete_us: int | None = None
    lag: int | None = None
    withheld: bool = False


QueryOutcome = Success | Rejected | DeadlineMissed | Stale


def ending(outcome: QueryOutcome) -> Ending:
    match outcome:
        case Success():
            return Ending.SUCCESS
        case Rejected():
            return Ending.REJECTED
        case DeadlineMissed():
            return Ending.MISSED
        case Stale():
            return Ending.STALE


def value(kind: Ending, weights: OutcomeWeights) -> float:
    """What an ending is worth: US(q) of the paper's Eq. (3)."""
    match kind:
        case Ending.SUCCESS:
            return weights.success
        case Ending.REJECTED:
            return -weights.rejected
        case Ending.MISSED:
            return -weights.missed
        case Ending.STALE:
            return -weights.stale


def judged(
    contract: Contract, arrived_us: int, finished_us: int, complete_us: int | None, lag: int | None
) -> Success | DeadlineMissed | Stale:
    """The outcome of a query that ran, from what its answer is: late, stale or good, in this order. The age of an answer
    is that at the moment it is given."""
    took = finished_us - arrived_us
    if contract.within_us is not None and took > contract.within_us:
        return DeadlineMissed(contract.within_us, started=True)
    age = None if complete_us is None else max(0, finished_us - complete_us)
    if contract.freshness.met(age, lag):
        return Success(took, complete_us, lag)
    return Stale(took, complete_us, lag, contract.when_stale is WhenStale.WITHHOLD)


# The user satisfaction metric (Qu, Labrinidis, Mossé 2006, Sec. 2.3): gains less penalties, per query that was asked.
#
#     USM = S - R - F_m - F_s
#
# Tallies add up: over time, and over profiles to the whole.


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
    def of(cls, kind: Ending, weights: OutcomeWeights) -> Tally:
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

    def add(self, profile: str, outcome: QueryOutcome | Ending, weights: OutcomeWeights) -> None:
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


# Whether predicted chances come true: of the queries that were given about this chance, how many succeeded.

_BANDS = 10


class Reliability:
    def __init__(self, bands: Sequence[Sequence[float]] | None = None) -> None:
        # By tenths of the chance: queries, the sum of their chances, successes.
        self._bands = [list(band) for band in bands] if bands else [[0, 0.0, 0] for _ in range(_BANDS)]

    def add(self, chance: float, succeeded: bool) -> None:
        band = self._bands[min(int(chance * _BANDS), _BANDS - 1)]
        band[0] += 1
        band[1] += chance
        band[2] += succeeded

    def rows(self) -> list[tuple[int, float, float]]:
        """Of each band in which there were queries: how many, the chance they were given on average, the part that succeeded."""
        return [(int(n), total / n, good / n) for n, total, good in self._bands if n]

    def plain(self) -> list[list[float]]:
        return self._bands

    @classmethod
    def of_plain(cls, found: Sequence[Sequence[float]]) -> Reliability:
        return cls(found)
