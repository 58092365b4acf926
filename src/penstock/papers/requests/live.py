"""Changes on their way through the controller that users run, on a virtual clock.

Files and backfills come at given times, updates take as long as a distribution says, and tables have only settings that a
project can declare. What comes out is how often each partition was made, and how late the last table was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.control.events import (
    BackfillRequested,
    FileArrived,
    RunStarted,
    StartUpdate,
    UpdateFinished,
    WarehouseDeclared,
)
from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import END_US, SECOND_US
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.needs import changed_by
from penstock.sim.driver import ARRIVAL, END, Driver
from penstock.sim.outcome import Row

Parameters = Mapping[str, Any]
RunTime = Callable[[str, Random], float]

_BEGIN_US = 10**15  # later than all partitions: what comes is late, and nothing is ahead of the clock


@dataclass(frozen=True)
class Arrival:
    """A file for a table that is loaded, or a backfill of any table."""

    at_s: float
    table: str
    partitions: PartitionSet = EVERYTHING
    file: bool = False


@dataclass
class DoneWork:
    """What was done. Updates count partitions."""

    updates: Counter[str] = field(default_factory=Counter)
    ended_s: float = 0.0
    # The longest time from the arrival of a change until a table had it that is last in its way.
    most_late_s: float = 0.0
    # How long updates ran, and of each table for how long it lacked what had come, summed over all changes.
    run_s: float = 0.0
    late_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def total(self) -> int:
        return self.updates.total()


def whole(reads: Mapping[str, Sequence[str]]) -> list[Table]:
    """Tables of one partition; those that read nothing are loaded."""
    return [
        Table(name, sources=tuple(Source(source) for source in sources), feed=None if sources else "files")
        for name, sources in reads.items()
    ]


def minutes(name: str, rng: Random) -> float:
    """As long as the paper's jobs took."""
    return rng.uniform(20.0, 60.0)


def run_live(
    tables: Sequence[Table],
    arrivals: Iterable[Arrival],
    run_time: RunTime,
    rng: Random,
    *,
    extent: PartitionSet = EVERYTHING,
    rounds: int = 1,
) -> DoneWork:
    """All changes through the tables, from rest to rest. Any number of updates may run at a time. `extent` is what tables with
    partitions hold before. All is loaded so many `rounds` first, so that run times are learned."""
    return _Live(tables, arrivals, run_time, rng, extent, rounds).outcome


