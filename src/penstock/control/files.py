"""The files that base tables have to load, and what is promised of those to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.control.events import (
    FileArrived,
    FileQuarantined,
    FileRewritten,
    FilesOffered,
    FileWithdrawn,
    PunctuationArrived,
)
from penstock.control.feeds import Feeds
from penstock.model.partitions import PartitionSet
from penstock.model.time import END_US
from penstock.requests.job import FeedFile
from penstock.requests.ledger import Ledger
from penstock.requests.needs import restated
from penstock.requests.propagation import Propagation, PublishedChange
from penstock.requests.tablestate import TableState


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    feed: str
    file: FeedFile
    reason: str
    at_us: int


class Files:
    """Files that were set aside or rewritten; those to be loaded are in the tables."""

    def __init__(self, ledger: Ledger, propagation: Propagation, feeds: Feeds) -> None:
        self.ledger = ledger
        self.propagation = propagation
        self.feeds = feeds
        self.quarantine: dict[str, QuarantinedFile] = {}
        self.rewritten: dict[str, int] = {}
        # Base tables that were taken out of the project, as they were then.
        self.retired: dict[str, TableState] = {}

    def _fed(self, feed: str) -> Iterator[TableState]:
        fed = (self.ledger.tables[name] for name in self.ledger.graph.fed_by.get(feed, ()))
        return (state for state in fed if state.table.leader is None)

    def file_arrived(self, event: FileArrived) -> None:
        self.feeds.hear(event.feed, event.at_us, delivery=True)
        for state in self._fed(event.feed):
            upto = state.said_us if state.anew and state.edge_us is None else state.edge_us
            self.to_load(state, replace(event.file, late_us=upto) if upto is not None else event.file)

    def file_rewritten(self, event: FileRewritten) -> None:
        upto_us = max((end for _, end in event.ranges), default=END_US)
        if any(state.edge_us is None or upto_us >= state.edge_us for state in self._fed(event.feed)):
            # What corrects the past says nothing of whether the feed delivers.
            self.feeds.hear(event.feed, event.at_us)
        self.rewritten[event.feed] = self.rewritten.get(event.feed, 0) + 1
        for state in self._fed(event.feed):
            self.to_load(state, event.file)
            state.again.add(event.file.uri)
            had = PartitionSet.of(*event.ranges).hull(state.table.grain)
            named = self.ledger.graph.feeds[event.feed].reason_of(event.file.uri)
            self.ledger.require(state, had, restated(event.at_us, self.ledger.number, "corrected", named))

    def file_withdrawn(self, event: FileWithdrawn) -> None:
        self.quarantine.pop(event.uri, None)
        for state in self._fed(event.feed):
            self._no_longer_to_load(state, event.uri)
            state.withdrawn.add(event.uri)
            state.counts.requests += 1
            if event.ranges:
                had = PartitionSet.of(*event.ranges).hull(state.table.grain)
                self.ledger.require(state, had, restated(event.at_us, self.ledger.number, "withdrawn", event.reason))
            self.keep_promises(state, event.at_us)
            self.ledger.touched.add(state.table.name)
        for state in self.retired.values():
            if state.table.feed == event.feed:
                state.withdrawn.add(event.uri)

    def _no_longer_to_load(self, state: TableState, uri: str) -> None:
        dropped = state.files.pop(uri, None)
        if dropped is not None:
            state.amount = max(0.0, state.amount - dropped.size_bytes)
            del state.order[uri]
        state.again.discard(uri)
        state.came.pop(uri, None)
        if not state.again and not state.withdrawn:
            # Nothing of what it holds is to be corrected any more; what was asked for still is.
            for start, end, need in list(state.needs.pieces()):
                if not need.requests:
                    state.needs.remove(PartitionSet(((start, end),)))

    def to_load(self, state: TableState, file: FeedFile) -> None:
        if self.quarantine:
            self.quarantine.pop(file.uri, None)
        before = state.files.get(file.uri)
        if before is None:
            state.arrived += 1
            state.order[file.uri] = state.arrived
        else:
            state.amount -= before.size_bytes
            state.came.setdefault(file.uri, before.arrived_us)
        state.files[file.uri] = file
        state.withdrawn.discard(file.uri)  # its new content takes the place of the old one
        state.amount += file.size_bytes
        state.counts.requests += 1
        self.ledger.touched.add(state.table.name)

    def file_quarantined(self, event: FileQuarantined) -> None:
        uri = event.file.uri
        self.feeds.hear(event.feed, event.file.arrived_us)
        self.quarantine[uri] = QuarantinedFile(event.feed, event.file, event.reason, event.at_us)
        for state in self._fed(event.feed):
            self._no_longer_to_load(state, uri)
            self.keep_promises(state, event.at_us)
            self.ledger.touched.add(state.table.name)

    def files_offered(self, event: FilesOffered) -> None:
        state = self.ledger.tables.get(event.table)
        if state is None or state.table.leader is not None:
            return
        for file in event.files:
            self.to_load(state, file)
        if event.ranges:
            state.again.update(file.uri for file in event.files)  # any of them may be one
            had = PartitionSet.of(*event.ranges).hull(state.table.grain)
            state.needs.add(had, restated(event.at_us, self.ledger.number))
        if event.promised_us is not None:
            self._promised(state, event.promised_us, event.at_us)

    def punctuation(self, event: PunctuationArrived) -> None:
        self.feeds.hear(event.feed, event.at_us)
        for state in self._fed(event.feed):
            self._promised(state, event.upto_us, event.at_us)

    def _promised(self, state: TableState, upto_us: int, at_us: int) -> None:
        promises = state.promises
        if promises and promises[-1][0] == state.arrived:
            upto_us = max(upto_us, promises.pop()[1])
        promises.append((state.arrived, upto_us))
        self.keep_promises(state, at_us)

    def keep_promises(self, state: TableState, at_us: int) -> None:
        """A promise holds for the table once every file that came before it is loaded."""
        if not state.promises:
            return
        unloaded = [state.order[next(iter(state.files))]] if state.files else []
        if state.loading is not None:
            unloaded.append(state.loading)
        while state.promises and (not unloaded or state.promises[0][0] < min(unloaded)):
            upto = state.promises.popleft()[1]
            state.promised_us = upto if state.promised_us is None else max(state.promised_us, upto)
        edge = self.promised_edge(state)
        if edge is not None and (state.edge_us is None or edge > state.edge_us):
            self.propagation.complete(state, edge, at_us)
            if state.exists:
                # Nothing is new but that rows which are there already may be used.
                self.propagation.tell_readers(state, PublishedChange(self.ledger.snapshot + 1, True, (), at_us))

    def promised_edge(self, state: TableState) -> int | None:
        """Up to which time a base table is complete, as its feed is declared now: by its newest row or its newest marker."""
        feed = self.ledger.graph.feeds[state.table.feed or ""]
        if not self.ledger.graph.has_time[state.table.name]:
            return None
        if feed.punctuated:
            return state.promised_us
        if state.leading_us is None:
            return None
        if feed.mode == "snapshot":
            return state.table.grain.ceil(state.leading_us + 1)  # one file is the whole of its partitions
        return state.leading_us + 1 - feed.lateness_us
