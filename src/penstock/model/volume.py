"""How many bytes a table holds, and in which stretch of time: what an update goes through that makes partitions from nothing.

Only publications are counted, so it is an estimate: rows are taken to be spread evenly over the time that the table has.

>>> volume = Volume()
>>> volume.added(500)
>>> volume.replaced((0, 10), PartitionSet.of((5, 10)), 300)
>>> volume.size_bytes, volume.within((0, 10), PartitionSet.of((8, 20)))
(550.0, 110.0)
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.partitions import Interval, PartitionSet


@dataclass(slots=True)
class Volume:
    size_bytes: float = 0.0
    # How much was read for that from files that were delivered.
    delivered_bytes: float = 0.0

    def added(self, size_bytes: float, delivered_bytes: float = 0.0) -> None:
        self.size_bytes += size_bytes
        self.delivered_bytes += delivered_bytes

    def replaced(self, before: Interval, where: PartitionSet, size_bytes: float) -> None:
        """Partitions were written again, of a table that had such a stretch of time before."""
        kept = max(0.0, self.size_bytes - self.within(before, where)) + size_bytes
        if self.size_bytes:
            self.delivered_bytes *= kept / self.size_bytes
        self.size_bytes = kept

    def within(self, has: Interval, where: PartitionSet) -> float:
        """About how much lies in some partitions of a table that has such a stretch of time."""
        start, end = has
        if start >= end:
            return self.size_bytes
        return self.size_bytes * (_length(where.within(start, end)) / (end - start))

    @property
    def inflation(self) -> float:
        """Delivered bytes for each byte that is stored."""
        return self.delivered_bytes / self.size_bytes if self.size_bytes and self.delivered_bytes else 1.0


def _length(where: PartitionSet) -> int:
    return sum(end - start for start, end in where)
