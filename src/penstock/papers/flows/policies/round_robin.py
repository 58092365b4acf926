"""Round robin: every activity in turn, also those that have nothing to do (Karagiannis et al. 2013, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.papers.flows.policies.base import Operator, OperatorPolicy


@dataclass(frozen=True)
class RoundRobin(OperatorPolicy):
    name: ClassVar[str] = "round-robin"

    def choose(self, operators: Sequence[Operator], last: str | None) -> str | None:
        names = [operator.name for operator in operators if not operator.running]
        # Operators come in the order of their names, so that the turn goes on behind one that has finished, too.
        return next((name for name in names if last is None or name > last), names[0] if names else None)
