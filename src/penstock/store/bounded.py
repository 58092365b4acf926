"""Connections to PostgreSQL that do not wait for ever: a server that is paused, or behind a network that swallows everything, is one that is away.

The server's own limits do not help there, and TCP has none while the other machine still acknowledges. So who waits is put down, and one thread cuts
the connections that waited too long. What they did ends with an error, as after any lost connection.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from time import monotonic
from typing import Any

from psycopg import Connection, OperationalError

# No statement of ours takes so long.
PATIENCE_S = 30.0
# What libpq and the system do by themselves: a server that is gone is noticed within 15 s.
SETTINGS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

_waiting: dict[int, tuple[float, Bounded]] = {}
_watching = threading.Lock()
_watch: threading.Thread | None = None


class Bounded(Connection[Any]):
    def wait(self, *args: Any, **kwargs: Any) -> Any:
        key = threading.get_ident()
        _waiting[key] = (monotonic() + PATIENCE_S, self)
        if _watch is None:
            _begin()
        try:
            return super().wait(*args, **kwargs)
        except OperationalError as error:
            if key not in _waiting:
                raise OperationalError(f"the server did not answer for {PATIENCE_S:g} s") from error
            raise
        finally:
            _waiting.pop(key, None)


def _begin() -> None:
    global _watch
    with _watching:
        if _watch is None:
            _watch = threading.Thread(target=_cut, name="penstock-store-watch", daemon=True)
            _watch.start()


def _cut() -> None:
    pause = threading.Event()
    while True:
        pause.wait(min(1.0, PATIENCE_S / 4))
        now = monotonic()
        for key, (until, connection) in list(_waiting.items()):
            # It may have ended just now: then its next statement has another entry, which is not this one.
            if now >= until and _waiting.get(key) == (until, connection) and _waiting.pop(key, None) is not None:
                with suppress(OSError, OperationalError), socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)
