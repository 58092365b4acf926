"""What an operator policy sees and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from penstock.flows.graph import FlowGraph


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
