"""Minimum memory: the activity that takes the most rows out of memory per time (Karagiannis et al. 2013, Sec. 4.3).

MemB(p) = (In(p) - Out(p)) / ExecTime(p) * Queue(p), for a time slot. Where nobody would free anything (also at the
beginning, when nothing is known), the largest queue. A source reader's queue counts as one pack: as a full queue it
would be read before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.papers.flows.policies.base import Operator, OperatorPolicy, largest_queue

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
