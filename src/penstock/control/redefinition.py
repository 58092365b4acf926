"""What a changed declaration makes of a table that has rows already."""

from __future__ import annotations

from penstock.control.events import Anew
from penstock.model.tables import Table

# Between what a base table does to rows and what its feed takes for rows, in the fingerprint of its logic.
SEAM = "|"


def what_is_anew(before: Table, table: Table) -> Anew:
    """How a table starts anew: not at all; with the `rows` that it has, in other partitions; or, a base table, by reading its
    `files` again. A view has no rows of its own: it is made again from its sources in any case."""
    if before.feed != table.feed:
        return "files" if table.is_base else "rows"
    other_time = before.time is not None and before.time != table.time
    if table.is_base and (other_time or logic_differs(before.logic, table.logic)):
        return "files"
    if (before.partition, before.zone) != (table.partition, table.zone):
        return "rows"
    if table.is_base:
        return ""
    if other_time or (set(before.sources), before.leader, before.when) != (
        set(table.sources),
        table.leader,
        table.when,
    ):
        return "rows"
    return "rows" if loses_columns(before.shape, table.shape) else ""


def loses_columns(before: str, now: str) -> bool:
    """Whether a table no longer has a column, or has it with another type: what it holds cannot stay beside that."""
    if not before or not now:
        return False
    kept = set(now.splitlines())
    named = {line.rpartition(" ")[0]: line for line in kept}
    for line in set(before.splitlines()) - kept:
        name, _, kind = line.rpartition(" ")
        if name not in named or "?" not in (kind, named[name].rpartition(" ")[2]):
            return True
    return False


def logic_differs(before: str, now: str) -> bool:
    """Whether rows of a base table would be other ones. What was recorded before feeds were part of it says nothing of them."""
    if SEAM not in before:
        return before != now.partition(SEAM)[0]
    return before != now
