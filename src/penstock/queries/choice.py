"""What to do with one query: run it now, wait for an update that runs, refresh what it touches first, read an older state, or
reject it. The best of these by expected satisfaction.

Every way but the last comes down to the same three numbers: when the query can start, how long it then takes, and up to when its
answer is complete. From these and the contract follow the chances of the four outcomes:

    in time     it ends before the deadline
    success     it ends before the deadline, and before its data are older than allowed
    stale       in time, not a success
    missed      not in time

Work has a price, in satisfaction per second: what others lose by it when capacity is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf

from penstock.model.time import SECOND_US, format_duration
from penstock.queries.contract import Contract, Freshness, WhenStale
from penstock.queries.estimate import AT_ONCE, Estimate
from penstock.queries.outcome import Cause, Rejected

# An answer less likely than this is none.
HOPELESS = 0.02
_SAME = 1e-9


class Way(StrEnum):
    NOW = "run now"
    OLDER = "read an older state"
    WAIT = "wait for a running update"
    REFRESH = "refresh first"
    REJECT = "reject"


# Of ways that promise the same, the one that disturbs least.
_RANK = {way: rank for rank, way in enumerate((Way.NOW, Way.OLDER, Way.WAIT, Way.REFRESH, Way.REJECT))}


@dataclass(frozen=True, slots=True)
class Option:
    way: Way
    # The query itself, on the versions that it would read.
    run: Estimate
    # The answer would be complete up to here, with so many arrived updates missing.
    complete_us: int | None = None
    lag: int | None = None
    consistent: bool = True
    # Until the query can start: running updates, refreshes, queries before it.
    wait: Estimate = AT_ONCE
    # Work that is done for it alone before it runs.
    work_s: float = 0.0
    # Tables that are waited for or refreshed, in order.
    tables: tuple[str, ...] = ()
    # Names it for the caller.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The chances of an option, and what it is worth."""

    success: float
    stale: float
    missed: float
    expected: float

    @property
    def in_time(self) -> float:
        return self.success + self.stale


@dataclass(frozen=True, slots=True)
class Choice:
    way: Way
    why: str
    option: Option | None = None
    prospect: Prospect | None = None
    rejected: Rejected | None = None
    considered: tuple[tuple[Option, Prospect], ...] = ()


def choose(
    contract: Contract, options: Sequence[Option], now_us: int, arrived_us: int | None = None, price_per_s: float = 0.0
) -> Choice:
    """The best way for a query that arrived at `arrived_us` (now, if not said). It is rejected only if no way is at least as
    good as being rejected."""
    arrived = now_us if arrived_us is None else arrived_us
    allowed = [option for option in options if option.consistent or not contract.consistent]
    considered = tuple((option, prospect(option, contract, now_us, arrived, price_per_s)) for option in allowed)
    best: tuple[tuple[float, float, int], Option, Prospect] | None = None
    for option, found in considered:
        if _acceptable(found, contract):
            # Sums of the same terms in another order differ in the last digits: round before comparing.
            key = (round(found.expected, 9), -round(option.wait.mean_s + option.work_s, 9), -_RANK[option.way])
            if best is None or key > best[0]:
                best = key, option, found
    if best is not None:
        _, option, found = best
        return Choice(option.way, _because(option, found), option, found, None, considered)
    rejected = _rejection(contract, allowed, considered, now_us, arrived, price_per_s)
    return Choice(Way.REJECT, rejected.why, rejected=rejected, considered=considered)


def refuse(contract: Contract, options: Sequence[Option], now_us: int, arrived_us: int, cause: Cause) -> Choice:
    """Reject a query for a cause that was found otherwise, and say what would be accepted as far as the query alone decides that."""
    allowed = [option for option in options if option.consistent or not contract.consistent]
    considered = tuple((option, prospect(option, contract, now_us, arrived_us)) for option in allowed)
    rejected = _rejection(contract, allowed, considered, now_us, arrived_us, 0.0, cause)
    return Choice(Way.REJECT, rejected.why, rejected=rejected, considered=considered)


def prospect(option: Option, contract: Contract, now_us: int, arrived_us: int, price_per_s: float = 0.0) -> Prospect:
    left = _left_s(contract, now_us, arrived_us)
    total = option.wait.then(option.run)
    in_time = total.chance(left)
    success = min(in_time, total.chance(min(left, _fresh_s(option, contract.freshness, now_us))))
    weights = contract.weights
    stale, missed = in_time - success, 1 - in_time
    expected = weights.success * success - weights.stale * stale - weights.missed * missed
    return Prospect(success, stale, missed, expected - price_per_s * (option.run.mean_s + option.work_s))


def _acceptable(found: Prospect, contract: Contract) -> bool:
    answered = found.success if contract.when_stale is WhenStale.WITHHOLD else found.in_time
    return found.expected >= -contract.weights.rejected - _SAME and answered >= HOPELESS - _SAME


def _left_s(contract: Contract, now_us: int, arrived_us: int) -> float:
    deadline = contract.deadline_us(arrived_us)
    return inf if deadline is None else (deadline - now_us) / SECOND_US


def _fresh_s(option: Option, need: Freshness, now_us: int) -> float:
    """For how long the answer would still be fresh enough when given."""
    if need.lag is not None and (option.lag is None or option.lag > need.lag):
        return -inf
    if need.age_us is None:
        return inf
    return -inf if option.complete_us is None else (option.complete_us + need.age_us - now_us) / SECOND_US


