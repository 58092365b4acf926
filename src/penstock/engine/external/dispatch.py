"""How outside jobs learn of work orders: a command is run, or an address is called, until the order is closed. Who polls asks
`penstock orders`.

Orders outlive the process that issued them, and a process tells all that are open when it starts. So a job may be told twice; what counts
is the first report.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from penstock.control.orders import WorkOrder
from penstock.declare.warehouse import Definitions
from penstock.model.grain import zone_of
from penstock.model.partitions import EVERYTHING, Interval
from penstock.model.time import BEGIN_US, END_US, moment
from penstock.store.store import Store

_TIMEOUT_S = 10.0
_LONGEST_PAUSE_S = 60.0
_LAST_WORDS = 500


def span_text(interval: Interval, zone: tzinfo) -> str:
    """An interval as people write it, and as `penstock publish` reads it."""
    low, high = interval
    if low <= BEGIN_US or high >= END_US:
        return "all"
    first, last, end = moment(low, zone), moment(high - 1, zone), moment(high, zone)
    midnight = (0, 0, 0, 0)
    if all((at.hour, at.minute, at.second, at.microsecond) == midnight for at in (first, end)):
        texts = [f"{at:%Y-%m-%d}" for at in (first, last)]
    else:
        texts = [f"{at:%Y-%m-%dT%H:%M}" for at in (first, last)]
    return texts[0] if texts[0] == texts[1] else "..".join(texts)


def as_plain(order: WorkOrder, zone: tzinfo) -> dict[str, Any]:
    """An order for machines."""
    plain = asdict(order)
    plain["inputs"] = dict(order.inputs)
    plain["range"] = ",".join(span_text(each, zone) for each in order.partitions)
    plain["partitions"] = (
        [] if order.partitions == EVERYTHING.intervals else [[_iso(low), _iso(high)] for low, high in order.partitions]
    )
    for name in ("issued", "until", "upto"):
        value = plain.pop(f"{name}_us")
        plain[name] = None if value is None else _iso(value)
    return plain


def _iso(at_us: int) -> str:
    return moment(min(max(at_us, BEGIN_US), END_US), UTC).isoformat().replace("+00:00", "Z")


@dataclass
class _Told:
    """One order that is being told."""

    closed: threading.Event
    thread: threading.Thread = field(default_factory=threading.Thread)
    process: subprocess.Popen[bytes] | None = None


class OrderDispatcher:
    """Tells outside jobs of open orders, each on a thread of its own."""

    def __init__(
        self, warehouse: Definitions, store: Store, give_back: Callable[[str, str], None], wake: Callable[[], None]
    ) -> None:
        self.warehouse, self.store = warehouse, store
        # Called with an order and why its command failed.
        self._give_back = give_back
        self._wake = wake
        self._told: dict[str, _Told] = {}

    @property
    def busy(self) -> bool:
        """Whether a command of ours still runs."""
        return any(told.process is not None and told.thread.is_alive() for told in self._told.values())

    def keep_up(self, orders: list[WorkOrder]) -> None:
        """Tell what is not told, and end what is closed."""
        known = {order.order: order for order in orders}
        for name in self._told.keys() - known.keys():
            self._close(name)
        for name, order in known.items():
            config = (
                self.warehouse.definitions[order.table].declaration.config
                if order.table in self.warehouse.definitions
                else None
            )
            if name in self._told or config is None or not (config.command or config.webhook):
                continue
            closed = threading.Event()
            body = json.dumps(as_plain(order, zone_of(self.warehouse.zone))).encode()
            told = self._told[name] = _Told(closed)
            if config.command is not None:
                told.process = self._started(order, config.command)
                told.thread = threading.Thread(target=self._run, args=(order, told, body, config.command))
            else:
                told.thread = threading.Thread(target=self._call, args=(order, body, config.webhook, closed))
            told.thread.daemon = True
            told.thread.start()

    def stop(self) -> None:
        for name in list(self._told):
            self._close(name)

    def _close(self, name: str) -> None:
        told = self._told.pop(name)
        told.closed.set()
        if told.process is not None and told.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(told.process.pid, signal.SIGTERM)
        told.thread.join(timeout=5)

    # A command

    def _log(self, order: WorkOrder) -> Path:
        folder = self.warehouse.declarations.state_folder / "orders"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{order.table}.log"

    def _started(self, order: WorkOrder, command: str) -> subprocess.Popen[bytes]:
        """The command in a shell, in the folder of the project; what it prints is kept until the next one of its table."""
        with self._log(order).open("wb") as log:
            return subprocess.Popen(
                command,
                shell=True,
                cwd=self.warehouse.declarations.folder,
                env={**os.environ, **_environment(order, self.warehouse)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _run(self, order: WorkOrder, told: _Told, body: bytes, command: str) -> None:
        assert told.process is not None
        with suppress(BrokenPipeError):
            told.process.communicate(body)
        if told.process.returncode and not told.closed.is_set():
            said = self._log(order).read_bytes()[-_LAST_WORDS:].decode(errors="replace").strip()
            self._give_back(
                order.order, f"`{command}` ended with {told.process.returncode}: {said or 'it printed nothing'}"
            )
        self._wake()

    # An address

    def _call(self, order: WorkOrder, body: bytes, url: str, closed: threading.Event) -> None:
        """Until somebody takes it, or it is closed."""
        pause_s = 1.0
        while True:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                    self._note(order, "")
                    return
            except (OSError, urllib.error.URLError) as error:
                self._note(order, f"{url} could not be told: {getattr(error, 'reason', None) or error}")
            if closed.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _note(self, order: WorkOrder, problem: str) -> None:
        with self.store.write() as conn:
            if (self.store.fact(conn, f"telling {order.table}") or "") != problem:
                self.store.set_fact(conn, f"telling {order.table}", problem)


def _environment(order: WorkOrder, warehouse: Definitions) -> Mapping[str, str]:
    zone = zone_of(warehouse.zone)
    return {
        "PENSTOCK_PROJECT": str(warehouse.declarations.folder),
        "PENSTOCK_ORDER": order.order,
        "PENSTOCK_TABLE": order.table,
        "PENSTOCK_RANGE": ",".join(span_text(each, zone) for each in order.partitions),
        "PENSTOCK_VERSION": str(order.version),
        "PENSTOCK_SNAPSHOT": str(order.snapshot),
    }
