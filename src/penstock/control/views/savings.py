"""What became of every reason to make something again, table by table: how much merging, waiting and comparing saved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from penstock.control.hindsight import Hindsight
from penstock.control.state import State


@dataclass(frozen=True, slots=True)
class Savings:
    """Of one table, or of all (`table` is empty)."""

    table: str
    # Reasons that came: files, changes of sources, requests, other logic.
    reasons: int
    updates: int
    # Reasons that made nothing run that was not to run anyway; of these, those that said what a pending one says, and those that a
    # running update met.
    merged: int
    duplicates: int
    joined: int
    # Held back by the table's policy.
    held: int
    # Partitions that were not made again, as what they read has the same rows as before.
    spared: int
    # Old partitions that were made again, and the least that hindsight would have made; 0 if nobody looked back.
    made: int = 0
    least: int = 0


def savings(state: State, past: Hindsight | None = None) -> list[Savings]:
    """In the order in which changes travel; the sum at the end."""
    found = []
    for name in state.graph.order:
        counts = state.tables[name].counts
        found.append(
            Savings(
                name,
                counts.requests,
                counts.updates,
                counts.merged,
                counts.duplicates,
                counts.joined,
                counts.held,
                counts.spared,
                past.made[name] if past is not None else 0,
                past.least[name] if past is not None else 0,
            )
        )
    return [*found, _sum(found)]


def _sum(each: Iterable[Savings]) -> Savings:
    every = list(each)
    return Savings("", *(sum(getattr(one, field.name) for one in every) for field in fields(Savings)[1:]))
