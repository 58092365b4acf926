"""What a project's log tells of its world: which files came when and what they held, how long updates took, and how
much that depends on what else was running. What was decided is not part of it: that is what a replay does anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from penstock.control.events import (
    Event,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    PunctuationArrived,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.cost import CostModel
from penstock.model.partitions import Interval
from penstock.model.time import SECOND_US
from penstock.requests.job import Job, PublishedTable
from penstock.requests.tablestate import Running

# How fresh the tables were during a run, recorded or simulated: both are measured by the same eyes.


@dataclass(frozen=True, slots=True)
class TableFreshness:
    table: str
    priority: float
    mean_s: float
    peak_s: float
    target_s: float | None
    # The part of the time in which the target was met.
    met: float | None


class _Kept:
    """How stale a table was, and how long it was within its target. Staleness grows with the clock and falls when the
    edge moves, so that each stretch between two moves is within the target up to one moment. A table that is complete
    beyond now (a day that was delivered as a whole) is not stale."""

    __slots__ = ("area", "edge_us", "met_us", "peak_us", "since_us", "target_us", "total_us")

    def __init__(self, since_us: int, edge_us: int, target_us: int | None) -> None:
        self.since_us, self.edge_us, self.target_us = since_us, edge_us, target_us
        self.met_us = self.total_us = self.peak_us = 0
        self.area = 0.0  # square seconds

    def moved(self, now_us: int, edge_us: int) -> None:
        if now_us > self.since_us:
            first, last = max(0, self.since_us - self.edge_us), max(0, now_us - self.edge_us)
            # The triangle up to now without the one up to the last move.
            self.area += (last * last - first * first) / 2 / SECOND_US**2
            self.total_us += now_us - self.since_us
            self.peak_us = max(self.peak_us, last)
            if self.target_us is not None:
                self.met_us += min(max(0, self.edge_us + self.target_us - self.since_us), now_us - self.since_us)
        self.since_us, self.edge_us = max(now_us, self.since_us), edge_us

    @property
    def mean_s(self) -> float:
        return self.area / (self.total_us / SECOND_US) if self.total_us else 0.0


class Watch:
    """Told after every event. Until a table is first made, it counts as complete up to the beginning of the run, or up
    to where it is then, if that is earlier. If `first` says where another run began with it, it begins there: so that runs can
    be compared, also where one of them never makes it."""

    def __init__(self, start_us: int | None = None, first: Mapping[str, int] | None = None) -> None:
        self._start_us = start_us
        self.first: dict[str, int] = dict(first or {})
        self._kept: dict[str, _Kept] = {}

    def saw(self, state: State, event: Event) -> None:
        if self._start_us is None and isinstance(event, FileArrived):
            self._start_us = event.at_us
        if isinstance(event, UpdateFinished):
            for publication in event.publications:
                self._look(state, publication.table, event.at_us)
        elif isinstance(event, PunctuationArrived):
            for name in state.graph.fed_by.get(event.feed, ()):
                self._look(state, name, event.at_us)

    def _look(self, state: State, name: str, now_us: int) -> None:
        table = state.tables.get(name)
        if table is None or table.edge_us is None or not state.graph.has_time[name]:
            return
        kept = self._kept.get(name)
        if kept is None:
            start = now_us if self._start_us is None else self._start_us
            first = self.first.setdefault(name, min(start, table.edge_us))
            kept = self._kept[name] = _Kept(start, first, table.table.target_us)
        if kept.edge_us != table.edge_us:
            kept.moved(now_us, table.edge_us)

    def freshness(self, state: State, now_us: int) -> tuple[TableFreshness, ...]:
        """Of every table that flows with time, at the end of a run."""
        found = []
        for name in state.graph.order:
            if not state.graph.has_time[name]:
                continue
            table = state.graph.tables[name]
            start = now_us if self._start_us is None else self._start_us
            kept = self._kept.get(name) or _Kept(start, self.first.get(name, start), table.target_us)
            kept.moved(now_us, kept.edge_us)
            target = table.target_us
            found.append(
                TableFreshness(
                    name,
                    table.priority,
                    kept.mean_s,
                    kept.peak_us / SECOND_US,
                    None if target is None else target / SECOND_US,
                    None if target is None or not kept.total_us else kept.met_us / kept.total_us,
                )
            )
        return tuple(found)


# A second job beside the first makes both take about half as long again on a machine whose cores Spark shares among
# them; used until the log shows better.
_USUAL_CROWDING = 0.45
# Less is what starting and publishing take.
_FASTER_THAN_LIFE = 1.5
_ENOUGH = 20
# With fewer updates a table than this, what differs between policies is who got its first update.
_UPDATES_EACH = 3
_LAST = 500

Arrival = FileArrived | FileRewritten | PunctuationArrived


class NothingRecorded(PenstockError):
    """A log that cannot be replayed, because nothing happened in it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What one file brought to one table."""

    changed: tuple[Interval, ...]
    complete_us: int | None
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Crowding:
    """An update beside n - 1 others takes 1 + growth * (n - 1) times as long. Costs were learned beside `usual` - 1."""

    growth: float = _USUAL_CROWDING
    usual: float = 1.0
    measured: bool = False

    def factor(self, beside: int) -> float:
        return (1 + self.growth * (beside - 1)) / (1 + self.growth * (self.usual - 1))


@dataclass(frozen=True)
class Recording:
    declared: WarehouseDeclared
    start_us: int
    end_us: int
    arrivals: tuple[Arrival, ...]
    # By table, name of the file and checksum.
    contents: Mapping[tuple[str, str, str], Contents]
    costs: Mapping[str, CostModel]
    # How long finished updates took against what the costs say.
    luck: Mapping[str, tuple[float, ...]]
    # Bytes that an update of a derived table writes for each byte that it reads.
    output: Mapping[str, float]
    upkeep_s: float
    crowding: Crowding
    # How many seconds of the project's clock went by in a second of work (a demonstration runs faster than life).
    pace: float
    # As it was; `first` is where each table began, and `busy_s` counts by the project's clock.
    freshness: tuple[TableFreshness, ...]
    updates: int
    failures: int
    busy_s: float
    first: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        """Too little to tell policies apart."""
        return self.updates < _UPDATES_EACH * len(self.costs)

    @property
    def seconds(self) -> float:
        return (self.end_us - self.start_us) / SECOND_US


@dataclass
class _Seen:
    """What is gathered of one table on the way."""

    took: list[tuple[float, float, float]] = field(default_factory=list)  # amount, seconds, jobs beside
    written: float = 0.0
    read: float = 0.0
    complete_us: int | None = None


def record(log: Iterable[tuple[int, Event]]) -> Recording:
    """One pass over a log."""
    state, watch = State(), Watch()
    declared: WarehouseDeclared | None = None
    arrivals: list[Arrival] = []
    contents: dict[tuple[str, str, str], Contents] = {}
    bad: set[tuple[str, str]] = set()
    seen: dict[str, _Seen] = {}
    beside: dict[str, int] = {}
    upkeep: list[float] = []
    updates = failures = 0
    busy_s = clock_s = 0.0
    for number, event in log:
        running = _running(state, event.job) if isinstance(event, UpdateFinished) else None
        if isinstance(event, WarehouseDeclared):
            declared = event
        elif isinstance(event, Arrival):
            arrivals.append(event)
        elif isinstance(event, FileQuarantined):
            bad.add((event.file.uri, event.file.checksum))
        elif isinstance(event, UpdateStarted):
            beside[event.job.id] = len(state.on_tracks) + 1
        elif isinstance(event, UpdateFailed):
            failures += 1
        elif isinstance(event, UpdateFinished) and running is not None:
            job = running.job
            busy_s += event.seconds
            clock_s += (event.at_us - running.started_us) / SECOND_US
            together = (beside.pop(job.id, 1) + len(state.on_tracks)) / 2
            if job.kind == "upkeep":
                upkeep.append(event.seconds)
            else:
                updates += 1
                # What a group takes is known of the group.
                found = seen.setdefault(state.graph.updated_as.get(job.table, job.table), _Seen())
                amount = sum(each.amount for each in job.each)
                found.took = [*found.took[-_LAST:], (amount, event.seconds, together)]
                for each in job.each:
                    _note(seen.setdefault(each.table, _Seen()), each, event.publications, contents)
        state.apply(event, number)
        watch.saw(state, event)
    if declared is None or not arrivals:
        raise NothingRecorded("the log has no arrivals to replay yet; let `penstock run` take in some files first")
    start_us = arrivals[0].at_us
    costs = {name: replace(table.cost) for name, table in state.tables.items() if table.cost.weight}
    return Recording(
        replace(declared, at_us=start_us),
        start_us,
        state.now_us,
        tuple(a for a in arrivals if isinstance(a, PunctuationArrived) or (a.file.uri, a.file.checksum) not in bad),
        contents,
        costs,
        {name: _luck(found.took, costs[name]) for name, found in seen.items() if name in costs},
        {name: found.written / found.read for name, found in seen.items() if found.read},
        median(upkeep) if upkeep else 0.5,
        _crowding(seen, costs),
        _pace(clock_s, busy_s),
        watch.freshness(state, state.now_us),
        updates,
        failures,
        clock_s,
        watch.first,
    )


def _running(state: State, job: str) -> Running | None:
    return next((running for running in state.busy.values() if running.job.id == job), None)


def _pace(clock_s: float, busy_s: float) -> float:
    pace = clock_s / busy_s if busy_s else 1.0
    return pace if pace > _FASTER_THAN_LIFE else 1.0


def _note(
    seen: _Seen,
    job: Job,
    publications: tuple[PublishedTable, ...],
    contents: dict[tuple[str, str, str], Contents],
) -> None:
    for publication in publications:
        if publication.table != job.table:
            continue
        seen.written += publication.size_bytes
        seen.read += job.amount
        count = len(job.files)
        for place, file in enumerate(job.files, 1):
            # Of several files that were loaded together, each brought its share of the way in order of arrival.
            contents[job.table, file.uri, file.checksum] = Contents(
                publication.changed,
                _between(seen.complete_us, publication.complete_us, place / count),
                publication.rows // count,
                publication.size_bytes // count,
            )
        seen.complete_us = publication.complete_us if publication.complete_us is not None else seen.complete_us


def _between(before_us: int | None, after_us: int | None, share: float) -> int | None:
    if before_us is None or after_us is None or after_us <= before_us:
        return after_us
    return after_us if share == 1 else before_us + int((after_us - before_us) * share)


def _luck(took: list[tuple[float, float, float]], cost: CostModel) -> tuple[float, ...]:
    """In the order in which it was met; the first update of a table also paid for warming up."""
    ratios = [min(5.0, max(0.2, seconds / cost.expected_s(amount))) for amount, seconds, _ in took]
    return tuple(ratios[1:] or (1.0,))


def _crowding(seen: Mapping[str, _Seen], costs: Mapping[str, CostModel]) -> Crowding:
    """By least squares over all updates: their time against the expected one, by how many ran."""
    points = [
        (beside, min(5.0, seconds / costs[name].expected_s(amount)))
        for name, found in seen.items()
        if name in costs
        for amount, seconds, beside in found.took[1:]
    ]
    if not points:
        return Crowding()
    usual = sum(beside for beside, _ in points) / len(points)
    spread = sum((beside - usual) ** 2 for beside, _ in points)
    if len(points) < _ENOUGH or spread < 0.05 * len(points):
        return Crowding(usual=usual)
    mean = sum(ratio for _, ratio in points) / len(points)
    slope = sum((beside - usual) * (ratio - mean) for beside, ratio in points) / spread
    alone = mean - slope * (usual - 1)
    growth = slope / alone if alone > 0 else _USUAL_CROWDING
    return Crowding(min(1.0, max(0.0, growth)), usual, measured=True)
