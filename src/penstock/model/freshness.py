"""How far a table is complete, and how stale it is (Golab, Johnson, Shkapenyuk 2011, Sec. 2.2 and 2.3).

`edge` is the safe freshness: all records with a time before it are in. Staleness at time t is t - edge, or nothing where a
table is ahead of the clock, as the whole truth about a day is before the day is over. A change of an old partition does not
move the edge, so a backfill never makes a table look fresh.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.grain import WHOLE, Grain
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.relations import Everything, PartitionMap, Relation, fits
from penstock.model.time import SECOND_US


@dataclass(frozen=True, slots=True)
class SourceEdge:
    """How far one source is complete, as its reader sees it."""

    edge_us: int
    grain: Grain
    relation: Relation
    exact_time: bool
    # A roll-up that cannot be cut for this reader, and so is used as it is.
    uncut: bool = False

    def map_to(self, table: Grain) -> PartitionMap:
        return PartitionMap(self.relation, self.grain, table)

    def cuttable_to(self, cut_us: int) -> bool:
        """Whether the table can use the rows of this source before a time and no others. Rows with times of their own
        can be cut anywhere; a roll-up that is ahead only between its partitions."""
        if self.exact_time or self.uncut or self.edge_us <= cut_us:
            return True
        if not isinstance(self.relation, Everything) and self.relation.high < 1:
            return True  # a window that ends before the partition itself only ever reads whole partitions
        return self.grain.floor(cut_us) == cut_us


def uncut(grain: Grain, table: Grain, others: Iterable[Grain]) -> bool:
    """Whether a roll-up cannot be cut where its reader needs it: its partitions do not fit into the reader's; or the
    reader is not partitioned and has other roll-ups, and the boundaries of both may never meet (days of two zones)."""
    if grain is WHOLE or not fits(grain, table):
        return True
    return table is WHOLE and not all(
        fits(grain, other) or fits(other, grain) for other in others if other is not WHOLE
    )


def trailing_edge(sources: Iterable[SourceEdge], table: Grain, *, closed: bool = False) -> int | None:
    """The time up to which a table can be made consistently from its sources; None if none of them flows with time.

    Rows of a source that is ahead are cut at the edge. A roll-up cannot be cut inside a partition, so a roll-up that is
    ahead lowers the edge to one of its own boundaries.
    """
    streams = [(stream, stream.map_to(table)) for stream in sources]
    if not streams:
        return None
    edge = min(way.carried(stream.edge_us) for stream, way in streams)
    while True:
        lowered = table.floor(edge) if closed and table is not WHOLE else edge
        for stream, way in streams:
            cut = way.cut(lowered)
            if not stream.cuttable_to(cut):
                lowered = min(lowered, way.carried(stream.grain.floor(cut)))
        if lowered == edge:
            return edge
        edge = lowered


def out_of_reach(sources: Iterable[SourceEdge], table: Grain, edge_us: int) -> PartitionSet:
    """The partitions that cannot be made as of `edge_us` now: they read rows that a source does not have yet, or that
    one which is ahead has already merged with later ones."""
    found = EMPTY
    for stream in sources:
        way = stream.map_to(table)
        cut = way.cut(edge_us)
        if way.carried(stream.edge_us) < edge_us:
            found |= way.affected(PartitionSet.of((stream.edge_us, cut)))
        elif not stream.cuttable_to(cut):
            found |= way.affected(PartitionSet.of((stream.grain.floor(cut), cut)))
    return found


@dataclass(slots=True)
class Staleness:
    """The integral of staleness over time, kept by adding one trapezium whenever the edge moves."""

    edge_us: int | None = None
    since_us: int = 0
    area: float = 0.0  # square seconds
    seconds: float = 0.0
    peak_us: int = 0

    def moved(self, now_us: int, edge_us: int) -> None:
        self._account(now_us)
        self.edge_us, self.since_us = edge_us, now_us if self.edge_us is None else max(now_us, self.since_us)

    def _account(self, now_us: int) -> None:
        if self.edge_us is None or now_us <= self.since_us:
            return
        self.area += self._area(now_us)
        self.seconds += (now_us - self.since_us) / SECOND_US
        self.peak_us = max(self.peak_us, now_us - self.edge_us)

    def _area(self, now_us: int) -> float:
        """What has come since the edge moved."""
        assert self.edge_us is not None
        start_us = max(self.since_us, self.edge_us)
        first, last = start_us - self.edge_us, now_us - self.edge_us
        return max(0, now_us - start_us) / SECOND_US * (first + last) / 2 / SECOND_US

    def mean_us(self, now_us: int) -> int | None:
        """The average so far."""
        if self.edge_us is None:
            return None
        now_us = max(now_us, self.since_us)
        seconds = self.seconds + (now_us - self.since_us) / SECOND_US
        if not seconds:
            return max(0, now_us - self.edge_us)
        return round((self.area + self._area(now_us)) / seconds * SECOND_US)
