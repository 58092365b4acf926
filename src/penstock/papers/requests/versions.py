"""What a version contains: whether a change is in a partition, exactly, in whatever order jobs completed.

A version of some partitions names the publications of its direct inputs that it was made from, and its own logic or
external data by stamp; what it contains further back follows from the graph. So a version is as large as the number of
inputs that its job has. A life-time roll-up over ten years of hours names one publication, not 87,600 partitions: which
version each hour had then is what that publication says.

A change is contained where it has come by *every* way that leads there. Where it never comes it is contained, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.papers.requests.book import Run
from penstock.papers.requests.request import OWN
from penstock.requests.plan import Extent, affected_by, everywhere, reach


@dataclass(frozen=True, slots=True)
class Version:
    partitions: PartitionSet
    # Publications of the whole warehouse are numbered.
    publication: int
    # Of each direct input the last publication of it that was read.
    read: Mapping[str, int]
    # The newest stamp of its own logic and external data, 0 if the job did not run for these.
    own: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A stamped change of some partitions of its origin."""

    stamp: int
    origin: str
    partitions: PartitionSet


class History:
    """The versions of all datasets, as published."""

    def __init__(self, graph: Graph, extent: Extent = everywhere) -> None:
        self.graph = graph
        self.extent = extent
        self._versions: dict[str, list[Version]] = {}

    def record(self, run: Run, publication: int) -> None:
        read = {edge.source: self._last(edge.source, run.pin) for edge in self.graph.into[run.dataset]}
        versions = self._versions.setdefault(run.dataset, [])
        for start, end, demand in run.pieces:
            own = demand.carried.get(OWN, 0)
            versions.append(Version(PartitionSet(((start, end),)), publication, read, own))

    def _last(self, dataset: str, publication: int) -> int:
        versions = self._versions.get(dataset, ())
        at = bisect_right(versions, publication, key=lambda version: version.publication)
        return versions[at - 1].publication if at else 0

    def contains(self, dataset: str, partitions: PartitionSet, change: Change, publication: int | None = None) -> bool:
        """Whether a change is in all of these partitions, as they are now or were at a publication."""
        return not self.lacking(dataset, partitions, change, publication)

    def lacking(
        self, dataset: str, partitions: PartitionSet, change: Change, publication: int | None = None
    ) -> PartitionSet:
        """Those of the partitions that do not contain a change."""
        last = self._last(dataset, 1 << 62) if publication is None else publication
        return self._lacking(dataset, last, change, {}) & partitions

    def _lacking(
        self, dataset: str, publication: int, change: Change, known: dict[tuple[str, int], PartitionSet]
    ) -> PartitionSet:
        """All partitions of a dataset that lacked the change at a publication: those to which it comes by a way on
        which it had not arrived when they were made."""
        key = (dataset, publication)
        if key in known:
            return known[key]
        found, unseen, wanting = EMPTY, EVERYTHING, EMPTY
        origin = change.partitions if dataset == change.origin else EMPTY
        versions = self._versions.get(dataset, ())
        at = bisect_right(versions, publication, key=lambda version: version.publication)
        for version in reversed(versions[:at]):
            here = version.partitions & unseen
            if not here:
                continue
            unseen -= here
            # Its own data may have come with this version or with an earlier one of the same partitions.
            wanting = (wanting | here) if version.own < change.stamp else wanting
            found |= self._made_without(dataset, here, version, change, known)
            if not unseen:
                break
        own = EMPTY
        for version in versions[:at]:
            if version.own >= change.stamp:
                own |= version.partitions
        found |= (origin & wanting) - own
        # What was never made again still is as before the change.
        found |= unseen & self._reached(dataset, change)
        known[key] = found
        return found

    def _made_without(
        self,
        dataset: str,
        here: PartitionSet,
        version: Version,
        change: Change,
        known: dict[tuple[str, int], PartitionSet],
    ) -> PartitionSet:
        found = EMPTY
        for edge in self.graph.into[dataset]:
            lacked = self._lacking(edge.source, version.read[edge.source], change, known)
            if lacked:
                reader = self.graph.tables[dataset]
                found |= (affected_by(reader, edge, lacked) if self.graph.has_time[edge.source] else EVERYTHING) & here
        return found

    def _reached(self, dataset: str, change: Change) -> PartitionSet:
        """Where in a dataset the change comes to at all."""
        return reach(self.graph, {change.origin: change.partitions}, self.extent).get(dataset, EMPTY)