# What is told to who is rejected


def _rejection(
    contract: Contract,
    options: Sequence[Option],
    considered: Sequence[tuple[Option, Prospect]],
    now_us: int,
    arrived_us: int,
    price_per_s: float,
    known: Cause | None = None,
) -> Rejected:
    if not options:
        return Rejected("there is no consistent state of its tables to read yet", Cause.FRESHNESS)
    within = min(_least_s(option, contract, now_us, price_per_s) for option in options)
    within_us = None if within == inf else now_us - arrived_us + ceil(within * SECOND_US * (1 + 1e-9)) + 1
    freshness = _strictest(contract, options, now_us, arrived_us, price_per_s)
    cause = known or _cause(contract, options, considered, now_us, arrived_us, price_per_s)
    left = _told(_left_s(contract, now_us, arrived_us)) if contract.within_us else ""
    why = {
        Cause.OTHERS: "others would lose more by its work than it would gain",
        Cause.FRESHNESS: f"its tables cannot be as fresh as it needs ({contract.freshness})"
        + (f" within {left}" if left else ""),
        Cause.IMPOSSIBLE: f"it takes longer than {left}, even if nothing is before it",
        Cause.OVERLOAD: "too much is asked and updated at the moment",
        Cause.DEADLINE: f"what must be done before it does not leave enough of {left}",
    }[cause]
    return Rejected(why, cause, within_us, freshness)


def _told(left_s: float) -> str:
    """What is left, as whoever asked knows it: a minute, not the 59.98 s since."""
    return format_duration(ceil(left_s) * SECOND_US if left_s > 10 else max(0, ceil(left_s * SECOND_US)))


def _cause(
    contract: Contract,
    options: Sequence[Option],
    considered: Sequence[tuple[Option, Prospect]],
    now_us: int,
    arrived_us: int,
    price_per_s: float,
) -> Cause:
    if price_per_s and any(_acceptable(prospect(o, contract, now_us, arrived_us), contract) for o in options):
        return Cause.OTHERS
    left = _left_s(contract, now_us, arrived_us)
    if any(found.in_time >= 0.5 for _, found in considered):
        return Cause.FRESHNESS
    if all(option.run.chance(left) < 0.5 for option in options):
        return Cause.IMPOSSIBLE
    return Cause.DEADLINE


def _least_s(option: Option, contract: Contract, now_us: int, price_per_s: float) -> float:
    """The shortest time from now within which this option would be accepted. With F the distribution of its end and x the time at
    which its data get too old, its worth with a deadline d is

        F(min(d, x)) (G + C_fs) + F(d) (C_fm - C_fs) - C_fm - price

    which must reach -C_r: linear in F(d) on both sides of x."""
    weights = contract.weights
    total = option.wait.then(option.run)
    fresh = total.chance(_fresh_s(option, contract.freshness, now_us))
    missing = weights.missed - weights.rejected + price_per_s * (option.run.mean_s + option.work_s)
    needed = max(missing / (weights.success + weights.missed), HOPELESS)
    if needed <= fresh:
        return total.quantile(needed)
    if contract.when_stale is WhenStale.WITHHOLD and fresh < HOPELESS:
        return inf
    slope = weights.missed - weights.stale
    missing -= fresh * (weights.success + weights.stale)
    needed = max(fresh, HOPELESS)
    if slope * needed < missing - _SAME:
        needed = missing / slope if slope > 0 else inf
    return total.quantile(needed)


def _strictest(
    contract: Contract, options: Sequence[Option], now_us: int, arrived_us: int, price_per_s: float
) -> Freshness | None:
    """The strictest freshness of the same kind that some option gives within the deadline."""
    weights, need = contract.weights, contract.freshness
    left = _left_s(contract, now_us, arrived_us)
    found = []
    for option in options:
        if (need.lag is not None and option.lag is None) or (need.age_us is not None and option.complete_us is None):
            continue
        total = option.wait.then(option.run)
        in_time = total.chance(left)
        worth = in_time * (weights.missed - weights.stale) - weights.missed
        missing = price_per_s * (option.run.mean_s + option.work_s) - weights.rejected - worth
        needed = max(missing / (weights.success + weights.stale), HOPELESS)
        if needed > in_time:
            continue
        lag = None if need.lag is None or option.lag is None else max(need.lag, option.lag)
        age = None
        if need.age_us is not None and option.complete_us is not None:
            ends = ceil(total.quantile(needed) * SECOND_US * (1 + 1e-9)) + 1
            age = max(need.age_us, now_us + ends - option.complete_us)
        found.append(Freshness(age, lag))
    return min(found, key=lambda one: (one.lag or 0, one.age_us or 0), default=None)


def _because(option: Option, found: Prospect) -> str:
    chances = f"{found.success:.0%} to succeed, {found.stale:.0%} to be stale, {found.missed:.0%} to be late"
    what = f"{option.way} ({', '.join(option.tables)})" if option.tables else str(option.way)
    return f"{what}: {chances}"


def queued(option: Option, ahead: Estimate) -> Option:
    """The same option behind other work."""
    return replace(option, wait=ahead.then(option.wait))
