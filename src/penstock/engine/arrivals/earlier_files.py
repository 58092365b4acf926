"""A table that takes a feed which delivered before starts from what is there, not from the next file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from penstock.control.declaration import what_is_anew
from penstock.control.events import FilesOffered, PunctuationArrived
from penstock.control.state import State
from penstock.declare.warehouse import Warehouse
from penstock.engine.arrivals.intake import Arrivals
from penstock.engine.updates.provenance import order_of
from penstock.requests.tablestate import TableState
from penstock.store.store import Store, feed_file, spans_of

_AT_ONCE = 500


def offered(
    warehouse: Warehouse, store: Store, conn: Connection, state: State, arrivals: Arrivals, now_us: int
) -> Iterator[FilesOffered | PunctuationArrived]:
    """What tables that are new to the state get of the files that their feeds delivered before and that still lie there.

    A table that was left out for a while holds what it had loaded until then, and only gets the rest. So does one that was
    new while a file was away which is back now: for another table of the feed it is nothing new.
    """
    for name, feed in warehouse.feeds.items():
        known_feed, now = state.graph.feeds.get(name), warehouse.graph.feeds[name]
        if known_feed is not None and now.markers and known_feed.markers not in ("", now.markers):
            promised = arrivals.promised(feed)
            if promised is not None:
                yield PunctuationArrived(now_us, name, promised)
    for name, table in warehouse.graph.tables.items():
        before = state.tables.get(name)
        if table.feed is None or table.leader is not None:
            continue
        known = before or state.retired.get(name)
        anew = known is not None and "files" in (what_is_anew(known.table, table), known.anew)
        if before is not None and not anew and len(warehouse.graph.fed_by.get(table.feed, ())) < 2:
            continue  # all that came of the feed was told to it
        # What it is made anew from may be gone: then its rows are taken along, or it says so.
        found = store.delivered(conn, table.feed) if anew else store.not_loaded(conn, name, table.feed)
        told = _told(before, state) if before is not None and not anew else set()
        feed = warehouse.feeds[table.feed]
        rows = [row for row in found if row.uri not in told and not arrivals.is_marker(feed.name, row.uri)]
        if not anew:
            rows = [row for row in rows if Path(warehouse.declarations.folder, row.uri).exists()]
        order = feed.config.order
        promised = arrivals.promised(feed) if rows and anew else None
        if promised is None and rows:
            promised = _promised(store, conn, table.feed)
        for some in (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)):
            yield FilesOffered(
                now_us,
                name,
                tuple(replace(feed_file(row), order=order_of(order, row.uri, row.mtime_ns)) for row in some),
                () if anew else tuple(span for row in some for span in spans_of(row)),
                promised if some[-1] is rows[-1] else None,
            )


def _told(table: TableState, state: State) -> set[str]:
    """The files that a table knows of, whether or not it has loaded them."""
    loading = table.running.job.files if table.running is not None else ()
    return {*table.files, *table.withdrawn, *state.quarantine, *(file.uri for file in loading)}


def _promised(store: Store, conn: Connection, feed: str) -> int | None:
    found = store.events_of(conn, feed, ["punctuation-arrived"], 1)
    return max((event.upto_us for _, event in found if isinstance(event, PunctuationArrived)), default=None)
