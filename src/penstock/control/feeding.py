"""What the core remembers of feeds, and what of tables that recover after one of them was silent."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.events import (
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    Publication,
    WarehouseDeclared,
)
from penstock.control.feedstate import FeedState, Recovering
from penstock.control.lag import lag_us
from penstock.control.propagation import Propagation
from penstock.control.tablestate import TableState


class Feeding(Propagation):
    def __init__(self) -> None:
        super().__init__()
        self.feeds: dict[str, FeedState] = {}
        self.recovering: dict[str, Recovering] = {}
        # Since when a process looks at the feeds.
        self.watched_us = 0

    def _declare_feeds(self, event: WarehouseDeclared) -> None:
        self.feeds = {feed.name: self.feeds.get(feed.name) or FeedState() for feed in event.feeds}
        self.recovering = {name: found for name, found in self.recovering.items() if name in self.tables}

    def _hear(self, feed: str, at_us: int, *, delivery: bool = False) -> None:
        """A sign of life."""
        known = self.feeds.get(feed)
        if known is None:
            return
        if delivery:
            known.heard.file(at_us)
        elif known.heard.last_us is not None:
            known.heard.last_us = max(at_us, known.heard.last_us)

    def _records_seen(self, state: TableState, publication: Publication, arrived_us: int) -> None:
        """How old the newest records of a load were when they came."""
        newest = publication.leading_us
        if newest is not None and (state.leading_us is None or newest > state.leading_us):
            known = self.feeds.get(state.table.feed or "")
            if known is not None:
                known.heard.record(arrived_us - newest)

    # Outages

    def _went_out(self, event: FeedWentOut) -> None:
        known = self.feeds.get(event.feed)
        if known is not None:
            known.out_since_us = event.since_us

    def _came_back(self, event: FeedCameBack) -> None:
        known = self.feeds.get(event.feed)
        if known is not None and known.out_since_us is not None:
            self._recover(event.feed, Recovering(event.feed, "outage", known.out_since_us, event.at_us))
            known.out_since_us = None

    # Pauses

    def paused(self, table: TableState) -> FeedState | None:
        """The feed of a base table, if it is paused."""
        known = self.feeds.get(table.table.feed) if table.table.feed is not None else None
        return known if known is not None and known.paused_us is not None else None

    def _paused(self, event: FeedPaused) -> None:
        # Also before the first run, which will declare the feed.
        known = self.feeds.setdefault(event.feed, FeedState())
        known.paused_us = event.at_us if known.paused_us is None else known.paused_us
        known.paused_why = event.reason
        self.touched.update(self.graph.fed_by.get(event.feed, ()))

    def _resumed(self, event: FeedResumed) -> None:
        known = self.feeds.get(event.feed)
        if known is not None and known.paused_us is not None:
            recovering = Recovering(event.feed, "pause", known.paused_us, event.at_us)
            known.paused_us, known.paused_why, known.expected_us = None, "", event.at_us
            self._recover(event.feed, recovering)
            self.touched.update(self.graph.fed_by.get(event.feed, ()))

    # Recovery

    def _recover(self, feed: str, recovering: Recovering) -> None:
        fed = self.graph.fed_by.get(feed, ())
        reached, ahead = set[str](), list(fed)
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += (edge.table for edge in self.graph.out[name])
        for name in sorted(reached):
            # One silence after the other, before the first is made good, is as bad as both in one.
            before = self.recovering.get(name)
            longer = before.outage_us if before is not None else 0
            self.recovering[name] = replace(recovering, from_us=recovering.from_us - longer)
        for name in fed:
            self._see_whether_recovered(name)

    def _see_whether_recovered(self, name: str) -> None:
        """A table has recovered once it is no more than a period behind and what it reads has recovered."""
        if name not in self.recovering:
            return
        table = self.tables[name]
        if self._sources_recover(name) or self.paused(table) is not None:
            return
        if lag_us(self.graph, table) <= self.graph.periods_us[name]:
            del self.recovering[name]
            for edge in self.graph.out[name]:
                if edge.table != name:
                    self._see_whether_recovered(edge.table)

    def _sources_recover(self, name: str) -> bool:
        return any(edge.source in self.recovering for edge in self.graph.into[name] if edge.source != name)
