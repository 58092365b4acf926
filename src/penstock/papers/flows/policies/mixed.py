"""Mixed: strata in turn, each subflow under the policy that suits it, several at once (Karagiannis et al. 2013, Sec. 5.3).

A subflow is worked on by one thread at a time, so on several processors several of a stratum run. A source is read by
the subflow that reads it, a target written by the one that fills it. What passes from one subflow to a later one is
stored in between: the later one begins when all of the stratum before it have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.flows.composites import Subflow, break_into_subflows, policy_for
from penstock.flows.graph import FlowGraph, NodeKind
from penstock.papers.flows.policies.base import Operator, OperatorPolicy
from penstock.papers.flows.policies.minimum_cost import MinimumCost
from penstock.papers.flows.policies.minimum_memory import MinimumMemory


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