class _Live(Driver):
    def __init__(
        self,
        tables: Sequence[Table],
        arrivals: Iterable[Arrival],
        run_time: RunTime,
        rng: Random,
        extent: PartitionSet,
        rounds: int,
    ) -> None:
        super().__init__()
        self.run_time, self.rng = run_time, rng
        self.outcome = DoneWork()
        self.ranges: dict[str, PartitionSet] = {}
        self.snapshot = self.rest_us = 0
        # When the changes of each table came; and of each table, how many changes of which table it contains.
        self.came_us: dict[str, list[int]] = {}
        self.contains: dict[str, dict[str, int]] = {}
        # Each table that is loaded has a feed of its own; what has no partitions is restated as a whole.
        made = [replace(t, logic="x", feed=f"feed_{t.name}" if t.is_base else None) for t in tables]
        feeds = [
            Feed(t.feed, mode="snapshot", timed=False) if t.partition == "none" else Feed(t.feed)
            for t in made
            if t.feed is not None
        ]
        self.kernel.now_us = _BEGIN_US
        self.apply(RunStarted(_BEGIN_US, "one"))
        self.apply(WarehouseDeclared(_BEGIN_US, tuple(feeds), tuple(made), len(made), "max-benefit"))
        for number in range(rounds):
            loads = [t.name for t in made if t.is_base and (number == 0 or t.partition == "none")]
            self._through(Arrival(0.0, name, extent, file=True) for name in loads)
        self.outcome = DoneWork()
        self.rest_us = self.kernel.now_us
        self._through(arrivals)

    def _through(self, arrivals: Iterable[Arrival]) -> None:
        """From rest to rest."""
        rest_us, state = self.kernel.now_us, self.controller.state
        for arrival in arrivals:
            at_us = rest_us + int(arrival.at_s * SECOND_US)
            self.kernel.at(at_us, ARRIVAL, lambda now, arrival=arrival: self._arrive(now, arrival))  # type: ignore[misc]
        while self.due(END_US):
            self.step()
        left = [name for name, table in state.tables.items() if table.needs or table.files]
        assert self.controller.idle and not left, f"nothing more happens, and {left} are not done"

    def _arrive(self, now_us: int, arrival: Arrival) -> None:
        self.came_us.setdefault(arrival.table, []).append(now_us)
        if not arrival.file:
            self.apply(BackfillRequested(now_us, arrival.table, arrival.partitions.intervals))
            return
        uri = f"{arrival.table}/{len(self.ranges)}"
        self.ranges[uri] = arrival.partitions
        self.apply(FileArrived(now_us, f"feed_{arrival.table}", FeedFile(uri, uri, 100, now_us)))

    def start(self, now_us: int, command: StartUpdate) -> None:
        seconds = self.run_time(command.job.table, self.rng)
        end_us = now_us + max(1, int(seconds * SECOND_US))
        name = command.job.table
        reads = self.controller.state.graph.tables[name].sources
        found = dict(self.contains.get(name, {}))
        found[name] = len(self.came_us.get(name, ()))
        for origin in {origin for source in reads for origin in self.contains.get(source.table, ())} - {name}:
            by = (self.contains.get(source.table, {}) for source in reads if source.table != name)
            found[origin] = min(contained[origin] for contained in by if origin in contained)
        self.kernel.at(end_us, END, lambda now: self._finish(now, command.job, seconds, found))

    def _finish(self, now_us: int, job: Job, seconds: float, contains: dict[str, int]) -> None:
        self.snapshot += 1
        before, self.contains[job.table] = self.contains.get(job.table, {}), contains
        waited = [
            (now_us - came_us) / SECOND_US
            for origin, number in contains.items()
            for came_us in self.came_us.get(origin, [])[before.get(origin, 0) : number]
        ]
        self.outcome.run_s += seconds
        self.outcome.late_s[job.table] += sum(waited)
        if not self.controller.state.graph.out[job.table]:
            self.outcome.most_late_s = max(self.outcome.most_late_s, *waited, 0.0)
        table = self.controller.state.tables[job.table].table
        changed = PartitionSet.of(*changed_by(job.pieces))
        for file in job.files:
            changed |= self.ranges[file.uri]
        timed = table.partition != "none"
        edge_us = job.complete_us
        if timed and table.is_base:
            edge_us = max(end for ranges in self.ranges.values() for _, end in ranges)
        published = PublishedTable(
            job.table,
            self.snapshot,
            append=timed and table.is_base and not job.pieces,
            changed=changed.intervals if timed else (),
            complete_us=edge_us if timed else None,
            leading_us=edge_us - 1 if timed and edge_us is not None else None,
            begin_us=0 if timed else None,
        )
        self.apply(UpdateFinished(now_us, job.id, job.table, (published,), seconds))
        self.outcome.updates[job.table] += changed.count(table.grain) if timed else 1
        self.outcome.ended_s = (now_us - self.rest_us) / SECOND_US


# What all of these experiments need


def graph_of(tables: Sequence[Table]) -> Graph:
    return Graph([Feed("files")], tables)


def points(name: str, *keys: str) -> Callable[[Parameters, Sequence[int]], list[Any]]:
    """A task for each combination of some parameters' values and each seed."""

    def made(parameters: Parameters, seeds: Sequence[int]) -> list[Any]:
        found: list[dict[str, Any]] = [dict(parameters, experiment=name)]
        for key in keys:
            found = [{**point, key: value} for point in found for value in point[key]]
        return [{**point, "seed": seed} for point in found for seed in seeds]

    return made


def flat(rows: list[Row], point: Parameters) -> list[Row]:
    """With all parameters by name; what was not measured, or is not in the paper, is left out."""
    given = {key: value for key, value in point.items() if isinstance(value, int | float | str)}
    return [
        {"experiment": point["experiment"], **given, **{key: value for key, value in row.items() if value is not None}}
        for row in rows
    ]
