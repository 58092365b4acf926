"""Delivers the files of the demo's feeds, each when its time has come by the demo's clock."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.netops.feeds import DemoFile
from penstock.engine.clock import Clock


class Generator:
    """Writes files in a thread of its own until all are written. Whatever the machine's speed, all of them are."""

    def __init__(self, folder: Path, deliveries: Sequence[DemoFile], clock: Clock, end_us: int) -> None:
        self._folder = folder
        self._deliveries = list(deliveries)
        self._clock = clock
        self._end_us = end_us
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-demo-feeds", daemon=True)
        self.finished = threading.Event()
        self.delivered: list[DemoFile] = []
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            for delivery in self._deliveries:
                if self._wait_until(min(delivery.due_us, self._end_us)):
                    return
                deliver(self._folder, delivery)
                self.delivered.append(delivery)
            self._wait_until(self._end_us)
        except BaseException as error:
            self.error = error
        finally:
            self.finished.set()

    def _wait_until(self, instant_us: int) -> bool:
        """Whether we were stopped while waiting."""
        return self._stopped.wait(max(0.0, self._clock.wall_s(instant_us - self._clock.now_us())))


def deliver(folder: Path, delivery: DemoFile) -> None:
    """Whole or not at all: readers never see half a file."""
    path = folder / delivery.path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_bytes(delivery.content)
    part.replace(path)
