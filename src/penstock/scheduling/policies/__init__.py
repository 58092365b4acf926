"""Policies by name. Each lives in a module of its own; this page only lists them and puts them together.

`register` adds one from elsewhere, for example from a project's own `policies.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from penstock.scheduling.guard import bound
from penstock.scheduling.jobs import UpdatePolicy
from penstock.scheduling.naming import PolicyNameError, make, nearest, parse
from penstock.scheduling.placement.base import Global, Placement
from penstock.scheduling.placement.edf_partitioned import EdfPartitioned
from penstock.scheduling.placement.hold import Hold
from penstock.scheduling.placement.proportional import Proportional
from penstock.scheduling.placement.reserve import Reserve
from penstock.scheduling.policies.composed import Composed
from penstock.scheduling.policies.index import Edf, EdfP, Fifo, IndexPolicy, Lookahead, MaxBenefit, Random, Youngest
from penstock.scheduling.policies.patient import Patient
from penstock.scheduling.recovery.policy import Adaptive

ORDERS: dict[str, Callable[..., IndexPolicy]] = {
    "max-benefit": MaxBenefit,
    "max-benefit-lookahead": Lookahead,
    "max-benefit-youngest": Youngest,
    "patient": Patient,
    "edf": Edf,
    "edf-p": EdfP,
    "fifo": Fifo,
    "random": Random,
}
PLACEMENTS: dict[str, Callable[..., Placement]] = {
    "global": Global,
    "edf-partitioned": EdfPartitioned,
    "proportional": Proportional,
    "reserve": Reserve,
    "hold": Hold,
}
# Policies that decide everything themselves.
WHOLE: dict[str, Callable[..., UpdatePolicy]] = {"adaptive": Adaptive}
POLICIES: dict[str, Callable[..., Any]] = {**ORDERS, **PLACEMENTS, **WHOLE}

_SWITCHES: dict[str, Mapping[str, Mapping[str, Any]]] = {
    "adaptive": {
        "plain": {"plain": True},
        "worst": {"provision": "worst"},
        "average": {"provision": "average"},
        "single": {"periods": "single"},
        "shared": {"periods": "shared"},
    },
    "reserve": {"E": {"by": "E"}, "P": {"by": "P"}},
    "edf-partitioned": {"aggressive": {"aggressive": True}, "non-aggressive": {"aggressive": False}},
    "proportional": {
        "basic": {"all_tracks": False},
        "all": {"all_tracks": True},
        "aggressive": {"aggressive": True},
        "non-aggressive": {"aggressive": False},
        "E": {"by": "E"},
        "P": {"by": "P"},
    },
}

# What a warehouse runs by if nothing else is said. `penstock experiment one-for-all` and `any-workload` compare it with the
# policies of the paper.
DEFAULT = "hold / patient / inherit=chain / chop=3..10"

F = TypeVar("F", bound=Callable[..., Any])


def register(name: str) -> Callable[[F], F]:
    """Make a policy known under a name. What it makes is an order (an `IndexPolicy`), a `Placement`, or anything that
    has `decide`; the names that exist cannot be taken."""

    def remember(factory: F) -> F:
        known = POLICIES.get(name)
        if known is not None and getattr(known, "__module__", None) != getattr(factory, "__module__", ""):
            raise PolicyNameError(f"there is a policy {name!r} already; choose another name")
        for kind in (ORDERS, PLACEMENTS, WHOLE):
            kind.pop(name, None)
        made = factory if isinstance(factory, type) else type(factory())
        if issubclass(made, IndexPolicy):
            ORDERS[name] = factory
        elif issubclass(made, Placement):
            PLACEMENTS[name] = factory
        elif callable(getattr(made, "decide", None)):
            WHOLE[name] = factory
        else:
            raise PolicyNameError(f"{name!r} is neither an IndexPolicy nor a Placement, and has no decide(situation)")
        POLICIES[name] = factory
        find_policy.cache_clear()
        return factory

    return remember


@lru_cache(maxsize=256)
def find_policy(text: str) -> UpdatePolicy:
    """The policy that a text names, such as `proportional(all, aggressive) / max-benefit / inherit=max / chop=3`."""
    recipe = parse(text)
    order: IndexPolicy | None = None
    placement: Placement | None = None
    for found in recipe.parts:
        if found.name not in POLICIES:
            raise PolicyNameError(
                f"{found.name!r} is not a policy; expected one of {', '.join(sorted(POLICIES))}"
                f"{nearest(found.name, POLICIES)}"
            )
        made = make(found, POLICIES[found.name], _SWITCHES.get(found.name, {}))
        if found.name in WHOLE:
            if "/" in text:
                hint = "; the placement that keeps tracks for short jobs is called 'reserve'" * (
                    found.name == "adaptive"
                )
                raise PolicyNameError(f"{found.name!r} decides everything itself and cannot be combined{hint}")
            policy: UpdatePolicy = made
            return policy
        if found.name in ORDERS:
            if order is not None:
                raise PolicyNameError(f"{text!r} names two orders; one of them can go first")
            order = made
        else:
            if placement is not None:
                raise PolicyNameError(f"{text!r} names two placements")
            placement = made
    return Composed(order or MaxBenefit(), placement or Global(), recipe.inherit, recipe.inherit_k, recipe.chop)


__all__ = [
    "DEFAULT",
    "ORDERS",
    "PLACEMENTS",
    "POLICIES",
    "IndexPolicy",
    "PolicyNameError",
    "bound",
    "find_policy",
    "register",
]
