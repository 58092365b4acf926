"""Contracts and profiles from what users write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, nan

from penstock.declare.config import ProfileConfig
from penstock.model.time import parse_duration
from penstock.queries.contract import STRICT, Contract, Freshness, OutcomeWeights, Profile, WhenStale

DEFAULT = "default"
WEIGHTS = ("success", "rejected", "missed", "stale")


def profiles(written: Mapping[str, ProfileConfig]) -> dict[str, Profile]:
    """Those of the project; there is always one for who names none."""
    found = {DEFAULT: Profile()}
    for name, one in written.items():
        need = STRICT if one.fresh is None and one.lag is None else Freshness(one.fresh, one.lag)
        weights = OutcomeWeights(one.success, one.rejected, one.missed, one.outdated)
        contract = Contract(one.within, need, one.consistent, weights, WhenStale(one.stale))
        found[name] = Profile(name, contract, one.share, one.role)
    return found


def contract_of(
    base: Contract,
    *,
    within: str | None = None,
    fresh: str | None = None,
    lag: int | None = None,
    consistent: bool | None = None,
    stale: str | None = None,
    weights: Mapping[str, float] | None = None,
) -> Contract:
    """A contract with what a query says itself; a freshness that is said replaces that of the profile as a whole. Weights that are said compare the
    endings of this query with each other; against other queries they count at most as much as those of the profile. Raises `ValueError`."""
    if within is not None:
        base = replace(base, within_us=_duration("within", within))
    if fresh is not None or lag is not None:
        base = replace(base, freshness=Freshness(None if fresh is None else _duration("fresh", fresh), lag))
    if consistent is not None:
        base = replace(base, consistent=consistent)
    if stale is not None:
        if stale not in (one.value for one in WhenStale):
            raise ValueError(f"{stale!r}: a stale answer can be given with a `mark`, or be `withhold`")
        base = replace(base, when_stale=WhenStale(stale))
    if weights:
        unknown = sorted(set(weights) - set(WEIGHTS))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a way to end; weights are of {', '.join(WEIGHTS)}")
        base = replace(base, weights=replace(base.weights, **weights).counting_no_more_than(base.weights))
    return base


def _duration(name: str, text: str) -> int:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if name == "within" and found <= 0:
        raise ValueError(f"{name}: {text!r} leaves no time; write for example 2s")
    return found


def parse_weights(text: str) -> dict[str, float]:
    """
    >>> parse_weights("rejected=0.5, missed=2")
    {'rejected': 0.5, 'missed': 2.0}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (one.strip() for one in part.partition("="))
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = nan
        if not equals or not isfinite(found[name]):
            raise ValueError(f"{text!r} are no weights; write for example rejected=0.5,missed=2")
    return found
