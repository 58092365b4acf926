"""`penstock demo`: a network-operations warehouse that is fed, kept fresh and watched for a minute.

It is an ordinary project run by the ordinary runtime. Only the clock is another: an hour of the network passes in a
minute. The first load of its history is not part of that; the clock begins to race when it is done.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from penstock.app import Warehouse
from penstock.cli.netops import netops_project
from penstock.cli.netops.feeds import FEEDS, DemoFile, Generator, Network, deliver
from penstock.cli.netops.screen import DemoSummary, Frame, Screen, TableSummary, render_summary, screen_for
from penstock.cli.starter import copy_project
from penstock.control.state import State
from penstock.control.views.status import TableStatus, status
from penstock.declare.settings import write_settings
from penstock.engine.clock import WallClock
from penstock.engine.runtime import Runtime
from penstock.errors import PenstockError
from penstock.model.time import DAY_US, MINUTE_US, SECOND_US, format_duration

__all__ = ["DemoSummary", "TableSummary", "render_summary", "run_demo"]

FOLDER = Path("penstock-demo")
MARKER = ".penstock-demo"
SHORTEST_US = 20 * MINUTE_US
# The share of the demo after which its midnight comes.
_MIDNIGHT = 0.4
_PREPARING_US = 2 * MINUTE_US
# So much slower the feeds go on while somebody looks at the pages.
_CALMER = 6


class DemoClock(WallClock):
    """Real time until the demo begins, then as fast as it is told to be. What updates take counts at that speed from the
    first on, so that what is learned from the history holds afterwards."""

    def __init__(self, speed: float, origin_us: int) -> None:
        super().__init__(speed)
        self._begin_us = origin_us
        self._pace = (time.time_ns() // 1000, origin_us - _PREPARING_US, 1.0)

    def now_us(self) -> int:
        wall, origin, speed = self._pace
        return origin + int((time.time_ns() // 1000 - wall) * speed)

    def begin(self) -> None:
        # Time must not go back, should the preparation have taken longer than was thought.
        self._pace = (time.time_ns() // 1000, max(self._begin_us, self.now_us()), self.speed)

    def slow_down(self) -> None:
        """A pace for looking, when what is counted has ended."""
        self.speed = max(1.0, self.speed / _CALMER)
        self._pace = (time.time_ns() // 1000, self.now_us(), self.speed)


def run_demo(
    folder: Path | None = None,
    *,
    seconds: float = 60.0,
    speed: float = 60.0,
    console: Console | None = None,
    spark: SparkSession | None = None,
    network: Network | None = None,
    policy: str | None = None,
    pages: Callable[[Warehouse], AbstractContextManager[object]] | None = None,
    afterwards: Callable[[DemoSummary, Runtime], None] | None = None,
) -> DemoSummary:
    """Make the demo's project in a folder, deliver its feeds for so long, and follow them until nothing is left to do.

    Without a console nothing is shown. `network` replaces the feeds that are delivered by default, `policy` the default
    policy. `pages` are open while it runs; `afterwards` is done at the end, with all of it still there and feeds that go on.
    """
    began = time.monotonic()
    folder = folder or FOLDER
    network = network or default_network(seconds, speed)
    write_demo(folder)
    if policy is not None:
        write_settings(folder, "run", {"policy": policy})
    deliveries = network.deliveries()
    for delivery in network.history():
        deliver(folder, delivery)
    clock = DemoClock(speed, network.origin_us)
    with Warehouse(folder, spark=spark, clock=clock) as warehouse, ExitStack() as shown:
        screen = shown.enter_context(screen_for(console))
        with screen.working("Starting Spark"):
            _warm_up(warehouse.spark, folder)
        started = time.monotonic()
        with warehouse.running() as runtime, pages(warehouse) if pages else nullcontext():
            demo = _Demo(runtime, network, deliveries, clock, screen, folder)
            demo.load_history()
            loaded = time.monotonic()
            demo.live()
            ended = time.monotonic()
            summary = demo.summary((started - began, loaded - started, ended - loaded, ended - began))
            shown.close()
            if afterwards is not None:
                clock.slow_down()
                with demo.going_on():
                    afterwards(summary, runtime)
            return summary


def _warm_up(spark: SparkSession, folder: Path) -> None:
    """The first job of a session takes seconds. No table of the demo should be thought to be that slow."""
    numbers = spark.range(100).selectExpr("id % 7 AS key", "id").groupBy("key").sum("id").coalesce(1)
    scratch = folder / ".penstock" / "warm-up"
    numbers.write.mode("overwrite").parquet(str(scratch))
    spark.read.parquet(str(scratch)).join(numbers, "key").collect()
    shutil.rmtree(scratch)


def default_network(seconds: float, speed: float) -> Network:
    """Feeds for so many seconds, around the midnight before last: so that a day ends and none of it is in the future."""
    duration_us = int(seconds * speed) * SECOND_US
    if duration_us < SHORTEST_US:
        raise PenstockError(
            f"{seconds:g} seconds at {speed:g} times real time are {format_duration(duration_us)} of the network's time; "
            f"the demo needs at least {format_duration(SHORTEST_US)}: raise --seconds or --speed"
        )
    if duration_us > 2 * DAY_US:
        raise PenstockError(
            f"{seconds:g} seconds at {speed:g} times real time are {format_duration(duration_us)} of the network's time; "
            "the demo is made for at most 2d: lower --seconds or --speed"
        )
    midnight_us = time.time_ns() // 1000 // DAY_US * DAY_US - DAY_US
    return Network(midnight_us - int(duration_us * _MIDNIGHT) // MINUTE_US * MINUTE_US, duration_us)


def write_demo(folder: Path) -> None:
    """The project without any data. A folder that an earlier demo made is emptied, any other must be empty."""
    if folder.exists() and not folder.is_dir():
        raise PenstockError(f"{folder} is a file; name a new folder for the demo")
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise PenstockError(
                f"{folder} is not empty and was not made by the demo, so it is left as it is; "
                "name another folder: penstock demo FOLDER"
            )
        _clear(folder)
    copy_project(netops_project(), folder)
    for feed in FEEDS:
        (folder / "landing" / feed).mkdir(parents=True)
    (folder / MARKER).write_text("Made by `penstock demo`, which may replace what is in this folder.\n")


def _clear(folder: Path) -> None:
    state = folder / ".penstock"
    lock = state / "run.lock"
    if lock.exists():
        with lock.open("a+") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PenstockError(f"the demo in {folder} is still running; stop it, or name another folder") from None
    for name in ("landing", "warehouse", "tables"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in state.iterdir() if state.exists() else ():
        # A Spark session of this process may still use its scratch folder.
        if path.is_file():
            path.unlink()


class _Demo:
    """One run of the demo, from the history to the last update."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        deliveries: Sequence[DemoFile],
        clock: DemoClock,
        screen: Screen,
        folder: Path,
    ) -> None:
        self.runtime = runtime
        self.network = network
        self.clock = clock
        self.screen = screen
        self.folder = folder
        self.generator = Generator(folder, deliveries, clock, network.end_us)
        self.incidents = network.incidents()
        self.meters: dict[str, _Meter] = {}
        self.before: dict[str, TableStatus] = {}
        self.busy_before: dict[str, float] = {}

    @property
    def state(self) -> State:
        return self.runtime.controller.state

    def load_history(self) -> None:
        self.runtime.run(True, lambda: self._show("history"))
        self.before = {row.table: row for row in self._status()}
        self.busy_before = {name: table.counts.busy_s for name, table in self.state.tables.items()}
        self.meters = {name: _Meter() for name in self.state.tables}

    def live(self) -> None:
        """Follow the feeds while they deliver, then whatever they left to do."""
        self.clock.begin()
        self.generator.start()
        try:
            while not self.generator.finished.is_set():
                self.runtime.run(True, self._follow)
                self.generator.finished.wait(0.05)
                self._follow()
        finally:
            self.generator.stop()
        if self.generator.error is not None:
            raise self.generator.error
        self.runtime.run(True, lambda: self._show("settling"))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """The feeds deliver further stretches of the same length, one after the other."""
        over = threading.Event()

        def deliver_on() -> None:
            network = self.network
            while not over.is_set():
                network = Network(network.end_us, network.duration_us, network.seed + 1, network.scale)
                generator = Generator(self.folder, network.deliveries(), self.clock, network.end_us)
                generator.start()
                while not (over.wait(0.5) or generator.finished.is_set()):
                    pass
                generator.stop()

        thread = threading.Thread(target=deliver_on, name="penstock-demo-goes-on", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _follow(self) -> None:
        rows = self._status()
        now_us = self.clock.now_us()
        if now_us > self.network.end_us:
            self._show("settling", rows)
            return
        for row in rows:
            self.meters[row.table].sample(now_us, row)
        self._show("live", rows)

    def _status(self) -> list[TableStatus]:
        return status(self.state, self.clock.now_us())

    def _show(self, phase: str, rows: list[TableStatus] | None = None) -> None:
        if not self.screen.due():
            return
        now_us = self.clock.now_us()
        state = self.state
        self.screen.show(
            Frame(
                phase=phase,
                now_us=now_us,
                share=min(1.0, max(0.0, (now_us - self.network.origin_us) / self.network.duration_us)),
                rows=tuple(rows if rows is not None else self._status()),
                running=tuple(running.job.table for _, running in sorted(state.busy.items())),
                tracks=state.tracks,
                files=len(self.generator.delivered),
                happening=tuple(
                    incident.text for incident in self.incidents if incident.start_us <= now_us < incident.end_us
                )
                if phase == "live"
                else (),
            )
        )

    # Afterwards

    def summary(self, took_s: tuple[float, float, float, float]) -> DemoSummary:
        tables = tuple(self._table(row) for row in self._status())
        kinds = [delivery.kind for delivery in self.generator.delivered]
        starting_s, history_s, live_s, total_s = took_s
        state = self.state
        return DemoSummary(
            folder=str(self.folder),
            speed=self.clock.speed,
            tracks=state.tracks,
            policy=state.policy,
            starting_s=starting_s,
            history_s=history_s,
            live_s=live_s,
            total_s=total_s,
            begin_us=self.network.origin_us,
            end_us=self.network.end_us,
            files=len(kinds),
            updates=sum(table.updates for table in tables),
            requests=sum(table.requests for table in tables),
            merged=sum(max(0, table.requests - table.updates) for table in tables),
            folded=sum(table.folded for table in tables),
            failures=sum(table.failures for table in tables),
            busy_s=sum(table.busy_s for table in tables),
            late_files=kinds.count("late"),
            held_files=kinds.count("held"),
            repeated_files=kinds.count("again"),
            corrected_files=sum(state.rewritten.values()),
            quarantined_files=len(state.quarantine),
            quarantined_rows=sum(table.counts.quarantined_rows for table in state.tables.values()),
            tables=tables,
        )

    def _table(self, row: TableStatus) -> TableSummary:
        before, meter = self.before[row.table], self.meters[row.table]
        state = self.state.tables[row.table]
        flows = self.state.graph.has_time[row.table]
        return TableSummary(
            table=row.table,
            kind=row.kind,
            priority=row.priority,
            target_us=row.target_us,
            mean_staleness_us=meter.mean_us if flows else None,
            peak_staleness_us=meter.peak_us if flows and meter.samples else None,
            within_target=meter.within if row.target_us is not None else None,
            requests=row.updates + row.merged - before.updates - before.merged,
            updates=row.updates - before.updates,
            folded=row.folded - before.folded,
            failures=row.failures - before.failures,
            busy_s=(state.counts.busy_s - self.busy_before[row.table]) / self.clock.speed,
            rows=row.rows,
            error=row.error if row.doing == "failed" else None,
        )


class _Meter:
    """Staleness of one table while the feeds deliver, averaged over time."""

    def __init__(self) -> None:
        self.samples = 0
        self.peak_us = 0
        self._area = 0.0
        self._width = 0
        self._met = 0
        self._last: tuple[int, int] | None = None

    def sample(self, now_us: int, row: TableStatus) -> None:
        if row.staleness_us is None:
            return
        staleness_us = row.staleness_us
        if self._last is not None:
            width = now_us - self._last[0]
            # Between two looks it grew with time; that it dropped is seen a moment after it did.
            self._area += width * (self._last[1] + staleness_us) / 2
            self._width += width
            self._met += width if row.met else 0
        self.samples += 1
        self.peak_us = max(self.peak_us, staleness_us)
        self._last = (now_us, staleness_us)

    @property
    def mean_us(self) -> int | None:
        return round(self._area / self._width) if self._width else None

    @property
    def within(self) -> float | None:
        return self._met / self._width if self._width else None
