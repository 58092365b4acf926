"""Now and then the log is told what was read, so that updates can follow the demand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from time import monotonic

from penstock.control.events import DemandSeen
from penstock.engine.clock import Clock
from penstock.store.store import Store

EVERY_S = 10.0
_FADE_S, _FADED_S = 60.0, 3600.0


class Telling:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._reads: Counter[str] = Counter()
        self._told_at = monotonic()
        self._read_at = monotonic() - _FADED_S

    def read(self, tables: Iterable[str]) -> None:
        """A query asked for these."""
        with self._lock:
            self._reads.update(list(tables))

    def tell(self, force: bool = False) -> None:
        now = monotonic()
        if self._reads:
            self._read_at = now
        # That nothing was read any more is told too, for a while: so that what is known of the demand fades.
        every = EVERY_S if self._reads else _FADE_S
        if now - self._told_at < every and not (force and self._reads):
            return
        if not self._reads and now - self._read_at > _FADED_S:
            return
        self._told_at = now
        with self._lock:
            reads, self._reads = self._reads, Counter()
        with self._store.write() as conn:
            self._store.append(conn, [DemandSeen(self._clock.now_us(), tuple(sorted(reads.items())))])
