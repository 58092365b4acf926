"""For tests that wait for threads and other processes. However busy the machine is, it is not the clock that decides: what is waited for comes, or
something hangs."""

from __future__ import annotations

import time
from collections.abc import Callable

# Nothing that works takes so long.
LONG_S = 3000.0
# For contracts of queries that are to be in time: the longest that there is.
IN_TIME = "10m"


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
