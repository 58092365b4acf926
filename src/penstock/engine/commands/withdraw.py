"""Taking delivered files back: their rows go, with everything that was made from them. An event in the log; the next load of
each table that holds rows of the file removes them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update

from penstock.control.events import Event, FileArrived, FileWithdrawn
from penstock.control.state import State
from penstock.declare.warehouse import Warehouse
from penstock.errors import PenstockError
from penstock.model.partitions import Interval
from penstock.store import schema as tables
from penstock.store.store import Store, feed_file

WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Withdrawn:
    uri: str
    feed: str
    # False if it was so before.
    changed: bool
    # The tables that hold rows of it, and the event times of those.
    tables: tuple[str, ...]
    ranges: tuple[Interval, ...]
    # Whether a process runs that will do it now.
    running: bool


def withdraw(
    warehouse: Warehouse, store: Store, state: State, names: Sequence[str], reason: str, now_us: int
) -> list[Withdrawn]:
    """Take files back, all or none."""
    done = []
    with store.write() as conn:
        events: list[Event] = []
        for row in _known(warehouse, store, conn, names):
            changed = row.status != WITHDRAWN
            ranges = store.loaded_span(conn, row.feed, row.uri) or ()
            if changed:
                _set_status(conn, row, WITHDRAWN, reason)
                events.append(FileWithdrawn(now_us, row.feed, row.uri, ranges, reason))
            holders = conn.execute(
                select(tables.loaded.c.table_name).where(
                    tables.loaded.c.feed == row.feed, tables.loaded.c.uri == row.uri
                )
            )
            held = tuple(sorted(holders.scalars()))
            done.append(Withdrawn(row.uri, row.feed, changed, held, ranges, state.owner is not None))
        store.append(conn, events)
    return done


def give_back(warehouse: Warehouse, store: Store, state: State, names: Sequence[str], now_us: int) -> list[Withdrawn]:
    """Load files that were withdrawn after all."""
    done = []
    with store.write() as conn:
        events: list[Event] = []
        for row in _known(warehouse, store, conn, names):
            changed = row.status == WITHDRAWN
            if changed and not Path(warehouse.declarations.folder, row.uri).exists():
                raise PenstockError(f"{row.uri} is no longer there; put it back first, then type the same again")
            if changed:
                again = replace(feed_file(row), id=0, arrived_us=now_us)
                file = store.put_file(conn, row.feed, again, row.mtime_ns, "pending")
                events.append(FileArrived(now_us, row.feed, file))
            done.append(Withdrawn(row.uri, row.feed, changed, (), (), state.owner is not None))
        store.append(conn, events)
    return done


def _set_status(conn: Connection, row: Any, status: str, reason: str) -> None:
    own = tables.file.c
    here = (own.feed == row.feed) & (own.uri == row.uri)
    conn.execute(update(tables.file).where(here).values(status=status, reason=reason or None))


def _known(warehouse: Warehouse, store: Store, conn: Connection, names: Sequence[str]) -> list[Any]:
    """What is known of the files that a user names, as they were delivered or as they lie on disk."""
    found: list[Any] = []
    own = tables.file.c
    for name in names:
        rows = conn.execute(select(tables.file).where(own.uri.in_(_spellings(warehouse, name)))).all()
        if not rows:
            every = conn.execute(select(own.uri).where(own.status != WITHDRAWN).limit(100_000)).scalars().all()
            near = difflib.get_close_matches(name, every, n=1) or [uri for uri in every if uri.endswith(f"/{name}")][:1]
            hint = (
                f"did you mean {near[0]}?"
                if near
                else "name it as `penstock status` and the quarantine do, from the project's folder"
            )
            raise PenstockError(f"no file {name!r} was delivered to this project; {hint}")
        found += rows
    return found


def _spellings(warehouse: Warehouse, name: str) -> list[str]:
    folder = warehouse.declarations.folder
    spelled = {name, name.removeprefix("./")}
    for path in (Path(name), Path.cwd() / name):
        if path.is_absolute():
            spelled.add(str(path))
            if path.is_relative_to(folder):
                spelled.add(str(path.relative_to(folder)))
    return sorted(spelled)
