"""Whether the store, the disk and Spark answer now. Each is asked by a thread of its own while anybody wants to know: one that hangs keeps nobody else
waiting, and shows by that."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from penstock.app import Warehouse
from penstock.engine.faults import check_storage, fault_of
from penstock.engine.upkeep.identity import FILE_NAME
from penstock.errors import PenstockError

PROBE_EVERY_S = 0.25
# Who has not answered after so long does not answer.
PATIENCE_S = 0.7
# Nobody is asked any more when nobody wants to know for so long.
_WANTED_S = 120.0

# Gives what is wrong; empty if nothing is.
Probe = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Unavailable:
    part: str
    reason: str
    since_us: int


class _Part:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.thread: threading.Thread | None = None
        self.begun = monotonic()
        self.known = False
        self.reason = ""
        self.since_us: int | None = None

    def found(self) -> str:
        """What is wrong with it now."""
        late = monotonic() - self.begun > PATIENCE_S
        return "it does not answer" if late else self.reason


class Health:
    def __init__(self, probes: Mapping[str, Probe], now_us: Callable[[], int]) -> None:
        self._parts = {name: _Part(probe) for name, probe in probes.items()}
        self._now_us = now_us
        self._lock = threading.Lock()
        self._wanted_at = float("-inf")

    async def look(self) -> list[Unavailable]:
        """What does not answer; within a second, whatever hangs."""
        with self._lock:
            self._wanted_at = monotonic()
            for name, part in self._parts.items():
                if part.thread is None or not part.thread.is_alive():
                    part.known, part.begun = False, monotonic()
                    part.thread = threading.Thread(
                        target=self._ask, args=(part,), name=f"penstock-health-{name}", daemon=True
                    )
                    part.thread.start()
        while any(not part.known and not part.found() for part in self._parts.values()):
            await asyncio.sleep(0.02)
        return self.unavailable()

    def unavailable(self) -> list[Unavailable]:
        """The same, as it was found last."""
        found = []
        with self._lock:
            for name, part in self._parts.items():
                reason = part.found()
                if not reason:
                    part.since_us = None
                    continue
                if part.since_us is None:
                    part.since_us = self._now_us()
                found.append(Unavailable(name, reason, part.since_us))
        return found

    def _ask(self, part: _Part) -> None:
        pause = threading.Event()
        while monotonic() - self._wanted_at < _WANTED_S:
            part.begun = monotonic()
            try:
                reason = part.probe()
            except Exception as error:
                fault = fault_of(error)
                reason = fault.reason if fault is not None else str(error) or type(error).__name__
            with self._lock:
                part.reason, part.known, part.begun = reason, True, float("inf")
            pause.wait(PROBE_EVERY_S)


def probes_of(warehouse: Warehouse, spark: Probe) -> dict[str, Probe]:
    def store() -> str:
        with warehouse.store.read() as conn:
            conn.exec_driver_sql("SELECT 1")
        return ""

    def storage() -> str:
        path = warehouse.catalogue.data_path
        try:
            check_storage(path, FILE_NAME)
        except PenstockError as error:
            return str(error)
        if "://" not in path and os.statvfs(path).f_bavail == 0:
            return f"no space left on the disk of {path}"
        return ""

    return {"store": store, "storage": storage, "spark": spark}
