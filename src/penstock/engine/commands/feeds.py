"""Pausing and resuming a feed: an event in the log, which a process that runs takes up at once."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update

from penstock.control.events import (
    Event,
    FeedPaused,
    FeedResumed,
    FileArrived,
    FileRewritten,
    FileWithdrawn,
    TableRetried,
)
from penstock.control.files import QuarantinedFile
from penstock.control.state import State
from penstock.declare.warehouse import Definitions
from penstock.errors import PenstockError
from penstock.model.partitions import Interval
from penstock.requests.job import FeedFile
from penstock.store import schema as tables
from penstock.store.store import Store, feed_file
from penstock.tables import Catalogue


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


def pause(
    warehouse: Definitions, store: Store, state: State, feed: str, reason: str, now_us: int, by: str = ""
) -> Paused:
    was = _paused(warehouse, state, feed)
    if not was or reason:
        _append(store, FeedPaused(now_us, feed, reason, by))
    return _told(warehouse, state, feed, True, not was, reason)


def resume(warehouse: Definitions, store: Store, state: State, feed: str, now_us: int, by: str = "") -> Paused:
    was = _paused(warehouse, state, feed)
    if was:
        _append(store, FeedResumed(now_us, feed, by))
    return _told(warehouse, state, feed, False, was, "")


def _paused(warehouse: Definitions, state: State, feed: str) -> bool:
    if feed not in warehouse.feeds:
        near = difflib.get_close_matches(feed, warehouse.feeds, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(warehouse.feeds) or 'none'}"
        raise PenstockError(f"there is no feed `{feed}` in this project; {hint}")
    known = state.feeds.get(feed)
    return known is not None and known.paused_us is not None


def _append(store: Store, event: Event) -> None:
    with store.write() as conn:
        store.append(conn, [event])


def _told(warehouse: Definitions, state: State, feed: str, paused: bool, changed: bool, reason: str) -> Paused:
    tables = tuple(warehouse.graph.fed_by.get(feed, ()))
    waiting = max((len(state.tables[name].files) for name in tables if name in state.tables), default=0)
    return Paused(feed, paused, changed, tables, waiting, reason, state.owner is not None)


# Taking up again what failed: an event per table, and for quarantined files a second look.


@dataclass(frozen=True, slots=True)
class Retried:
    taken: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    # Whether a process runs that will do it now.
    running: bool


def retry(
    warehouse: Definitions, store: Store, state: State, names: Sequence[str], now_us: int, by: str = ""
) -> Retried:
    from penstock.engine.arrivals.intake import UNREAD  # with PyArrow, for which commands that only look need not wait

    failed = {name for name, table in state.tables.items() if table.failed or table.retry_at_us is not None}
    for name in names:
        if name not in state.tables and name not in state.quarantine:
            raise PenstockError(
                f"{name!r} is neither a table nor a quarantined file; `penstock status` lists what failed"
            )
    tables = [name for name in (names or sorted(failed)) if name in failed]
    files = [found for uri, found in state.quarantine.items() if not names or uri in names]
    events: list[Event] = [TableRetried(now_us, name, by) for name in tables]
    taken = list(tables)
    refused: list[tuple[str, str]] = []
    with store.write() as conn:
        for found in files:
            again = _look_again(warehouse, found, now_us)
            if isinstance(again, str):
                refused.append((found.file.uri, again))
                continue
            row = store.known_files(conn, found.feed, [found.file.uri]).get(found.file.uri)
            if row is not None and row.status not in ("quarantined", UNREAD):
                continue  # someone was faster
            file, mtime_ns = again
            file = store.put_file(conn, found.feed, file, mtime_ns, "pending")
            span = store.loaded_span(conn, found.feed, file.uri)
            if span is not None:  # it was good before it was bad
                events.append(FileRewritten(now_us, found.feed, file, span))
            else:
                events.append(FileArrived(now_us, found.feed, file))
            taken.append(file.uri)
        store.append(conn, events)
    return Retried(tuple(taken), tuple(refused), state.owner is not None)


def _look_again(warehouse: Definitions, found: QuarantinedFile, now_us: int) -> tuple[FeedFile, int] | str:
    from penstock.engine.arrivals.inspect import look_at
    from penstock.engine.arrivals.intake import EMPTY
    from penstock.engine.arrivals.records import Malformed

    path = warehouse.declarations.folder / found.file.uri
    feed = warehouse.feeds.get(found.feed)
    if feed is None:
        return f"its feed {found.feed} is no longer declared"
    if not path.exists():
        return "the file is not there"
    try:
        look = look_at(path, feed.config, warehouse.feed_schemas.get(found.feed))
    except Malformed as malformed:
        return str(malformed)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if look.empty:
        return EMPTY
    stat = path.stat()
    return FeedFile(found.file.uri, look.checksum, stat.st_size, now_us), stat.st_mtime_ns


def read_again(
    warehouse: Definitions, store: Store, catalogue: Catalogue, state: State, name: str, now_us: int
) -> Retried:
    """Load the files again of which a base table refused rows, as if they had been delivered anew."""
    import pyarrow.parquet as pq

    feed = warehouse.definitions[name].table.feed or ""
    quarantine = f"{name}_quarantine"
    with store.write() as conn:
        known = catalogue.schema(conn, quarantine) is not None
        files = catalogue.files(conn, quarantine, catalogue.snapshot(conn)) if known else []
        paths = [catalogue.locate(quarantine, file) for file in files]
        uris = {uri for path in paths for uri in pq.read_table(path, columns=["file"]).column(0).to_pylist()}
        rows = store.known_files(conn, feed, sorted(uris))
        refused = [(uri, "the file is not there") for uri in sorted(uris) if not _there(warehouse, uri)]
        events: list[Event] = []
        for uri, row in rows.items():
            if _there(warehouse, uri) and row.status != WITHDRAWN:
                file = store.put_file(
                    conn, feed, replace(feed_file(row), id=0, arrived_us=now_us), row.mtime_ns, "pending"
                )
                events.append(FileRewritten(now_us, feed, file, store.loaded_span(conn, feed, uri) or ()))
        store.append(conn, events)
    taken = tuple(event.file.uri for event in events if isinstance(event, FileRewritten))
    return Retried(taken, tuple(refused), state.owner is not None)


def _there(warehouse: Definitions, uri: str) -> bool:
    return Path(warehouse.declarations.folder, uri).exists()


# Taking delivered files back: their rows go, with everything that was made from them. An event in the log; the next load of
# each table that holds rows of the file removes them.

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
    warehouse: Definitions, store: Store, state: State, names: Sequence[str], reason: str, now_us: int
) -> list[Withdrawn]:
    """Take files back, all or none."""
    done = []
    with store.write() as conn:
        events: list[Event] = []
        for row in _known(warehouse, conn, names):
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


def give_back(warehouse: Definitions, store: Store, state: State, names: Sequence[str], now_us: int) -> list[Withdrawn]:
    """Load files that were withdrawn after all."""
    done = []
    with store.write() as conn:
        events: list[Event] = []
        for row in _known(warehouse, conn, names):
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


def _known(warehouse: Definitions, conn: Connection, names: Sequence[str]) -> list[Any]:
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


def _spellings(warehouse: Definitions, name: str) -> list[str]:
    folder = warehouse.declarations.folder
    spelled = {name, name.removeprefix("./")}
    for path in (Path(name), Path.cwd() / name):
        if path.is_absolute():
            spelled.add(str(path))
            if path.is_relative_to(folder):
                spelled.add(str(path.relative_to(folder)))
    return sorted(spelled)
