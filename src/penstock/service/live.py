"""What happens, as it happens: one thread looks at the log while anybody watches, and tells all who watch what is different."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from time import monotonic
from typing import Any

from penstock.app import Warehouse
from penstock.engine.desk.front import Front
from penstock.service.page_data import now_picture

# How often the log is asked whether it has news, and how often the picture is made without any: tables pass their targets by themselves.
_LOOK_S = 0.1
_AGAIN_S = 1.0
# Pictures take at most this part of the time of this process: updates need it more.
_SHARE = 0.2
_BEAT_S = 5.0
_ARRIVALS = 30
_FEW = 400


class Live:
    def __init__(self, warehouse: Warehouse, front: Front, is_alive: Callable[[], bool]) -> None:
        self._warehouse = warehouse
        self._front = front
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._made = threading.Condition(self._lock)
        self._watchers: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None
        self._picture: dict[str, Any] = {}
        self._number = 0
        # Changes by number, as long as a slow watcher may need them.
        self._changes: dict[int, str] = {}
        self._seen = 0
        self._arrivals: list[dict[str, Any]] = []

    async def stream(self) -> AsyncIterator[str]:
        """First the whole picture, then what changes of it; a beat when nothing does."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._watchers.add(tell)
            if self._thread is None:
                self._picture = {}
                self._thread = threading.Thread(target=self._work, name="penstock-live", daemon=True)
                self._thread.start()
        told = -1
        try:
            while True:
                changed.clear()
                number, events = self._news(told)
                for event in events:
                    yield event
                told = number
                try:
                    async with asyncio.timeout(_BEAT_S):
                        await changed.wait()
                except TimeoutError:
                    yield _event("beat", {"at_us": self._warehouse.clock.now_us()})
        finally:
            with self._lock:
                self._watchers.discard(tell)

    def _news(self, told: int) -> tuple[int, Iterable[str]]:
        with self._lock:
            if not self._picture or told == self._number:
                return told, ()
            missing = range(told + 1, self._number + 1)
            if told >= 0 and all(number in self._changes for number in missing):
                return self._number, [self._changes[number] for number in missing]
            return self._number, [_event("picture", self._picture)]

    def _work(self) -> None:
        next_us = 0.0
        while True:
            with self._lock:
                if not self._watchers:
                    self._thread = None
                    return
            began = monotonic()
            try:
                last = self._last_number()
                if last != self._seen or began >= next_us or not self._picture:
                    self._take(last)
                    next_us = monotonic() + _AGAIN_S
            except Exception:  # the store may be away for a while; who watches sees that nothing comes
                logging.getLogger(__name__).warning("the picture of the warehouse could not be made", exc_info=True)
                next_us = monotonic() + _AGAIN_S
            took = monotonic() - began
            threading.Event().wait(max(_LOOK_S, took / _SHARE - took))

    def _last_number(self) -> int:
        with self._warehouse.store.read() as conn:
            return self._warehouse.store.last_number(conn)

    def _take(self, last: int) -> None:
        now_us = self._warehouse.clock.now_us()
        self._arrive(last)
        found = self._front.looking(lambda state: now_picture(state, now_us))
        found["arrivals"] = list(self._arrivals)
        found["running"] = self._is_alive()
        found["queries"] = self._front.status()
        clock = {"at_us": now_us, "speed": self._warehouse.clock.speed}
        with self._lock:
            before, self._picture, self._seen = self._picture, {**found, **clock}, last
            if before:
                change = _difference(before, found)
                if not change:
                    return
                self._number += 1
                self._changes[self._number] = _event("change", {**change, **clock})
                self._changes.pop(self._number - _FEW, None)
            else:
                self._number += 1
                self._changes.clear()
            watchers = list(self._watchers)
        for tell in watchers:
            tell()

    def _arrive(self, last: int) -> None:
        store = self._warehouse.store
        with store.read() as conn:
            since = self._seen if self._arrivals else max(0, last - 20 * _ARRIVALS)
            kinds = ("file-arrived", "file-rewritten", "file-quarantined")
            news = store.newest(conn, kinds, None, _ARRIVALS, since)
        rows = [
            {
                "number": number,
                "at_us": body["at_us"],
                "feed": body["feed"],
                "file": body["file"]["uri"],
                "bytes": body["file"]["size_bytes"],
                "kind": kind,
            }
            for number, kind, body in news
        ]
        known = {row["number"] for row in self._arrivals}
        self._arrivals = [*(row for row in rows if row["number"] not in known), *self._arrivals][:_ARRIVALS]


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Of the tables and feeds those that are different; of all else what is different as a whole."""
    change: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if old == value:
            continue
        if name in ("tables", "feeds") and isinstance(old, dict):
            change[name] = {key: one for key, one in value.items() if old.get(key) != one}
            if gone := [key for key in old if key not in value]:
                change[f"{name}_gone"] = gone
        else:
            change[name] = value
    return change


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
