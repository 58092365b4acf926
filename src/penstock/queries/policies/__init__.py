"""Query policies by name; each lives in a module of its own. The same ones decide live, in what-if and in experiments."""

from __future__ import annotations

from collections.abc import Callable

from penstock.queries.policies.base import Admitting, Immediate, OnDemand
from penstock.queries.policies.max_satisfaction import MaxSatisfaction
from penstock.queries.policies.qmf import Qmf
from penstock.queries.policies.unit import Unit, UnitOnDemand, UnitSettings
from penstock.queries.situation import QueryPolicy

DEFAULT = "max-satisfaction"

POLICIES: dict[str, Callable[[], QueryPolicy]] = {
    "immediate": Immediate,
    "on-demand": OnDemand,
    "qmf": Qmf,
    "admission+on-demand": Admitting,
    "unit": Unit,
    "unit+on-demand": UnitOnDemand,
    DEFAULT: MaxSatisfaction,
}

# Those with a controller have the pace of a warehouse, not that of the paper's traces: how long it waits until it judges what it did.
LIVE = UnitSettings(grace_s=30.0)


def find_query_policy(name: str, settings: UnitSettings = LIVE) -> QueryPolicy:
    """A policy for a warehouse; `default` is one of them."""
    name = DEFAULT if name == "default" else name
    if name not in POLICIES:
        raise ValueError(f"there is no policy of queries {name!r}; expected one of {', '.join(POLICIES)}")
    match name:
        case "qmf":
            return Qmf(settings.grace_s)
        case "unit":
            return Unit(settings)
        case "unit+on-demand":
            return UnitOnDemand(settings)
    return POLICIES[name]()
