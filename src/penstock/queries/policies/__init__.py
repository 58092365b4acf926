"""Query policies by name; each lives in a module of its own."""

from __future__ import annotations

from collections.abc import Callable

from penstock.queries.policies.base import Admitting, Immediate, OnDemand
from penstock.queries.policies.max_satisfaction import MaxSatisfaction
from penstock.queries.policies.qmf import Qmf
from penstock.queries.policies.unit import Unit, UnitOnDemand
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
