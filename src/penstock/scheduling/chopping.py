"""How much one update takes (update chopping: Golab, Johnson, Shkapenyuk 2011, Sec. 3.4), with a range of our own.

An update is not interrupted. So what holds a track while more important tables wait had better be short; what nobody goes
before may as well be long, as every further start takes time. With `chop=3..10` a table is cut to three periods of data if
another is more than twice as stale, by priority, after one period without an update, and to ten if none is. So are tables that others
are made from, however little they count: those would all be made more often, too. But more than three are worth it only for the
starts that are saved: only while the data take less than so many times what a start takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.graph import Graph

_MORE_IMPORTANT = 2.0
# More than the least is taken while the data take less than so many start-ups: of a table that others are made from, and of another.
_STARTS, _STARTS_OF_LEAF = 50.0, 100.0


class Cut(NamedTuple):
    """How much of one table an update takes: from so many periods of data to so many."""

    least: float
    most: float
    starts: float = _STARTS

    def periods(self, start_up_s: float, data_s: float) -> float:
        """If a start takes so long, and the data of a period."""
        if self.least == self.most or self.starts * start_up_s >= self.most * data_s:
            return self.most
        # Rounded: the same whether counted in seconds or in bytes.
        return max(self.least, round(self.starts * start_up_s / data_s, 6))


@dataclass(frozen=True, slots=True)
class Chop:
    least: float
    most: float

    def cuts(self, graph: Graph, weights: Mapping[str, float]) -> dict[str, Cut]:
        missed = {name: weights[name] * graph.periods_us[name] for name in graph.order}
        worst = max(missed.values(), default=0.0)
        return {
            name: Cut(
                self.least,
                self.most if graph.out[name] or _MORE_IMPORTANT * one >= worst else self.least,
                _STARTS if graph.out[name] else _STARTS_OF_LEAF,
            )
            for name, one in missed.items()
        }
