"""What the core remembers of one request of a user: what was asked for, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.partitions import EMPTY, PartitionSet

# Finished requests that are remembered, so that people see what became of them.
REMEMBERED = 50


@dataclass(slots=True)
class Request:
    number: int
    at_us: int
    table: str
    # The partitions that were asked for, as far as the table had them; and those that were dropped again.
    wanted: PartitionSet
    dropped: PartitionSet = EMPTY
    reason: str = ""
    downstream: bool = True
    deadline_us: int | None = None
    # The tables that have work to do for it.
    open: set[str] = field(default_factory=set)
    # Partitions made for it, by table, and in how many updates.
    made: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    finished_us: int | None = None
    cancelled_us: int | None = None
    # Something of it is held back by the policy of a table.
    held: bool = False
