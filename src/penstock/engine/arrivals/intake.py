"""Sees delivered files and turns them into events, each file once.

A file is known by its name and checksum. One that comes again unchanged is nothing new, one that was loaded and has
other content now is a correction. A file that may still be written to (it changed a moment ago) is left for later. One that
cannot be read, or that was gone when it was to be loaded, is told and looked at again until it can be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from penstock.control.declaration import what_is_anew
from penstock.control.events import Event, FileArrived, FileQuarantined, FileRewritten, FilesOffered, PunctuationArrived
from penstock.control.state import State
from penstock.declare.api import FeedDeclaration
from penstock.declare.warehouse import Definitions
from penstock.engine.arrivals.folders import Tree, Watches
from penstock.engine.arrivals.inspect import checksum_of, look_at
from penstock.engine.arrivals.patterns import Pattern
from penstock.engine.arrivals.records import Malformed
from penstock.engine.ports import FeedSources, Seen
from penstock.engine.updates.provenance import order_of
from penstock.model.grain import zone_of
from penstock.model.schema import Schema
from penstock.model.time import SECOND_US, parse_instant
from penstock.requests.job import FeedFile
from penstock.requests.tablestate import TableState
from penstock.store.store import Store, feed_file, spans_of

# Where one feed delivers: its files and its markers, and which of them can be taken now.


class Landing:
    """Whoever looks holds the `lock`; a look at a disk that does not answer then keeps nobody from the other feeds."""

    def __init__(self, feed: FeedDeclaration, source: FeedSources) -> None:
        self.feed = feed
        self.lock = threading.Lock()
        # Whether there are files that changed a moment ago.
        self.unsettled = False
        # When the last look at everything began; and when the last one did of which all that was found is on record.
        self._looked_at = float("-inf")
        self.whole_at = float("-inf")
        self._files = source(feed, feed.config.path)
        self._markers = source(feed, feed.config.punctuation) if feed.config.punctuation else None
        # Markers first: what came before them is then found, too.
        self._trees = [tree for tree in (self._markers, self._files) if tree is not None]
        # Files that changed a moment ago, and since when they are as they are.
        self._waited: dict[str, tuple[Seen, int]] = {}
        self._sweep: Iterator[None] | None = None
        self._swept_from = 0.0

    @property
    def seldom(self) -> bool:
        """Whether the feed says how often it is to be looked at."""
        return self.feed.config.look_every is not None

    def due(self, now: float) -> bool:
        """Whether it is to be looked at, by the clock of `time.monotonic`."""
        every_us = self.feed.config.look_every
        return every_us is None or now - self._looked_at >= every_us / SECOND_US

    @property
    def has_news(self) -> bool:
        return self.unsettled or any(tree.has_news for tree in self._trees)

    @property
    def all_told(self) -> bool:
        return all(tree.all_told for tree in self._trees)

    def look(self) -> None:
        """At everything there is."""
        began, self._sweep = time.monotonic(), None
        for tree in self._trees:
            tree.look()
        self._looked_at = began

    def glance(self) -> None:
        """At what was told; at everything, if it is not known what was missed."""
        if any(tree.missed for tree in self._trees):
            self.look()
        else:
            for tree in self._trees:
                tree.glance()

    def list_changed(self) -> None:
        """Where not all is told: list the folders that changed."""
        for tree in self._trees:
            tree.list_changed()

    def sweep(self, seconds: float) -> bool:
        """Go on to look at everything for so long; gives whether that ends a round."""
        until = time.thread_time() + seconds
        if self._sweep is None:
            self._swept_from = time.monotonic()
            self._sweep = (None for tree in self._trees for _ in tree.sweep())
        for _ in self._sweep:
            if time.thread_time() >= until:
                return False
        self._sweep, self._looked_at = None, self._swept_from
        return True

    def ready(self) -> list[tuple[str, Seen]]:
        """New and changed files that have settled, oldest first."""
        settle_ns = self.feed.config.settle * 1000
        wall_ns, now_ns = time.time_ns(), time.monotonic_ns()
        found: list[tuple[str, Seen]] = []
        waits: dict[str, tuple[Seen, int]] = {}
        for tree in self._trees:
            for path, seen in list(tree.fresh.items()):
                if tree is self._files and self.is_marker(path):
                    del tree.fresh[path]
                    continue
                if wall_ns - seen.mtime_ns < settle_ns:
                    now = tree.see_again(path)
                    if now is None:
                        continue
                    # Its time may be wrong, or ahead of our clock: then it counts for how long it is as it is.
                    before, since_ns = self._waited.get(path, (now, now_ns))
                    waits[path] = (now, since_ns if before == now else now_ns)
                    if wall_ns - now.mtime_ns < settle_ns and now_ns - waits[path][1] < settle_ns:
                        continue
                    seen = now
                found.append((path, seen))
        ready = {path for path, _ in found}
        self._waited = waits
        self.unsettled = bool(waits.keys() - ready)
        return sorted(found, key=lambda entry: (entry[1].mtime_ns, entry[0]))

    def is_marker(self, path: str) -> bool:
        """Whether a file holds a promise, no rows."""
        return self._markers is not None and self._markers.matches(path)

    def logged(self) -> None:
        """All that was ready is on record."""
        self.whole_at = self._looked_at

    def taken(self, path: str) -> None:
        """A file is on record as it was found."""
        for tree in self._trees:
            tree.fresh.pop(path, None)

    def forget(self, path: str) -> None:
        """A file could not be looked at: it is new when it is seen next."""
        for tree in self._trees:
            tree.forget(path)

    def look_again(self, path: str) -> None:
        for tree in self._trees:
            tree.look_again(path)


_AT_ONCE = 500
# From so many files on, what is on record is read in one go.
_MANY = 5_000
EMPTY = "the file is empty"
# Seen, but gone, changed or not to be opened when it was wanted. Nothing is wrong with it, as far as is known.
UNREAD = "unread"


class NotFollowed(Exception):
    """A link in the place of a file."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at a file gave."""

    file: FeedFile
    mtime_ns: int
    # Why it must be set aside.
    reason: str | None
    promise: PunctuationArrived | None
    # Nothing is known of its content, as it could not be opened.
    unread: bool = False


