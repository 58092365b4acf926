"""Policies by name. Each lives in a module of its own; this page only lists them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.scheduling.jobs import UpdatePolicy
from penstock.scheduling.policies.fifo import Fifo
from penstock.scheduling.policies.max_benefit import MaxBenefit

POLICIES: dict[str, Callable[[], UpdatePolicy]] = {
    "max-benefit": MaxBenefit,
    "fifo": Fifo,
}


def find_policy(name: str) -> UpdatePolicy:
    try:
        return POLICIES[name]()
    except KeyError:
        raise ValueError(f"{name!r} is not a policy; expected one of {', '.join(sorted(POLICIES))}") from None
