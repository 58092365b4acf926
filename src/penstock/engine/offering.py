"""A table that takes a feed which delivered before starts from what is there, not from the next file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection

from penstock.control.events import FeedFile, FilesOffered, PunctuationArrived
from penstock.control.state import State
from penstock.declare.warehouse import Warehouse
from penstock.store.store import Store

_AT_ONCE = 500


def offered(
    warehouse: Warehouse, store: Store, conn: Connection, state: State, markers: dict[str, set[str]], now_us: int
) -> Iterator[FilesOffered]:
    """What tables that are new to the state get of the files that their feeds delivered before and that still lie there.

    A table that was left out for a while holds what it had loaded until then, and only gets the rest. `markers` are the
    files of each feed that hold promises, no rows.
    """
    for name, table in warehouse.graph.tables.items():
        before = state.tables.get(name)
        if table.feed is None or table.leader is not None or (before is not None and before.table.feed == table.feed):
            continue
        rows = [row for row in store.not_loaded(conn, name, table.feed) if row.uri not in markers[table.feed]]
        rows = [row for row in rows if Path(warehouse.declarations.folder, row.uri).exists()]
        promised = _promised(store, conn, table.feed) if rows else None
        for some in (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)):
            yield FilesOffered(
                now_us,
                name,
                tuple(FeedFile(row.uri, row.checksum, row.size_bytes, row.arrived_us) for row in some),
                tuple((row.min_us, row.max_us + 1) for row in some if row.min_us is not None),
                promised if some[-1] is rows[-1] else None,
            )


def _promised(store: Store, conn: Connection, feed: str) -> int | None:
    found = store.events_of(conn, feed, ["punctuation-arrived"], 1)
    return max((event.upto_us for _, event in found if isinstance(event, PunctuationArrived)), default=None)
