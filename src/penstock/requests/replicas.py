"""Which version goes to a replica next, and which leave it. Versions are copied newest first; one that retention has let
go is never copied; and the versions that agree with each other go before all others, so that a reader at the replica has
a consistent set as soon as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

# By table: the snapshots of its versions, newest first.
Versions = Mapping[str, Sequence[int]]
# By table: the snapshots of the versions that are whole at the replica.
Copied = Mapping[str, AbstractSet[int]]
_NONE: frozenset[int] = frozenset()


def next_copy(kept: Versions, copied: Copied, agreeing: Mapping[str, int], most: int) -> tuple[str, int] | None:
    """The table and version to copy now; None if the replica has all it should. `kept` are the versions within
    retention, `agreeing` the newest consistent set of them, `most` how many of each table the replica holds."""
    for group in (agreeing.items(), _newest_first(kept, most)):
        for table, snapshot in group:
            if snapshot not in copied.get(table, _NONE) and snapshot in kept.get(table, ()):
                return table, snapshot
    return None


def _newest_first(kept: Versions, most: int) -> list[tuple[str, int]]:
    wanted = [(snapshot, table) for table, snapshots in kept.items() for snapshot in snapshots[:most]]
    return [(table, snapshot) for snapshot, table in sorted(wanted, reverse=True)]


def to_drop(kept: Versions, copied: Copied, agreeing: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Versions at the replica that it need not hold any more. Nothing goes before the versions that agree are there,
    so that a reader always finds a consistent set."""
    if any(snapshot not in copied.get(table, _NONE) for table, snapshot in agreeing.items()):
        return []
    gone = []
    for table, snapshots in copied.items():
        stay = {*kept.get(table, ())[:most], agreeing.get(table, -1)}
        gone += [(table, snapshot) for snapshot in sorted(snapshots) if snapshot not in stay]
    return gone
