"""Is a log a legal schedule? Read from the events alone, without the controller, its state or its guard."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.control.events import (
    Event,
    FileArrived,
    FileRewritten,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.time import BEGIN_US
from penstock.requests.job import Job, PublishedTable


class Illegal(AssertionError):
    """Something that no policy may do."""


def hold(true: bool, what: str) -> None:
    if not true:
        raise Illegal(what)


class Legality:
    """Of row-wise tables, as scenarios have them: the edge of a view is that of its sources."""

    def __init__(self) -> None:
        self.now = 0
        self.on_track: dict[int, Job] = {}
        self.files: dict[str, list[tuple[str, str]]] = {}  # of each base table those not loaded yet, oldest first
        self.edges: dict[str, int] = {}
        self.published: dict[str, list[tuple[int, PartitionSet]]] = {}
        self.made: dict[str, list[tuple[int, PartitionSet]]] = {}

    def follow(self, log: Iterable[Event]) -> Legality:
        for event in log:
            hold(event.at_us >= self.now, "time goes back")
            self.now = event.at_us
            if isinstance(event, WarehouseDeclared):
                self.graph, self.tracks = Graph(event.feeds, event.tables), event.tracks
            elif isinstance(event, FileArrived | FileRewritten):
                for table in self.graph.fed_by[event.feed]:
                    self.files.setdefault(table, []).append((event.file.uri, event.file.checksum))
            elif isinstance(event, UpdateStarted):
                self.start(event)
            elif isinstance(event, UpdateFinished):
                self.finish(event)
            elif isinstance(event, UpdateFailed):
                self.end(event.job)
        return self

    def start(self, event: UpdateStarted) -> None:
        job = event.job
        hold(0 <= event.track < self.tracks, f"there is no track {event.track}")
        hold(event.track not in self.on_track, f"two jobs on track {event.track}")
        hold(job.table not in {other.table for other in self.on_track.values()}, f"two writers of {job.table}")
        self.on_track[event.track] = job
        if job.kind == "load":
            taken = [(file.uri, file.checksum) for file in job.files]
            hold(sorted(taken) == sorted(set(taken)), f"a file twice in one load of {job.table}")
            waiting = self.files.get(job.table, [])
            hold(set(taken) <= set(waiting), f"{job.table} loads what did not come or is loaded already")
            hold(set(waiting[: len(taken)]) == set(taken), f"{job.table} loads a file before an older one")
        elif job.kind == "derive":
            hold(bool(job.pieces), f"a job of {job.table} without work")
            if job.complete_us is not None:
                upto = min(self.edges.get(edge.source, BEGIN_US) for edge in self.graph.into[job.table])
                hold(job.complete_us <= upto, f"{job.table} uses data that its sources do not have yet")
                hold(job.complete_us >= self.edges.get(job.table, BEGIN_US), f"{job.table} goes back in time")

    def end(self, identity: str) -> Job:
        found = [track for track, job in self.on_track.items() if job.id == identity]
        hold(len(found) == 1, f"{identity} ends without having started")
        return self.on_track.pop(found[0])

    def finish(self, event: UpdateFinished) -> None:
        job = self.end(event.job)
        for file in job.files:
            self.files[job.table].remove((file.uri, file.checksum))
        for publication in event.publications:
            if job.kind != "upkeep":
                self.publish(job, publication)

    def publish(self, job: Job, publication: PublishedTable) -> None:
        name = publication.table
        if publication.complete_us is not None:
            # A file that comes again may be old; what was complete stays so.
            self.edges[name] = max(publication.complete_us, self.edges.get(name, BEGIN_US))
        self.published.setdefault(name, []).append((publication.snapshot, PartitionSet.of(*publication.changed)))
        where = PartitionSet.of(*((piece.start_us, piece.end_us) for piece in job.pieces))
        self.made.setdefault(name, []).append((job.pin, where))

    def at_rest(self) -> None:
        """Nothing runs, and nothing is lost: all files are loaded, all views are as far as their sources, and each change
        of a source was followed by an update of the same partitions that could see it."""
        hold(not self.on_track, "something runs")
        for table, waiting in self.files.items():
            hold(not waiting, f"{table} never loaded {waiting[:1]}")
        for name, table in self.graph.tables.items():
            if table.is_base:
                continue
            into = self.graph.into[name]
            edge_us = min(self.edges.get(edge.source, BEGIN_US) for edge in into)
            hold(self.edges.get(name, BEGIN_US) == edge_us, f"{name} is behind its sources")
            for edge in into:
                for snapshot, changed in self.published.get(edge.source, []):
                    affected = edge.map.affected(changed.within(BEGIN_US, edge_us))
                    seen = EMPTY
                    for pin, where in self.made.get(name, []):
                        if pin >= snapshot:
                            seen |= where
                    hold(not affected - seen, f"{name} never saw a change of {edge.source}")


def check(log: Iterable[Event]) -> None:
    """Raise `Illegal` unless the log is a legal schedule at whose end nothing is left to do."""
    Legality().follow(log).at_rest()
