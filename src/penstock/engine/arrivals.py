"""Sees delivered files and turns them into events, each file once.

A file is known by its name and checksum. One that comes again unchanged is nothing new, one that was loaded and has
other content now is a correction. A file that may still be written to (it changed a moment ago) is left for later. One that
cannot be read, or that was gone when it was to be loaded, is told and looked at again until it can be.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from penstock.control.events import Event, FeedFile, FileArrived, FileQuarantined, FileRewritten, PunctuationArrived
from penstock.declare.api import FeedDeclaration
from penstock.engine.inspect import checksum_of, look_at
from penstock.engine.provenance import order_of
from penstock.engine.records import Malformed
from penstock.model.grain import zone_of
from penstock.model.schema import Schema
from penstock.model.time import parse_instant
from penstock.store.store import Store

# Names by which writers mark what is not ready yet.
_UNFINISHED = re.compile(r"(^[._])|(\.(tmp|part|partial|crdownload|inprogress)$)", re.IGNORECASE)
_AT_ONCE = 500
EMPTY = "the file is empty"
# Seen, but gone, changed or not to be opened when it was wanted. Nothing is wrong with it, as far as is known.
UNREAD = "unread"
_OUTPUT = re.compile(r"\.(csv|json|parquet)$", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    size: int
    mtime_ns: int


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
    ) -> None:
        self._store = store
        self._folder = folder
        self._feeds = feeds
        self._schema_of = schema_of
        self._now_us = now_us
        self._seen: dict[str, dict[str, Seen]] = {feed.name: {} for feed in feeds}
        # Files that changed a moment ago, and since when they are as they are.
        self._fresh: dict[str, dict[str, tuple[Seen, int]]] = {feed.name: {} for feed in feeds}
        self.unsettled = False

    def scan(self) -> int:
        """Log what is new and return how many events that made."""
        self.unsettled = False
        return sum(self._scan(feed) for feed in self._feeds)

    def markers(self, feed: FeedDeclaration) -> set[str]:
        """The files that hold promises, no rows."""
        pattern = feed.config.punctuation
        return {self._uri(path) for _, path, _ in self._listed(pattern)} if pattern else set()

    def promised(self, feed: FeedDeclaration) -> int | None:
        """Up to which time the markers that lie there promise that all has come."""
        found = []
        for uri in self.markers(feed):
            with suppress(Malformed, OSError):
                found.append(self._promise(feed, str(self._folder / uri), 0).upto_us)
        return max(found, default=None)

    def path_of(self, uri: str) -> Path:
        return self._folder / uri

    def look_again(self, feed: str, uri: str) -> None:
        """A file could not be loaded; it may be there again before anyone saw that it was gone."""
        self._seen.get(feed, {}).pop(str(self._folder / uri), None)

    def _listed(self, pattern: str) -> list[tuple[int, str, os.stat_result]]:
        """Files that match, oldest first."""
        found = []
        loops: dict[str, bool] = {}
        for path in glob.iglob(str(Path(glob.escape(str(self._folder)), pattern)), recursive=True):
            place, name = os.path.split(path)
            if _UNFINISHED.search(name):
                continue
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone, or a link that leads nowhere
            if not stat.S_ISREG(status.st_mode) and not (stat.S_ISDIR(status.st_mode) and _OUTPUT.search(name)):
                continue
            if "**" in pattern and loops.setdefault(place, _in_a_loop(place)):
                continue
            found.append((status.st_mtime_ns, path, status))
        return sorted(found, key=lambda entry: entry[:2])

    def _uri(self, path: str) -> str:
        try:
            return str(Path(path).relative_to(self._folder))
        except ValueError:
            return path

    def _scan(self, feed: FeedDeclaration) -> int:
        seen = self._seen[feed.name]
        settle_ns = feed.config.settle * 1000
        fresh: list[tuple[str, Seen]] = []
        listed = self._listed(feed.config.path)
        promises = self._listed(feed.config.punctuation) if feed.config.punctuation else []
        marked = {path for _, path, _ in promises}
        if promises:
            listed = sorted([*(e for e in listed if e[1] not in marked), *promises], key=lambda entry: entry[:2])
        wall_ns, now_ns = time.time_ns(), time.monotonic_ns()
        waited, waits = self._fresh[feed.name], {}
        for mtime_ns, path, status in listed:
            found = Seen(status.st_size, mtime_ns)
            if seen.get(path) == found:
                continue
            if wall_ns - mtime_ns < settle_ns:
                # Its time may be wrong, or ahead of our clock: then it counts for how long it is as it is.
                before, since_ns = waited.get(path, (found, now_ns))
                waits[path] = (found, since_ns if before == found else now_ns)
                if now_ns - waits[path][1] < settle_ns:
                    self.unsettled = True
                    continue
            fresh.append((path, found))
        self._fresh[feed.name] = waits
        # One that is gone is new when it comes again.
        self._seen[feed.name] = {path: seen[path] for _, path, _ in listed if path in seen}
        made = 0
        for start in range(0, len(fresh), _AT_ONCE):
            made += self._log(feed, fresh[start : start + _AT_ONCE], marked)
        return made

    def _log(self, feed: FeedDeclaration, fresh: list[tuple[str, Seen]], markers: set[str]) -> int:
        with self._store.read() as conn:
            rows = self._store.known_files(conn, feed.name, [self._uri(path) for path, _ in fresh])
        schema = self._schema_of(feed.name)
        looks: list[_Look] = []
        for path, found in fresh:
            uri = self._uri(path)
            row = rows.get(uri)
            if row is None or row.size_bytes != found.size or row.mtime_ns != found.mtime_ns:
                try:
                    looks.append(self._look(feed, schema, path, found, path in markers))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    # Not remembered as seen: it is tried again at the next look.
                    reason = f"cannot be read: {error.strerror or error}; it is tried again"
                    if isinstance(error, IsADirectoryError):
                        reason = f"is a folder, expected a file; for the files in it write {feed.config.path}/*"
                    looks += self._not_read(path, found, rows.get(uri), reason)
                    continue
            self._seen[feed.name][path] = found
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


def _in_a_loop(place: str) -> bool:
    """Whether a folder is reached through a link to a folder above it: then its files have shorter names, too."""
    folder = Path(place)
    return any(
        each.is_symlink() and each.parent.resolve().is_relative_to(each.resolve()) for each in (folder, *folder.parents)
    )
