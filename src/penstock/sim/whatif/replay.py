"""A recorded world, run again: the arrivals are those of the log, the decisions are the controller's, and an update takes
as long as its table's updates took, more beside others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FileArrived,
    FileRewritten,
    PunctuationArrived,
    StartUpdate,
    UpdateFinished,
    WarehouseDeclared,
)
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.cost import CostModel
from penstock.model.partitions import Interval, PartitionSet
from penstock.model.tables import Table
from penstock.model.time import BEGIN_US, SECOND_US, format_duration, parse_duration
from penstock.requests.job import Job, PublishedTable
from penstock.requests.needs import changed_by
from penstock.scheduling.policies import bound, find_policy
from penstock.sim.arrivals import generator
from penstock.sim.driver import ARRIVAL, END, Driver
from penstock.sim.outcome import BusySum
from penstock.sim.whatif.recording import Arrival, Contents, Crowding, Recording, TableFreshness, Watch

# What shall be other than it was: an outage, more data, more tables.


class ChangeError(PenstockError):
    """A change that cannot be made."""


@dataclass(frozen=True, slots=True)
class FeedOutage:
    """What should have come between two times after the beginning comes at the end; of one feed or of all."""

    start_us: int
    end_us: int
    feed: str | None = None

    def __str__(self) -> str:
        span = f"{format_duration(self.start_us)}..{format_duration(self.end_us)}".replace(" ", "")
        return f"{self.feed}@{span}" if self.feed else span


@dataclass(frozen=True, slots=True)
class SlowPeriod:
    """Updates that start between two times after the beginning take so many times as long."""

    start_us: int
    end_us: int
    factor: float


@dataclass(frozen=True, slots=True)
class Changes:
    volume: float = 1.0
    outages: tuple[FeedOutage, ...] = ()
    slowdowns: tuple[SlowPeriod, ...] = ()
    # Tables added that are like one that there is, by their names.
    like: tuple[tuple[str, str], ...] = ()

    def delayed_us(self, feed: str, at_us: int) -> int:
        """When something comes that would have come at a time, both since the beginning."""
        for outage in sorted(self.outages, key=lambda outage: outage.start_us):  # one may lead into the next
            if outage.feed in (None, feed) and outage.start_us <= at_us < outage.end_us:
                at_us = outage.end_us
        return at_us

    def slowness(self, at_us: int) -> float:
        """How many times as long an update takes that starts so long after the beginning."""
        return max((slow.factor for slow in self.slowdowns if slow.start_us <= at_us < slow.end_us), default=1.0)

    def applied_to(self, declared: WarehouseDeclared) -> WarehouseDeclared:
        tables = {table.name: table for table in declared.tables}
        added = tuple(_copy(tables[model], name) for name, model in self.like)
        return replace(declared, tables=declared.tables + added)


def _copy(table: Table, name: str) -> Table:
    # One that reads its own past must read its own, not that of the other.
    sources = tuple(replace(s, table=name) if s.table == table.name else s for s in table.sources)
    return replace(table, name=name, sources=sources)


def parse_changes(
    declared: WarehouseDeclared, volume: float, outages: Sequence[str], additions: Sequence[str]
) -> Changes:
    """As users write them: outages as `10m..25m` or `feed@10m..25m`, tables as `name` or `name*3`."""
    feeds = [feed.name for feed in declared.feeds]
    tables = [table.name for table in declared.tables]
    return Changes(volume, tuple(_outage(text, feeds) for text in outages), like=tuple(_additions(additions, tables)))


def _outage(text: str, feeds: Sequence[str]) -> FeedOutage:
    feed, sign, span = text.rpartition("@")
    start, dots, end = span.partition("..")
    expected = "expected START..END since the beginning, such as 10m..25m or feed@10m..25m"
    if not dots:
        raise ChangeError(f"--outage {text}: {expected}")
    if sign:
        _known(feed, feeds, "feed")
    try:
        found = FeedOutage(parse_duration(start or "0s"), parse_duration(end), feed if sign else None)
    except ValueError as error:
        raise ChangeError(f"--outage {text}: {error}; {expected}") from None
    if found.end_us <= found.start_us:
        raise ChangeError(f"--outage {text}: it must end after it starts")
    return found


def _additions(texts: Sequence[str], tables: Sequence[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, sign, count = text.partition("*")
        name = name.strip()
        _known(name, tables, "table")
        if sign and not (count.strip().isdigit() and 1 <= int(count) <= 10_000):
            raise ChangeError(f"--add {text}: expected how many after the star, such as {name}*3")
        for number in range(1, int(count) + 1 if sign else 2):
            yield f"{name}+{number}", name


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise ChangeError(f"there is no {what} `{name}` in the recorded project{hint}")


_AS_IT_WAS = Changes()


@dataclass(frozen=True)
class Replayed:
    freshness: tuple[TableFreshness, ...]
    # Staleness of all tables, summed with their priorities.
    weighted_s: float
    # The part of the time in which targets were met, averaged over the tables that have one, by priority.
    met: float | None
    utilisation: float
    updates: int
    log: tuple[Event, ...]


class Replay(Driver):
    def __init__(
        self,
        recording: Recording,
        policy: str | None = None,
        tracks: int | None = None,
        changes: Changes = _AS_IT_WAS,
        seed: int = 0,
        *,
        crowding: Crowding | None = None,
        keep_log: bool = False,
    ) -> None:
        super().__init__(keep_log=keep_log)
        self.recording, self.changes = recording, changes
        self.crowding = crowding or recording.crowding
        self.like = dict(changes.like)
        declared = changes.applied_to(recording.declared)
        self.tracks = tracks or declared.tracks
        declared = replace(declared, tracks=self.tracks, policy=policy or declared.policy)
        self.kernel.now_us = recording.start_us
        first = dict(recording.first)
        first.update((name, first[model]) for name, model in changes.like if model in first)
        self.watch = Watch(recording.start_us, first)
        self.apply(declared)
        state = self.controller.state
        self.controller = Controller(state, bound(find_policy(state.policy), state.graph))
        # What updates take, and what the controller knows of that: it goes on learning.
        self.costs = _costs(recording, self.like, state)
        for name, table in state.tables.items():
            known = recording.costs.get(self.like.get(name, name))
            if known is not None:
                table.cost = replace(known)
        self._draw = {name: generator(seed, name, "luck") for name in state.tables}
        self.snapshot = self.updates = 0
        self.busy = BusySum()
        for arrival in recording.arrivals:
            since = changes.delayed_us(arrival.feed, arrival.at_us - recording.start_us)
            at = recording.start_us + since
            self.kernel.at(at, ARRIVAL, lambda now, arrival=arrival: self._arrive(now, arrival))  # type: ignore[misc]

    def apply(self, event: Event) -> None:
        super().apply(event)
        self.watch.saw(self.controller.state, event)

    def run(self) -> Replayed:
        horizon = self.recording.end_us
        while self.due(horizon):
            self.step()
        state = self.controller.state
        freshness = self.watch.freshness(state, horizon)
        busy = self.busy.until(horizon) / max(1, (horizon - self.recording.start_us) * self.tracks)
        return Replayed(
            freshness, weighted(freshness), met(freshness), busy, self.updates, tuple(self.log) if self.log else ()
        )

    # The world acts

    def _arrive(self, now_us: int, arrival: Arrival) -> None:
        if isinstance(arrival, PunctuationArrived):
            self.apply(replace(arrival, at_us=now_us))
            return
        size = round(arrival.file.size_bytes * self.changes.volume)
        file = replace(arrival.file, arrived_us=now_us, size_bytes=size)
        if isinstance(arrival, FileRewritten):
            self.apply(FileRewritten(now_us, arrival.feed, file, arrival.ranges))
        else:
            self.apply(FileArrived(now_us, arrival.feed, file))

    def start(self, now_us: int, command: StartUpdate) -> None:
        job = command.job
        seconds = self.recording.upkeep_s
        if job.kind != "upkeep":
            # What a group takes is known of the group.
            known = self.controller.state.graph.updated_as[job.table]
            luck = self.recording.luck.get(self.like.get(known, known), (1.0,))
            seconds = self.costs[known].expected_s(sum(each.amount for each in job.each))
            seconds *= self._draw[known].choice(luck)
        seconds *= self.crowding.factor(len(self.controller.state.on_tracks))
        seconds *= self.changes.slowness(now_us - self.recording.start_us)
        took_us = max(1, round(seconds * self.recording.pace * SECOND_US))
        self.busy.add(now_us + took_us, took_us)
        self.kernel.at(now_us + took_us, END, lambda now: self._finish(now, job, took_us))

    def _finish(self, now_us: int, job: Job, took_us: int) -> None:
        self.snapshot += 1
        self.updates += job.kind != "upkeep"
        found: tuple[PublishedTable, ...]
        if job.kind == "upkeep":
            found = (PublishedTable(job.table, self.snapshot, True),)
        elif job.kind == "load":
            found = (self._loaded(job),)
        else:
            found = tuple(self._derived(each) for each in job.each)
        # What one job makes is published together.
        graph = self.controller.state.graph
        found = tuple(replace(each, table=name) for each in found for name in graph.made_with(each.table))
        self.apply(UpdateFinished(now_us, job.id, job.table, found, took_us / SECOND_US / self.recording.pace))

    def _loaded(self, job: Job) -> PublishedTable:
        parts = [self._contents(job.table, file.uri, file.checksum, file.arrived_us) for file in job.files]
        edge = self.controller.state.tables[job.table].edge_us
        complete = max((p.complete_us for p in parts if p.complete_us is not None), default=edge)
        if complete is not None and edge is not None:
            complete = max(complete, edge)
        changed = PartitionSet.of(*(interval for part in parts for interval in part.changed)).intervals
        return self._publication(
            job,
            not job.pieces,
            changed,
            complete,
            sum(p.rows for p in parts),
            round(self.changes.volume * sum(p.size_bytes for p in parts)),
        )

    def _contents(self, table: str, uri: str, checksum: str, arrived_us: int) -> Contents:
        """What a file holds; if nobody ever loaded it, about what happened since the one before."""
        found = self.recording.contents.get((self.like.get(table, table), uri, checksum))
        if found is not None:
            return found
        spec = self.controller.state.graph
        period = spec.periods_us[table]
        return Contents(((arrived_us - period, arrived_us),), arrived_us, 0, 0)

    def _derived(self, job: Job) -> PublishedTable:
        state = self.controller.state
        append = all(piece.need.append for piece in job.pieces) and bool(state.graph.folds[job.table])
        size = round(job.amount * self.recording.output.get(self.like.get(job.table, job.table), 1.0))
        return self._publication(job, append, changed_by(job.pieces), job.complete_us, 0, size)

    def _publication(
        self, job: Job, append: bool, changed: tuple[Interval, ...], complete_us: int | None, rows: int, size: int
    ) -> PublishedTable:
        begin = changed[0][0] if changed and changed[0][0] > BEGIN_US else None
        leading = None if complete_us is None else complete_us - 1
        files = 1 if append else 0
        return PublishedTable(job.table, self.snapshot, append, changed, complete_us, leading, begin, rows, size, files)


def _costs(recording: Recording, like: dict[str, str], state: State) -> dict[str, CostModel]:
    """As the log shows them; a table that it does not know costs about what others of its kind do."""
    found: dict[str, CostModel] = {}
    for name, table in state.tables.items():
        known = recording.costs.get(like.get(name, name))
        if known is None:
            alike = [
                cost
                for other, cost in recording.costs.items()
                if other in state.tables and state.tables[other].table.is_base == table.table.is_base
            ] or list(recording.costs.values())
            known = CostModel()
            if alike:
                known.alpha_s = median(cost.alpha_s for cost in alike)
                known.beta_s = median(cost.beta_s for cost in alike)
        found[name] = known
    return found


def weighted(freshness: tuple[TableFreshness, ...]) -> float:
    return sum(table.priority * table.mean_s for table in freshness)


def met(freshness: tuple[TableFreshness, ...]) -> float | None:
    with_target = [table for table in freshness if table.met is not None]
    weight = sum(table.priority for table in with_target)
    return sum(table.priority * (table.met or 0.0) for table in with_target) / weight if weight else None
