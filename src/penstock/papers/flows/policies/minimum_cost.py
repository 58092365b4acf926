"""Minimum cost: the activity with the most rows waiting, until it has none (Karagiannis et al. 2013, Sec. 4.2).

Few switches, so little is spent on scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.papers.flows.policies.base import Operator, OperatorPolicy, largest_queue


@dataclass(frozen=True)
class MinimumCost(OperatorPolicy):
    name: ClassVar[str] = "minimum-cost"

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        return largest_queue(operators)
