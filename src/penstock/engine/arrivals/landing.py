"""Where one feed delivers: its files and its markers, and which of them can be taken now."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.declare.api import FeedDeclaration
from penstock.engine.arrivals.folders import Seen, Tree, Watches
from penstock.engine.arrivals.patterns import Pattern


class Landing:
    """Whoever looks holds the `lock`; a look at a disk that does not answer then keeps nobody from the other feeds."""

    def __init__(self, feed: FeedDeclaration, folder: Path, watches: Watches | None = None) -> None:
        self.feed = feed
        self.lock = threading.Lock()
        # Whether there are files that changed a moment ago.
        self.unsettled = False
        # When the last look at everything began; and when the last one did of which all that was found is on record.
        self._looked_at = float("-inf")
        self.whole_at = float("-inf")
        self._files = Tree(Pattern(folder, feed.config.path), watches)
        self._markers = Tree(Pattern(folder, feed.config.punctuation), watches) if feed.config.punctuation else None
        # Markers first: what came before them is then found, too.
        self._trees = [tree for tree in (self._markers, self._files) if tree is not None]
        # Files that changed a moment ago, and since when they are as they are.
        self._waited: dict[str, tuple[Seen, int]] = {}
        self._sweep: Iterator[None] | None = None
        self._swept_from = 0.0

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
        return self._markers is not None and self._markers.pattern.matches(path)

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
            tree.again.append(path)
