"""How a query can end (Qu, Labrinidis, Mossé 2006, Sec. 2.1). Every query ends in exactly one of four ways."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.queries.contract import Contract, Freshness, Weights, WhenStale


class Ending(StrEnum):
    SUCCESS = "success"
    REJECTED = "rejected"
    MISSED = "deadline missed"
    STALE = "stale"


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


Outcome = Success | Rejected | DeadlineMissed | Stale


def ending(outcome: Outcome) -> Ending:
    match outcome:
        case Success():
            return Ending.SUCCESS
        case Rejected():
            return Ending.REJECTED
        case DeadlineMissed():
            return Ending.MISSED
        case Stale():
            return Ending.STALE


def value(kind: Ending, weights: Weights) -> float:
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
