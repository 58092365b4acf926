"""How much one update takes (update chopping: Golab, Johnson, Shkapenyuk 2011, Sec. 3.4), with a range of our own.

An update is not interrupted. So what holds a track while more important tables wait had better be short; what nobody goes
before may as well be long, as every further start takes time. With `chop=3..10` a table is cut to three periods of data if
another is more than twice as stale, by priority, after one period without an update, and to ten if none is. So are tables that others
are made from, however little they count: those would all be made more often, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.graph import Graph

_MORE_IMPORTANT = 2.0


@dataclass(frozen=True, slots=True)
class Chop:
    least: float
    most: float

    def periods(self, graph: Graph, weights: Mapping[str, float]) -> dict[str, float]:
        missed = {name: weights[name] * graph.periods_us[name] for name in graph.order}
        worst = max(missed.values(), default=0.0)
        return {
            name: self.most if graph.out[name] or _MORE_IMPORTANT * one >= worst else self.least
            for name, one in missed.items()
        }


def chops(policy: object, graph: Graph) -> Mapping[str, float]:
    """Of each table, how many periods of data one job may take; those that are missing may take all there is."""
    chop: Chop | float | None = getattr(policy, "chop", None)
    if chop is None:
        return {}
    if isinstance(chop, Chop):
        return chop.periods(graph, getattr(policy, "weights", None) or graph.inherited)
    return dict.fromkeys(graph.order, chop)
