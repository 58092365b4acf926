"""The state of the warehouse as a reader of the log knows it: folded as far as it was read, and at most a moment old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from sqlalchemy import Connection

from penstock.control.state import State
from penstock.engine.state_reader import restored_state
from penstock.store.store import Store

T = TypeVar("T")

# A decision may be based on a state that is so old.
_AGE_S = 0.02


class KnownState:
    """Hold `lock` while using what it gives: another thread may bring it up to date."""

    def __init__(self, store: Store) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._state: State | None = None
        self._looked_at = 0.0

    def now(self, max_age_s: float = _AGE_S) -> State:
        with self.lock:
            if self._state is None or monotonic() - self._looked_at > max_age_s:
                self._state = restored_state(self._store, self._state)
                self._looked_at = monotonic()
            return self._state

    def at(self, conn: Connection) -> State:
        """As of a transaction."""
        with self.lock:
            if self._state is None:
                self._state = restored_state(self._store)
            self._state.fold(self._store.events(conn, self._state.applied))
            self._looked_at = monotonic()
            return self._state

    def looking(self, look: Callable[[State], T]) -> T:
        """What someone finds in it, while nobody changes it."""
        with self.lock:
            return look(self.now())
