"""A warehouse at a glance, as `penstock status --json` and the HTTP API tell it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo

from penstock.control.guarantees import violated
from penstock.control.health import FeedHealth, feed_healths
from penstock.control.recovery import Recovery, recoveries
from penstock.control.state import State
from penstock.control.status import TableStatus, status
from penstock.scheduling.recovery.guarantees import Violation


@dataclass(frozen=True, slots=True)
class SetAside:
    feed: str
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Overview:
    tables: list[TableStatus]
    feeds: list[FeedHealth]
    # Tables that catch up after an outage or a pause, and bounds that do not hold.
    recovery: list[Recovery]
    violated: list[Violation]
    quarantine: list[SetAside]


def overview(state: State, now_us: int, zone: tzinfo = UTC) -> Overview:
    return Overview(
        status(state, now_us),
        feed_healths(state, now_us, zone),
        recoveries(state, now_us),
        violated(state, now_us),
        [SetAside(found.feed, found.file.uri, found.reason) for found in state.quarantine.values()],
    )
