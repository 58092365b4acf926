"""Taking up again what failed: an event per table, and for quarantined files a second look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.events import Event, FileArrived, FileRewritten, TableRetried
from penstock.control.files import QuarantinedFile
from penstock.control.state import State
from penstock.declare.warehouse import Warehouse
from penstock.engine.arrivals.inspect import look_at
from penstock.engine.arrivals.intake import EMPTY, UNREAD
from penstock.engine.arrivals.records import Malformed
from penstock.errors import PenstockError
from penstock.requests.job import FeedFile
from penstock.store.store import Store


@dataclass(frozen=True, slots=True)
class Retried:
    taken: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    # Whether a process runs that will do it now.
    running: bool


def retry(warehouse: Warehouse, store: Store, state: State, names: Sequence[str], now_us: int) -> Retried:
    failed = {name for name, table in state.tables.items() if table.failed or table.retry_at_us is not None}
    for name in names:
        if name not in state.tables and name not in state.quarantine:
            raise PenstockError(
                f"{name!r} is neither a table nor a quarantined file; `penstock status` lists what failed"
            )
    tables = [name for name in (names or sorted(failed)) if name in failed]
    files = [found for uri, found in state.quarantine.items() if not names or uri in names]
    events: list[Event] = [TableRetried(now_us, name) for name in tables]
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


def _look_again(warehouse: Warehouse, found: QuarantinedFile, now_us: int) -> tuple[FeedFile, int] | str:
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
