"""Connections: how many, how many of one client, and for how long one may say nothing or read nothing.

What a request may be is looked at by the API. This is about what comes before: whoever opens connections and says half a request, or does not read its
answer, takes the place of nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from time import monotonic
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.service.limits import Limits

_LOOK_S = 1.0
# So long a request may take to arrive before its connection goes to somebody else.
_YOUNG_S = 1.0
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n"
    b'content-length: 114\r\n\r\n{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many connections; try again later"}'
)


class Connections:
    """All that are open. Used by the loop of the server only."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # In the order in which they came.
        self._open: dict[Connection, None] = {}
        self._of: Counter[str] = Counter()

    def protocol(self, *args: Any, **more: Any) -> Connection:
        """What the server makes for each connection."""
        return Connection(self, *args, **more)

    def enter(self, one: Connection, client: str) -> bool:
        limits = self.limits
        if self._of[client] >= limits.connections_of_client and not self._room(client):
            return False
        if len(self._open) >= limits.connections and not self._room(None):
            return False
        self._open[one] = None
        self._of[client] += 1
        return True

    def leave(self, one: Connection, client: str) -> None:
        if one in self._open:
            del self._open[one]
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]

    def _room(self, client: str | None) -> bool:
        """Of those that have said no whole request the oldest goes."""
        now = monotonic()
        for one in self._open:
            if one.unfinished_s(now) > _YOUNG_S and client in (None, one.peer):
                one.drop()
                return True
        return False


class Connection(H11Protocol):
    """One connection, watched while it is open."""

    def __init__(self, all_of_them: Connections, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._all = all_of_them
        self.peer = ""
        self._quiet_since = monotonic()
        self._unread = (0, monotonic())
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        if not self._all.enter(self, self.peer):
            transport.write(_FULL)
            transport.close()
            return
        self._watch = self.loop.call_later(_LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._quiet_since = monotonic()
        super().on_response_complete()

    def unfinished_s(self, now: float) -> float:
        """For how long there has been no whole request."""
        cycle = self.cycle
        working = cycle is not None and not cycle.response_complete and not cycle.more_body
        return 0.0 if working else now - self._quiet_since

    def drop(self) -> None:
        self._ended()
        self.transport.abort()

    def _ended(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._all.leave(self, self.peer)

    def _look(self) -> None:
        now = monotonic()
        left = self.transport.get_write_buffer_size()
        if not left or left != self._unread[0]:
            self._unread = left, now
        limits = self._all.limits
        if self.unfinished_s(now) > limits.quiet_s or now - self._unread[1] > limits.unread_s:
            self.drop()
        else:
            self._watch = self.loop.call_later(_LOOK_S, self._look)


class Sparse(logging.Filter):
    """Of messages that are alike a few a minute: who sends a million bad requests does not fill the disk."""

    def __init__(self, most: int = 10, every_s: float = 60.0) -> None:
        super().__init__()
        self._most = most
        self._every_s = every_s
        self._seen: Counter[str] = Counter()
        self._since = monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        if monotonic() - self._since > self._every_s:
            self._seen.clear()
            self._since = monotonic()
        kind = f"{record.name} {record.msg}"[:200]
        self._seen[kind] += 1
        if self._seen[kind] == self._most:
            record.msg, record.args = f"{record.getMessage()} (more of these are left out for a minute)", ()
        return self._seen[kind] <= self._most
