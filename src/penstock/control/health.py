"""Whether feeds deliver: the last file of each against its declared period (Leontyev, Johnson, Anderson 2010, Def. 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.control.state import State
from penstock.control.tablestate import TableState

Condition = Literal["healthy", "late", "out", "unknown"]
# Files are seldom on time to the second: late after so many periods without one, out after so many.
_LATE_PERIODS = 1.5
_OUT_PERIODS = 3.0


@dataclass(frozen=True, slots=True)
class FeedHealth:
    feed: str
    condition: Condition
    period_us: int
    # When its last file came, and for how long a file has been due; None if none ever came.
    last_us: int | None = None
    overdue_us: int | None = None


def feed_health(state: State, now_us: int) -> list[FeedHealth]:
    """Every feed, in the order of declaration."""
    found = []
    for name, feed in state.graph.feeds.items():
        last = max((at for table in state.graph.fed_by[name] for at in _arrivals(state.tables[table])), default=None)
        if last is None:
            found.append(FeedHealth(name, "unknown", feed.period_us))
            continue
        silent = now_us - last
        condition: Condition = "healthy"
        if silent > _OUT_PERIODS * feed.period_us:
            condition = "out"
        elif silent > _LATE_PERIODS * feed.period_us:
            condition = "late"
        found.append(FeedHealth(name, condition, feed.period_us, last, max(0, silent - feed.period_us)))
    return found


def _arrivals(table: TableState) -> Iterator[int]:
    """When files of a table came, the latest among them."""
    if table.files:
        yield next(reversed(table.files.values())).arrived_us
    if table.running is not None and table.running.job.files:
        yield table.running.job.files[-1].arrived_us
    if table.last_arrival_us is not None:
        yield table.last_arrival_us
