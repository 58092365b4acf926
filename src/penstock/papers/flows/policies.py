"""Operator policies: which activity of a flow works next on the row packs in its queues.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 4 and 5.3. They are values without state; the flow simulator and an
executor of micro-batches ask the same ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from penstock.flows.composites import Subflow, break_into_subflows, policy_for
from penstock.flows.graph import FlowError, FlowGraph, NodeKind


@dataclass(frozen=True)
class Operator:
    """A node of a flow that has not finished. `can_run`: it has rows and room for what it makes, and does not run now."""

    name: str
    queue_rows: int  # in all its input queues; a source reader counts as one pack
    can_run: bool
    rows_in: int = 0  # so far
    rows_out: int = 0  # so far, in the queues of all consumers together
    busy_us: float = 0.0  # so far
    running: bool = False


@dataclass(frozen=True)
class OperatorPolicy(Protocol):
    """`choose` names the next operator, or None if it wants none to run now. Whoever asks stops the operator when its
    time slot is over (if there is one), when its input is empty, or when a consumer's queue is full; never later, so
    no rows are lost."""

    name: ClassVar[str]

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None: ...

    def slot_us(self, name: str) -> float | None:
        """How long an operator may run; None: until its input is empty."""
        return None

    def for_flow(self, graph: FlowGraph) -> OperatorPolicy:
        """The policy for one flow."""
        return self

    def staged_edges(self) -> frozenset[tuple[str, str]]:
        """Edges whose rows are stored until their reader begins, instead of passing a queue."""
        return frozenset()


def largest_queue(operators: Sequence[Operator]) -> str | None:
    """Of those that can run the one with the most rows waiting; of equal ones the first."""
    able = [operator for operator in operators if operator.can_run]
    return max(able, key=lambda operator: operator.queue_rows).name if able else None


# Round robin: every activity in turn, also those that have nothing to do (Karagiannis et al. 2013, Sec. 4.1)


@dataclass(frozen=True)
class RoundRobin(OperatorPolicy):
    name: ClassVar[str] = "round-robin"

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        names = [operator.name for operator in operators if not operator.running]
        # Operators come in the order of their names, so that the turn goes on behind one that has finished, too.
        return next((name for name in names if last is None or name > last), names[0] if names else None)


# Minimum cost: the activity with the most rows waiting, until it has none (Karagiannis et al. 2013, Sec. 4.2)


@dataclass(frozen=True)
class MinimumCost(OperatorPolicy):
    name: ClassVar[str] = "minimum-cost"

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        return largest_queue(operators)


# Minimum memory: the activity that takes the most rows out of memory per time (Karagiannis et al. 2013, Sec. 4.3)


SLOT_US = 70_000.0  # Table 3


@dataclass(frozen=True)
class MinimumMemory(OperatorPolicy):
    name: ClassVar[str] = "minimum-memory"

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        able = [operator for operator in operators if operator.can_run]
        best = max(able, key=memory_benefit, default=None)
        if best is None or memory_benefit(best) <= 0:
            return largest_queue(able)
        return best.name

    def slot_us(self, name: str) -> float | None:
        return SLOT_US


def memory_benefit(operator: Operator) -> float:
    if not operator.busy_us:
        return 0.0
    return (operator.rows_in - operator.rows_out) / operator.busy_us * operator.queue_rows


# Mixed: strata in turn, each subflow under the policy that suits it, several at once (Karagiannis et al. 2013, Sec. 5.3)


@dataclass(frozen=True)
class Mixed(OperatorPolicy):
    name: ClassVar[str] = "mixed"
    theta: int = 0
    groups: dict[str, str] = field(default_factory=dict, compare=False)  # node -> sink of its subflow
    level: dict[str, int] = field(default_factory=dict, compare=False)  # sink -> stratum
    inner: dict[str, OperatorPolicy] = field(default_factory=dict, compare=False)  # sink -> policy
    staged: frozenset[tuple[str, str]] = frozenset()

    def for_flow(self, graph: FlowGraph) -> Mixed:
        groups = {name: subflow.sink for name, subflow in break_into_subflows(graph).of.items()}
        for name in reversed(graph.order):
            if graph[name].kind is NodeKind.SOURCE and len({groups[c] for c in graph.consumers[name]}) == 1:
                groups[name] = groups[graph.consumers[name][0]]
        for name in graph.targets:
            groups[name] = groups[graph.providers[name][0]]
        members: dict[str, list[str]] = {}
        for name in graph.order:
            members.setdefault(groups[name], []).append(name)
        level: dict[str, int] = {}
        for name in graph.order:
            above = [level[groups[p]] + 1 for p in graph.providers[name] if groups[p] != groups[name]]
            level[groups[name]] = max(level.get(groups[name], 0), *above, 0)
        policies: dict[str, OperatorPolicy] = {
            sink: MinimumMemory()
            if policy_for(graph, Subflow(tuple(names)), self.theta) == "minimum-memory"
            else MinimumCost()
            for sink, names in members.items()
        }
        crossing = frozenset((p, c) for p, c in graph.edges if groups[p] != groups[c])
        return Mixed(self.theta, groups, level, policies, crossing)

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        stratum = min(self.level[self.groups[operator.name]] for operator in operators)
        inside: dict[str, list[Operator]] = {}
        for operator in operators:
            sink = self.groups[operator.name]
            if self.level[sink] == stratum:
                inside.setdefault(sink, []).append(operator)
        free = {
            sink: some
            for sink, some in inside.items()
            if not any(operator.running for operator in some) and any(operator.can_run for operator in some)
        }
        if not free:
            return None
        most = max(free, key=lambda sink: sum(operator.queue_rows for operator in free[sink]))
        return self.inner[most].choose(free[most], last)

    def slot_us(self, name: str) -> float | None:
        return self.inner[self.groups[name]].slot_us(name)

    def staged_edges(self) -> frozenset[tuple[str, str]]:
        return self.staged


OPERATOR_POLICIES: dict[str, type[OperatorPolicy]] = {
    policy.name: policy for policy in (RoundRobin, MinimumCost, MinimumMemory, Mixed)
}


def find_operator_policy(name: str) -> OperatorPolicy:
    if name not in OPERATOR_POLICIES:
        near = difflib.get_close_matches(name, OPERATOR_POLICIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FlowError(f"there is no operator policy {name!r}{hint}; known are {', '.join(OPERATOR_POLICIES)}")
    return OPERATOR_POLICIES[name]()
