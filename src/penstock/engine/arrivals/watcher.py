"""Keeps looking for delivered files beside everything else, at little cost.

What Linux tells is looked at within a moment. Everything is looked at again all the time, as far as a small share of one core
goes: a few thousand files are looked at whole each time, a million once in some minutes. A feed whose disk does not answer keeps its
thread; another one goes on with the other feeds. A feed that says how often it is to be looked at is looked at then, whole, and not between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, thread_time

from penstock.engine.arrivals.intake import Arrivals, Landing
from penstock.engine.faults import fault_of

# Of one core, for looking again at what should be known; and for folders of which not all is told.
SHARE = 0.01
SHARE_UNTOLD = 0.05
# At most saved up for looking again, in seconds.
_MOST_SAVED = 0.05
# How often to ask whether a folder still is the one it was, and to list those of which not all is told.
_FOLDERS_S = 0.9
# Between two looks while the store does not answer.
LONGEST_PAUSE_S = 5.0
# So long nobody waits for one feed.
PATIENCE_S = 1.0


class Lookout:
    """Logs what it finds. `wake` is called when it found something, or has looked at everything when asked to."""

    def __init__(self, arrivals: Arrivals, every_s: float, wake: Callable[[], None]) -> None:
        self._arrivals = arrivals
        self._every_s = every_s
        self._wake = wake
        self._landings = list(arrivals.landings.values())
        self._in_turn = deque(self._landings)
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._found = 0
        self._broken: list[BaseException] = []
        # The thread that goes on; others end with the feed they are at.
        self._number = 0
        self._thread: threading.Thread | None = None
        # Since when it looks at one feed.
        self._at_since: float | None = None
        self._asked_at: float | None = None
        self._saved = 0.0
        self._saved_at = self._folders_at = monotonic()

    def start(self) -> None:
        self._arrivals.watches.open()
        self._stop.clear()
        self._go_on()

    def stop(self) -> None:
        """End after the feed that is looked at; a disk that does not answer is not waited for."""
        self._stop.set()
        self._hurry.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def found(self) -> int:
        """How many events were logged since this was last asked; raises what went wrong."""
        if self._broken:
            raise self._broken[0]
        since = self._at_since
        if since is not None and monotonic() - since > PATIENCE_S:
            self._go_on()
        with self._lock:
            found, self._found = self._found, 0
        if found:
            self._asked_at = None
        return found

    def is_done(self, idle: bool) -> bool:
        """Whether a look at everything, begun when all else was idle already, found nothing. Asked until it is so."""
        if not idle:
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = monotonic()
            self._hurry.set()
        elif all(landing.whole_at >= self._asked_at for landing in self._landings):
            unsettled, self._asked_at = self._arrivals.unsettled, None
            with self._lock:
                return not unsettled and not self._found
        return False

    def _go_on(self) -> None:
        self._number += 1
        self._at_since = None
        self._thread = threading.Thread(target=self._work, args=(self._number,), name="penstock-lookout", daemon=True)
        self._thread.start()

    def _work(self, number: int) -> None:
        try:
            pause_s = self._every_s
            while not self._stop.is_set() and number == self._number:
                try:
                    self._round(number)
                    pause_s = self._every_s
                except Exception as error:
                    # The loop waits for the store, too, and tells.
                    fault = fault_of(error)
                    if fault is None or fault.part != "store":
                        raise
                    pause_s = min(LONGEST_PAUSE_S, 2 * pause_s + 0.1)
                self._hurry.wait(pause_s)
                self._hurry.clear()
        except BaseException as error:
            self._broken.append(error)
            self._wake()

    def _round(self, number: int) -> None:
        self._arrivals.watches.hear()
        now = monotonic()
        asked_at = self._asked_at
        folders = now - self._folders_at >= _FOLDERS_S
        if folders:
            self._folders_at = now
        for landing in self._landings:
            if asked_at is not None and landing.whole_at < asked_at:
                done = self._at(number, landing, landing.look)
            elif not landing.due(now):
                continue
            elif landing.seldom:
                done = self._at(number, landing, landing.look)
            elif landing.has_news or folders:
                done = self._at(number, landing, landing.glance)
            else:
                continue
            if not done:
                return
        share = SHARE if all(landing.all_told or landing.seldom for landing in self._landings) else SHARE_UNTOLD
        self._saved = min(_MOST_SAVED, self._saved + share * (now - self._saved_at))
        self._saved_at = now
        if folders:
            for landing in self._landings:
                if (
                    not landing.seldom
                    and not landing.all_told
                    and self._saved > 0
                    and not self._at(number, landing, landing.list_changed, saved=True)
                ):
                    return
        for _ in self._landings:
            if self._saved <= 0:
                break
            landing = self._in_turn[0]
            if landing.seldom or landing.lock.locked():
                self._in_turn.rotate(-1)
            elif not self._at(number, landing, partial(self._swept, landing), saved=True):
                return
        if asked_at is not None:
            self._wake()

    def _swept(self, landing: Landing) -> None:
        if landing.sweep(self._saved):
            self._in_turn.rotate(-1)

    def _at(self, number: int, landing: Landing, look: Callable[[], None], saved: bool = False) -> bool:
        """Look at one feed and log what is found, unless another thread is still at it; gives whether this thread is to go on."""
        if self._stop.is_set():
            return False
        if not landing.lock.acquire(blocking=False):
            return True
        try:
            self._at_since, began = monotonic(), thread_time()
            look()
            made = self._arrivals.log(landing)
        finally:
            landing.lock.release()
        if number == self._number:
            self._at_since = None
            if saved:
                self._saved -= thread_time() - began
        if made:
            with self._lock:
                self._found += made
            self._wake()
        return number == self._number
