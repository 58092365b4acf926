"""What the core knows of one feed: its rhythm, whether it is out, whether someone paused it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.events import FeedCameBack, FeedPaused, FeedResumed, FeedWentOut, WarehouseDeclared
from penstock.model.rhythm import REMEMBERED, Heard
from penstock.requests.job import PublishedTable
from penstock.requests.ledger import Ledger
from penstock.requests.tablestate import TableState, lag_us

# A feed delivers at another period than is known if it is so many times longer or shorter.
_OTHERWISE = 1.2


@dataclass(slots=True)
class FeedState:
    heard: Heard = field(default_factory=Heard)
    # Since when it is out: when the first file was due that did not come. Only what is in the log counts.
    out_since_us: int | None = None
    paused_us: int | None = None
    paused_why: str = ""
    # Silence counts from here on: before, nobody expected anything.
    expected_us: int | None = None

    def dump(self) -> dict[str, Any]:
        return {
            "beats": list(self.heard.beats),
            "last_us": self.heard.last_us,
            "ages": list(self.heard.ages),
            "out_since_us": self.out_since_us,
            "paused_us": self.paused_us,
            "paused_why": self.paused_why,
            "expected_us": self.expected_us,
        }

    @staticmethod
    def load(data: dict[str, Any]) -> FeedState:
        heard = Heard(_last(data["beats"]), data["last_us"], _last(data["ages"]))
        return FeedState(heard, data["out_since_us"], data["paused_us"], data["paused_why"], data["expected_us"])


def _last(values: Sequence[int]) -> deque[int]:
    return deque(values, maxlen=REMEMBERED)


@dataclass(frozen=True, slots=True)
class Recovering:
    """A table that catches up on what an outage or a pause held back."""

    feed: str
    cause: str
    # The time without data, and when it was over.
    from_us: int
    since_us: int
    # When the first of these began, if there was one after the other before the table had recovered.
    healthy_us: int = 0

    @property
    def outage_us(self) -> int:
        return self.since_us - self.from_us


class Feeds:
    """All feeds, and the tables that recover after one of them was silent."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.known: dict[str, FeedState] = {}
        self.recovering: dict[str, Recovering] = {}
        # Since when a process looks at the feeds.
        self.watched_us = 0

    def declare(self, event: WarehouseDeclared) -> None:
        self.known = {feed.name: self.known.get(feed.name) or FeedState() for feed in event.feeds}
        self.recovering = {name: found for name, found in self.recovering.items() if name in self.ledger.tables}

    def hear(self, feed: str, at_us: int, *, delivery: bool = False) -> None:
        """A sign of life."""
        known = self.known.get(feed)
        if known is None:
            return
        if delivery:
            known.heard.file(at_us)
            self._learn(feed, known)
        elif known.heard.last_us is not None:
            known.heard.last_us = max(at_us, known.heard.last_us)

    def _learn(self, feed: str, known: FeedState) -> None:
        """Where nobody said how often a feed delivers, go by what it does: deadlines, lengths of cuts and costs of periods
        follow. Small differences change nothing, as plans would change with them."""
        graph = self.ledger.graph
        if not graph.feeds[feed].guessed or (rhythm := known.heard.rhythm()) is None:
            return
        before = graph.learned_us.get(feed)
        if before is None or not before < _OTHERWISE * rhythm.period_us < _OTHERWISE * _OTHERWISE * before:
            self.ledger.graph = graph.with_learned(feed, rhythm.period_us)
            self.ledger.touched.update(self.ledger.tables)

    def note_ages(self, state: TableState, publication: PublishedTable, arrived_us: int) -> None:
        """How old the newest records of a load were when they came."""
        newest = publication.leading_us
        if newest is not None and (state.leading_us is None or newest > state.leading_us):
            known = self.known.get(state.table.feed or "")
            if known is not None:
                known.heard.record(arrived_us - newest)

    def went_out(self, event: FeedWentOut) -> None:
        known = self.known.get(event.feed)
        if known is not None:
            known.out_since_us = event.since_us

    def came_back(self, event: FeedCameBack) -> None:
        known = self.known.get(event.feed)
        if known is not None and known.out_since_us is not None:
            self._recover(event.feed, Recovering(event.feed, "outage", known.out_since_us, event.at_us))
            known.out_since_us = None

    def paused(self, table: TableState) -> FeedState | None:
        """The feed of a base table, if it is paused."""
        known = self.known.get(table.table.feed) if table.table.feed is not None else None
        return known if known is not None and known.paused_us is not None else None

    def pause(self, event: FeedPaused) -> None:
        # Also before the first run, which will declare the feed.
        known = self.known.setdefault(event.feed, FeedState())
        known.paused_us = event.at_us if known.paused_us is None else known.paused_us
        known.paused_why = event.reason
        self.ledger.touched.update(self.ledger.graph.fed_by.get(event.feed, ()))

    def resume(self, event: FeedResumed) -> None:
        known = self.known.get(event.feed)
        if known is not None and known.paused_us is not None:
            recovering = Recovering(event.feed, "pause", known.paused_us, event.at_us)
            known.paused_us, known.paused_why, known.expected_us = None, "", event.at_us
            self._recover(event.feed, recovering)
            self.ledger.touched.update(self.ledger.graph.fed_by.get(event.feed, ()))

    def _recover(self, feed: str, recovering: Recovering) -> None:
        fed = self.ledger.graph.fed_by.get(feed, ())
        reached, ahead = set[str](), list(fed)
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += (edge.table for edge in self.ledger.graph.out[name])
        for name in sorted(reached):
            # One silence after the other, before the first is made good, is as bad as both in one.
            before = self.recovering.get(name)
            longer = before.outage_us if before is not None else 0
            healthy_us = before.healthy_us if before is not None else recovering.from_us
            self.recovering[name] = replace(
                recovering, from_us=recovering.from_us - longer, healthy_us=min(healthy_us, recovering.from_us)
            )
        for name in fed:
            self.see_whether_recovered(name)

    def see_whether_recovered(self, name: str) -> None:
        """A table has recovered once it is no more than a period behind and what it reads has recovered."""
        if name not in self.recovering:
            return
        table = self.ledger.tables[name]
        if self._sources_recover(name) or self.paused(table) is not None:
            return
        if lag_us(self.ledger.graph, table) <= self.ledger.graph.periods_us[name]:
            del self.recovering[name]
            for edge in self.ledger.graph.out[name]:
                if edge.table != name:
                    self.see_whether_recovered(edge.table)

    def _sources_recover(self, name: str) -> bool:
        return any(edge.source in self.recovering for edge in self.ledger.graph.into[name] if edge.source != name)
