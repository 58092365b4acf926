"""The demo warehouse as a stage for policies: prepared once, then put back as it was for every run.

All runs of a stage begin at the same moment of the demo's clock, with the same tables, the same learned costs and the same
files to come, in one warm Spark session. Only the policy differs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.cli.demo import write_demo
from penstock.cli.netops.feeds import Generator, Network, deliver
from penstock.control.events import Event
from penstock.control.state import State
from penstock.declare.settings import write_settings
from penstock.engine.clock import WallClock
from penstock.engine.spark.work import SparkWork
from penstock.engine.updates.executor import Computed
from penstock.model.time import SECOND_US
from penstock.requests.job import Job
from penstock.sim.timeline import timeline
from penstock.sim.whatif.replay import Changes
from penstock.store.store import Store


@dataclass(frozen=True)
class Run:
    """One run of a stage: its log, and from when to when it is looked at."""

    events: tuple[Event, ...]
    begin_us: int
    end_us: int
    state: State

    @property
    def weighted_s(self) -> float:
        return weighted_s(self.events, self.begin_us, self.end_us)

    @property
    def updates(self) -> int:
        return sum(event.kind == "update-finished" and event.at_us >= self.begin_us for event in self.events)

    @property
    def in_target(self) -> dict[str, float]:
        """By table with a target: the part of the time in which it is met."""
        found = timeline(self.events)
        return {
            name: _within(found.edges.get(name, ()), target, self.begin_us, self.end_us)
            for name, target in found.targets_us.items()
        }

    def worst_s(self, table: str) -> float:
        """The largest staleness of a table."""
        moves = timeline(self.events).edges.get(table, ())
        return max(end - edge for _, end, edge in _stretches(moves, self.begin_us, self.end_us)) / SECOND_US

    @property
    def busy(self) -> float:
        """The part of the time in which a track works."""
        found = timeline(self.events, self.begin_us)
        spans = [(max(bar.start_us, self.begin_us), min(bar.end_us or self.end_us, self.end_us)) for bar in found.bars]
        return sum(max(0, end - start) for start, end in spans) / (self.end_us - self.begin_us) / self.state.tracks


def weighted_s(events: tuple[Event, ...], begin_us: int, end_us: int) -> float:
    """Mean staleness of all tables, summed by priority. A table that is not there yet counts as complete up to the beginning."""
    found = timeline(events)
    total = 0.0
    for name, priority in found.priorities.items():
        area = 0.0
        for start, end, edge in _stretches(found.edges.get(name, ()), begin_us, end_us):
            first, last = max(0, start - edge), max(0, end - edge)
            area += (first + last) / 2 * (end - start)
        total += priority * area / (end_us - begin_us)
    return total / SECOND_US


def _stretches(moves: tuple[tuple[int, int], ...], begin_us: int, end_us: int) -> Iterator[tuple[int, int, int]]:
    """From when to when a table was complete up to where."""
    at, edge = begin_us, begin_us
    for moved, to in moves:
        if begin_us < moved < end_us:
            yield at, moved, edge
            at = moved
        if moved < end_us:
            edge = to
    yield at, end_us, edge


def _within(moves: tuple[tuple[int, int], ...], target_us: int, begin_us: int, end_us: int) -> float:
    met = sum(max(0, min(end, edge + target_us) - start) for start, end, edge in _stretches(moves, begin_us, end_us))
    return met / (end_us - begin_us)


@dataclass
class Stage:
    """The demo's project in a folder, its feeds, and how fast its clock goes."""

    spark: SparkSession
    folder: Path
    network: Network
    speed: float
    warm_s: float
    # Lines of penstock.toml, and what stands there instead.
    instead: Mapping[str, str] = field(default_factory=dict)
    # Slowdowns, from the beginning of the network's time.
    changes: Changes = field(default_factory=Changes)

    def __post_init__(self) -> None:
        self.project = self.folder / "demo"
        self.kept = self.folder / "prepared"
        self.begin_us = self.network.origin_us

    @property
    def span(self) -> tuple[int, int]:
        """From when to when runs are looked at."""
        return self.begin_us, self.network.end_us

    def prepare(self, policy: str) -> None:
        """Load the history and follow the feeds for a while, until the costs are known."""
        write_demo(self.project)
        declared = self.project / "penstock.toml"
        text = declared.read_text()
        for line, other in self.instead.items():
            text = text.replace(line, other)
        declared.write_text(text)
        write_settings(self.project, "run", {"policy": policy})
        for delivery in self.network.history():
            deliver(self.project, delivery)
        self.begin_us = self.network.origin_us + int(self.warm_s * self.speed * SECOND_US)
        self._follow(self.network.origin_us, self.begin_us, history=True)
        shutil.copytree(self.project, self.kept, ignore=shutil.ignore_patterns("run.lock", "spark*"))

    def run(self, policy: str) -> Run:
        shutil.rmtree(self.project)
        shutil.copytree(self.kept, self.project)
        write_settings(self.project, "run", {"policy": policy})
        self._follow(self.begin_us, self.network.end_us)
        events, state = self.log()
        return Run(events, self.begin_us, self.network.end_us, state)

    def log(self) -> tuple[tuple[Event, ...], State]:
        """What the project's store has."""
        store, state = Store(f"sqlite:///{self.project}/.penstock/penstock.db"), State()
        with store.read() as conn:
            numbered = list(store.events(conn))
        store.close()
        for number, event in numbered:
            state.apply(event, number)
        return tuple(event for _, event in numbered), state

    def _follow(self, begin_us: int, end_us: int, *, history: bool = False) -> None:
        """Deliver what comes between two moments of the demo's clock, and keep the tables fresh."""
        clock = WallClock(self.speed, begin_us)
        coming = [each for each in self.network.deliveries() if begin_us < each.due_us <= end_us]
        with (
            Warehouse(self.project, spark=self.spark, clock=clock) as warehouse,
            warehouse.running() as runtime,
            slowed(lambda: self.changes.slowness(clock.now_us() - self.network.origin_us)),
        ):
            if history:
                runtime.run(until_idle=True)
            generator = Generator(self.project, coming, clock, end_us)
            generator.start()
            try:
                runtime.run(on_round=lambda: runtime.stop() if clock.now_us() >= end_us else None)
            finally:
                generator.stop()
            if generator.error is not None:
                raise generator.error


@contextmanager
def slowed(slowness: Callable[[], float]) -> Iterator[None]:
    """Updates take so many times as long as when they start, as on a machine that others use too."""
    plain: Callable[[SparkWork, Job, str], Computed] = SparkWork.run

    def slow(self: SparkWork, job: Job, folder: str) -> Computed:
        start, factor = time.monotonic(), slowness()
        found = plain(self, job, folder)
        time.sleep((factor - 1) * (time.monotonic() - start))
        return found

    SparkWork.run = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        SparkWork.run = plain  # type: ignore[method-assign]
