"""Operator policies: which activity of a flow works next on the row packs in its queues.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 4 and 5.3, one module each. They are values without state; the flow
simulator and an executor of micro-batches ask the same ones.
"""

from __future__ import annotations

import difflib

from penstock.flows.graph import FlowError
from penstock.papers.flows.policies.base import Operator, OperatorPolicy
from penstock.papers.flows.policies.minimum_cost import MinimumCost
from penstock.papers.flows.policies.minimum_memory import MinimumMemory
from penstock.papers.flows.policies.mixed import Mixed
from penstock.papers.flows.policies.round_robin import RoundRobin

OPERATOR_POLICIES: dict[str, type[OperatorPolicy]] = {
    policy.name: policy for policy in (RoundRobin, MinimumCost, MinimumMemory, Mixed)
}


def find_operator_policy(name: str) -> OperatorPolicy:
    if name not in OPERATOR_POLICIES:
        near = difflib.get_close_matches(name, OPERATOR_POLICIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FlowError(f"there is no operator policy {name!r}{hint}; known are {', '.join(OPERATOR_POLICIES)}")
    return OPERATOR_POLICIES[name]()


__all__ = ["OPERATOR_POLICIES", "Operator", "OperatorPolicy", "find_operator_policy"]
