"""Which version goes to a replica next, and which leave it. Versions are copied newest first; one that retention has let
go is never copied; and the versions that agree with each other go before all others, so that a reader at the replica has
a consistent set as soon as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

# By table: the snapshots of its versions, newest first.
KeptVersions = Mapping[str, Sequence[int]]
# By table: the snapshots of the versions that are whole at the replica.
Copied = Mapping[str, AbstractSet[int]]
_NONE: frozenset[int] = frozenset()


def next_copy(
    kept: KeptVersions,
    copied: Copied,
    agreeing: Mapping[str, int],
    most: int,
    priority: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, int] | None:
    """The table and version to copy now; None if the replica has all it should. `kept` are the versions within
    retention, `agreeing` the newest consistent set of them, `most` how many of each table the replica holds. Among those that
    are as urgent, the table with the larger priority goes first."""
    together = sorted(agreeing.items(), key=lambda found: -priority.get(found[0], 1.0))
    for group in (together, _newest_first(kept, most, priority)):
        for table, snapshot in group:
            if snapshot not in copied.get(table, _NONE) and snapshot in kept.get(table, ()):
                return table, snapshot
    return None


def _newest_first(kept: KeptVersions, most: int, priority: Mapping[str, float]) -> list[tuple[str, int]]:
    """The newest of each table, then the one before of each, and so on."""
    wanted = [
        (place, -priority.get(table, 1.0), -snapshot, table)
        for table, snapshots in kept.items()
        for place, snapshot in enumerate(snapshots[:most])
    ]
    return [(table, -snapshot) for _, _, snapshot, table in sorted(wanted)]


def to_drop(kept: KeptVersions, copied: Copied, agreeing: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Versions at the replica that it need not hold any more. Nothing goes before the versions that agree are there,
    so that a reader always finds a consistent set."""
    if any(snapshot not in copied.get(table, _NONE) for table, snapshot in agreeing.items()):
        return []
    gone = []
    for table, snapshots in copied.items():
        stay = {*kept.get(table, ())[:most], agreeing.get(table, -1)}
        gone += [(table, snapshot) for snapshot in sorted(snapshots) if snapshot not in stay]
    return gone