class Arrivals:
    """Looks at the folders of all feeds; one instance per running process."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        feeds: list[FeedDeclaration],
        schema_of: Callable[[str], Schema | None],
        now_us: Callable[[], int],
        source: FeedSources | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._schema_of = schema_of
        self._now_us = now_us
        self.watches = Watches()
        self._source = source or self._in_folders
        self.landings = {feed.name: Landing(feed, self._source) for feed in feeds}

    def _in_folders(self, feed: FeedDeclaration, pattern: str, watched: bool = True) -> Tree:
        return Tree(Pattern(self._folder, pattern), self.watches if watched else None, feed.config.follow_links)

    @property
    def unsettled(self) -> bool:
        """Whether there are files that changed a moment ago."""
        return any(landing.unsettled for landing in self.landings.values())

    def scan(self) -> int:
        """Look at everything there is, log what is new, and return how many events that made."""
        made = 0
        for landing in self.landings.values():
            with landing.lock:
                landing.look()
                made += self.log(landing)
        return made

    def log(self, landing: Landing) -> int:
        """Log what was found, and return how many events that made."""
        ready = landing.ready()
        if len(ready) > _MANY:
            ready = self._unknown(landing, ready)
        made = sum(self._log(landing, ready[start : start + _AT_ONCE]) for start in range(0, len(ready), _AT_ONCE))
        landing.logged()
        return made

    def _unknown(self, landing: Landing, found: list[tuple[str, Seen]]) -> list[tuple[str, Seen]]:
        """Without the files that are on record as they are: at a start these are nearly all."""
        with self._store.read() as conn:
            known = dict(self._store.stamps(conn, landing.feed.name))
        left = []
        for path, seen in found:
            if known.get(self._uri(path)) == (seen.size, seen.mtime_ns):
                landing.taken(path)
            else:
                left.append((path, seen))
        return left

    def is_marker(self, feed: str, uri: str) -> bool:
        """Whether a file holds a promise, no rows."""
        return self.landings[feed].is_marker(str(self._folder / uri))

    def promised(self, feed: FeedDeclaration) -> int | None:
        """Up to which time the markers that lie there promise that all has come."""
        found = []
        if feed.config.punctuation:
            tree = self._source(feed, feed.config.punctuation, watched=False)
            tree.look()
            for path in tree.fresh:
                with suppress(Malformed, OSError):
                    found.append(self._promise(feed, path, 0).upto_us)
        return max(found, default=None)

    def look_again(self, feed: str, uri: str) -> None:
        """A file could not be loaded; it may be there again before anyone saw that it was gone."""
        if feed in self.landings:
            self.landings[feed].look_again(str(self._folder / uri))

    def close(self) -> None:
        self.watches.close()

    def _uri(self, path: str) -> str:
        """The name by which a file goes; bytes that are no text are spelled out."""
        begin = f"{self._folder}/"
        name = path[len(begin) :] if path.startswith(begin) else path
        return name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="backslashreplace")

    def _log(self, landing: Landing, fresh: list[tuple[str, Seen]]) -> int:
        try:
            return self._logged(landing, fresh)
        except Exception:
            # They are not on record: they are new when they are seen next.
            for path, _ in fresh:
                landing.forget(path)
            raise

    def _logged(self, landing: Landing, fresh: list[tuple[str, Seen]]) -> int:
        feed = landing.feed
        with self._store.read() as conn:
            rows = self._store.known_files(conn, feed.name, [self._uri(path) for path, _ in fresh])
        schema = self._schema_of(feed.name)
        looks: list[_Look] = []
        for path, found in fresh:
            uri = self._uri(path)
            row = rows.get(uri)
            if row is None or row.size_bytes != found.size or row.mtime_ns != found.mtime_ns:
                try:
                    looks.append(self._look(feed, schema, path, found, landing.is_marker(path)))
                except FileNotFoundError:
                    landing.forget(path)
                    continue
                except Exception as error:
                    # Not remembered as seen: it is tried again at the next look.
                    landing.forget(path)
                    looks += self._not_read(path, found, rows.get(uri), _why_not(error, feed))
                    continue
            landing.taken(path)
        events: list[Event] = []
        if looks:
            with self._store.write() as conn:
                # Asked again, now that nobody else writes: a load of the file may have ended while we looked at it.
                rows = self._store.known_files(conn, feed.name, [look.file.uri for look in looks])
                for look in looks:
                    events += self._record(conn, feed, look, rows.get(look.file.uri))
                self._store.append(conn, events)
        return len(events)

    def _not_read(self, path: str, found: Seen, row: Any, reason: str) -> list[_Look]:
        if row is not None and row.status == UNREAD and row.reason == reason:
            return []  # told already
        checksum = row.checksum if row is not None else ""
        return [_Look(FeedFile(self._uri(path), checksum, found.size, self._now_us()), 0, reason, None, unread=True)]

    def _look(self, feed: FeedDeclaration, schema: Schema | None, path: str, found: Seen, marker: bool) -> _Look:
        now_us = self._now_us()
        reason: str | None = None
        promise: PunctuationArrived | None = None
        try:
            if not path.isascii():
                path.encode()
            if not feed.config.follow_links and Path(path).is_symlink():
                raise NotFollowed
            if marker:
                promise = self._promise(feed, path, now_us)
                checksum = checksum_of(Path(path))
            else:
                look = look_at(Path(path), feed.config, schema)
                checksum, reason = look.checksum, EMPTY if look.empty else None
        except Malformed as malformed:
            checksum, reason = checksum_of(Path(path)), str(malformed)
        return _Look(FeedFile(self._uri(path), checksum, found.size, now_us), found.mtime_ns, reason, promise)

    def _record(self, conn: Connection, feed: FeedDeclaration, look: _Look, row: Any) -> list[Event]:
        """Write down what was seen of a file; gives the event that it is, if it is one."""
        # It has arrived now that it is known, and while nobody else writes: the log is in the order of its times.
        now_us = self._now_us()
        file = replace(look.file, arrived_us=now_us)
        if look.unread:
            assert look.reason is not None
            self._store.put_file(conn, feed.name, file, 0, UNREAD, look.reason)
            return [FileQuarantined(now_us, feed.name, file, look.reason)]
        if row is not None and row.checksum == file.checksum and row.status != UNREAD:
            # Touched, not changed: keep what is known of it.
            self._store.touch_file(conn, feed.name, file.uri, file.size_bytes, look.mtime_ns)
            return []
        span = self._store.loaded_span(conn, feed.name, file.uri) if row is not None else None
        if look.reason == EMPTY and span is not None:
            # A loaded file that says nothing now says that there are no rows.
            look = replace(look, reason=None)
        status = "quarantined" if look.reason is not None else "loaded" if look.promise is not None else "pending"
        file = replace(file, order=order_of(feed.config.order, file.uri, look.mtime_ns))
        file = self._store.put_file(conn, feed.name, file, look.mtime_ns, status, look.reason)
        if look.reason is not None:
            return [FileQuarantined(now_us, feed.name, file, look.reason)]
        if look.promise is not None:
            return [replace(look.promise, at_us=now_us)]
        if span is not None:
            return [FileRewritten(now_us, feed.name, file, span)]
        return [FileArrived(now_us, feed.name, file)]

    def _promise(self, feed: FeedDeclaration, path: str, now_us: int) -> PunctuationArrived:
        text = Path(path).read_text(encoding="utf-8", errors="replace").strip()
        try:
            return PunctuationArrived(now_us, feed.name, parse_instant(text, zone_of(feed.zone)))
        except ValueError as error:
            raise Malformed(f"a marker file must hold one time: {error}") from None


def _why_not(error: Exception, feed: FeedDeclaration) -> str:
    """Why nothing is known of a file."""
    if isinstance(error, NotFollowed):
        return f"is a link, which is not followed; deliver the file itself, or write follow_links = true in [feeds.{feed.name}]"
    if isinstance(error, IsADirectoryError):
        return f"is a folder, expected a file; for the files in it write {feed.config.path}/*"
    if isinstance(error, UnicodeEncodeError):
        return "has a name that is not UTF-8; rename it"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}; it is tried again"
    return f"cannot be looked at: {type(error).__name__}: {str(error)[:300]}; it is tried again"


# A table that takes a feed which delivered before starts from what is there, not from the next file.

_MARKS_AT_ONCE = 500


def offered(
    warehouse: Definitions, store: Store, conn: Connection, state: State, arrivals: Arrivals, now_us: int
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
        for some in (rows[start : start + _MARKS_AT_ONCE] for start in range(0, len(rows), _MARKS_AT_ONCE)):
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
