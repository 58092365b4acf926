"""Pausing and resuming a feed: an event in the log, which a process that runs takes up at once."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from penstock.control.events import Event, FeedPaused, FeedResumed
from penstock.control.state import State
from penstock.declare.warehouse import Warehouse
from penstock.errors import PenstockError
from penstock.store.store import Store


@dataclass(frozen=True, slots=True)
class Paused:
    feed: str
    paused: bool
    # Whether it was otherwise before.
    changed: bool
    tables: tuple[str, ...]
    # Files that have come and are not loaded.
    waiting: int
    reason: str
    # Whether a process runs that knows of it at once.
    running: bool


def pause(warehouse: Warehouse, store: Store, state: State, feed: str, reason: str, now_us: int) -> Paused:
    was = _paused(warehouse, state, feed)
    if not was or reason:
        _append(store, FeedPaused(now_us, feed, reason))
    return _told(warehouse, state, feed, True, not was, reason)


def resume(warehouse: Warehouse, store: Store, state: State, feed: str, now_us: int) -> Paused:
    was = _paused(warehouse, state, feed)
    if was:
        _append(store, FeedResumed(now_us, feed))
    return _told(warehouse, state, feed, False, was, "")


def _paused(warehouse: Warehouse, state: State, feed: str) -> bool:
    if feed not in warehouse.feeds:
        near = difflib.get_close_matches(feed, warehouse.feeds, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(warehouse.feeds) or 'none'}"
        raise PenstockError(f"there is no feed `{feed}` in this project; {hint}")
    known = state.feeds.get(feed)
    return known is not None and known.paused_us is not None


def _append(store: Store, event: Event) -> None:
    with store.write() as conn:
        store.append(conn, [event])


def _told(warehouse: Warehouse, state: State, feed: str, paused: bool, changed: bool, reason: str) -> Paused:
    tables = tuple(warehouse.graph.fed_by.get(feed, ()))
    waiting = max((len(state.tables[name].files) for name in tables if name in state.tables), default=0)
    return Paused(feed, paused, changed, tables, waiting, reason, state.owner is not None)
