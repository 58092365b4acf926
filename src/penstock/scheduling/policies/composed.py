"""One policy from its parts: an order, a placement, inherited priorities, and how much one job may take."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.graph import Graph
from penstock.scheduling.chopping import Chop
from penstock.scheduling.inheritance import DEFAULT_K, inherited
from penstock.scheduling.jobs import NOTHING, ByIndex, Decision, Situation
from penstock.scheduling.placement.base import Global, Placement, Ranked, first_on
from penstock.scheduling.policies.index import IndexPolicy

_new = tuple.__new__  # as in placement/everywhere.py


class Composed:
    def __init__(
        self,
        order: IndexPolicy,
        placement: Placement,
        inherit: str = "max",
        inherit_k: float = DEFAULT_K,
        chop: Chop | float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.order, self.placement = order, placement
        self.inherit, self.inherit_k, self.chop = inherit, inherit_k, chop
        self.weights = weights
        self.index, self.why = order.index, order.why
        self.tie = getattr(order, "tie", None)
        self.lines = getattr(order, "lines", None)
        self.learns = (
            type(order).remember is not IndexPolicy.remember or type(placement).remember is not Placement.remember
        )
        self._by_index = type(order).ranked is IndexPolicy.ranked
        by_time_only = type(order).busy_since_us is IndexPolicy.busy_since_us
        self._only_index = self._by_index and by_time_only and not self.learns and type(placement) is Global

    def for_graph(self, graph: Graph) -> Composed:
        weights = inherited(graph, self.inherit, self.inherit_k)
        return Composed(
            self.order.knowing(graph, weights),
            self.placement.knowing(graph),
            self.inherit,
            self.inherit_k,
            self.chop,
            weights,
        )

    def decide(self, situation: Situation) -> Decision:
        ranked: Ranked
        known = self.order.remember(situation) if self.learns else NOTHING
        if self._only_index and (len(situation.free) == 1 or len(situation.ready) == 1):
            return _new(Decision, (first_on(situation, self.why), None, NOTHING))
        if not self._by_index:
            ranked = self.order.ranked(situation)
        elif self.placement.grouped:
            ranked = ByIndex(situation.ready, situation.now_us, self.order.busy_since_us(situation))
        else:
            ranked = situation.ready.ranked(situation.now_us, self.order.busy_since_us(situation))
        if not self.learns:
            return _new(Decision, (self.placement.place(situation, ranked, self.why), None, NOTHING))
        placed = self.placement.remember(situation)
        memory = {**known, **placed}
        return Decision(self.placement.place(situation, ranked, self.why, memory), None, memory)
