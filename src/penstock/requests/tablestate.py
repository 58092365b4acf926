"""What the core knows of one table. Its size follows the pending work, never the history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import islice

from penstock.model.cost import CostModel, Volume
from penstock.model.freshness import Staleness
from penstock.model.graph import Graph
from penstock.model.partitions import Interval, IntervalMap, PartitionSet
from penstock.model.tables import Table
from penstock.requests.cadence import Restated
from penstock.requests.job import Anew, FeedFile, Job
from penstock.requests.needs import Need, pending


@dataclass(slots=True)
class Running:
    job: Job
    track: int
    started_us: int
    why: str


@dataclass(slots=True)
class UpdateCounts:
    """For the summary of a run: how much was done, and how much merging saved."""

    updates: int = 0
    requests: int = 0  # reasons to update that came
    merged: int = 0  # of these, the ones for which nothing was made that was not to be made anyway
    folded: int = 0
    failures: int = 0
    rows: int = 0
    quarantined_rows: int = 0
    late_rows: int = 0
    busy_s: float = 0.0
    # Partitions that were not made again, as what they are made from was made again with the same rows.
    spared: int = 0
    # Of the reasons that were merged, those that a pending one says already; and reasons that a running update met anyway, or
    # that the table's policy holds back.
    duplicates: int = 0
    joined: int = 0
    held: int = 0


@dataclass(slots=True)
class TableState:
    table: Table
    # Complete up to here: all rows with an earlier time are in.
    edge_us: int | None = None
    # Up to here the trailing edge of the sources was seen, and needs exist for what lies between.
    seen_us: int | None = None
    leading_us: int | None = None
    begin_us: int | None = None
    # The last publication, and which publications of its base tables it fully reflects; if it is not consistent, it is
    # between two states of them (a part of some work was left for later) and `reflects` is of an earlier publication.
    snapshot: int = 0
    consistent: bool = False
    reflects: dict[str, int] = field(default_factory=dict)
    needs: IntervalMap[Need] = field(default_factory=pending)
    # Changes that it does not take up by themselves, because its policy is not to follow them. No partition is in both:
    # with the next need of a partition, what waited for it is taken up too.
    held: IntervalMap[Need] = field(default_factory=pending)
    # Bytes that came since it was updated: new files, or what its sources added. What is made again besides goes by `volume`.
    amount: float = 0.0
    volume: Volume = field(default_factory=Volume)
    # Base tables: files to load in order of arrival, how many came, and which of these each pending one was; promises
    # (the last arrival before, up to when) that become true once every earlier file is loaded.
    files: dict[str, FeedFile] = field(default_factory=dict)
    arrived: int = 0
    order: dict[str, int] = field(default_factory=dict)
    # Before it started anew it was complete up to here; what comes until it is made is late by that.
    said_us: int | None = None
    # Of these, or of those that are being loaded: files of which the table holds an earlier content.
    again: set[str] = field(default_factory=set)
    # Of files that got other content before they were loaded: when the first content came.
    came: dict[str, int] = field(default_factory=dict)
    # Files that it may hold and that were withdrawn.
    withdrawn: set[str] = field(default_factory=set)
    # It is declared anew: nothing that it holds is as its declaration says until a job has made it so.
    anew: Anew = ""
    # The publication by which it lost its rows because nothing was left to make it from; it can be read, and has none.
    emptied: int = 0
    loading: int | None = None  # the earliest arrival in the running job
    promises: deque[tuple[int, int]] = field(default_factory=deque)
    promised_us: int | None = None  # the latest that became true
    last_arrival_us: int | None = None
    running: Running | None = None
    # A change came that the running job does not see, and the table's policy is to stop it then; and whether the last
    # one was stopped, so that this one is not.
    overrun: bool = False
    stopped: bool = False
    # What computes it changed while a job ran, so that what the job publishes is out of date at once.
    redefined: bool = False
    last: Running | None = None
    last_how: str = ""
    last_finished_us: int | None = None
    attempt: int = 0
    # How often Spark ended while it was updated, since it was last.
    deaths: int = 0
    error: str | None = None
    retry_at_us: int | None = None
    failed: bool = False
    small_files: int = 0
    restated: Restated = field(default_factory=Restated)
    # When its files were last merged: since then older rows are in files that look new.
    merged_snapshot: int = 0
    cost: CostModel = field(default_factory=CostModel)
    staleness: Staleness = field(default_factory=Staleness)
    counts: UpdateCounts = field(default_factory=UpdateCounts)

    def start_over(self) -> None:
        """Nothing of what it holds counts any more; what is known of its updates stays."""
        kept = {"table", "cost", "counts", "staleness", "restated"} | (set() if self.exists else {"emptied"})
        fresh = TableState(self.table, anew="rows")
        for each in fields(self):
            if each.name not in kept:
                setattr(self, each.name, getattr(fresh, each.name))

    def try_anew(self) -> None:
        """Whatever failed before, it may be tried again at once."""
        self.failed, self.attempt, self.deaths, self.retry_at_us = False, 0, 0, None

    @property
    def has_us(self) -> Interval:
        """The stretch of time that its rows are in; an empty one if it has no times, or is not known."""
        ends = [self.leading_us + 1] if self.leading_us is not None else []
        ends += [self.edge_us] if self.edge_us is not None else []
        return (0, 0) if self.begin_us is None or not ends else (self.begin_us, max(ends))

    @property
    def first_files(self) -> tuple[FeedFile, ...]:
        """Of the files that it has to load, those among which the first to come is."""
        return (*islice(self.files.values(), 1), *(self.files[uri] for uri in self.came if uri in self.files))

    def since_us(self, files: Iterable[FeedFile]) -> int | None:
        """When the first of some files came, in whatever content."""
        return min((self.came.get(file.uri, file.arrived_us) for file in files), default=None)

    @property
    def lacks(self) -> PartitionSet:
        """The partitions that do not reflect everything, other than those that a job is making."""
        found = self.needs.domain()
        return found | self.held.domain() if self.held else found

    @property
    def exists(self) -> bool:
        return self.snapshot > 0

    @property
    def readable(self) -> bool:
        return self.exists or self.emptied > 0


def lag_us(graph: Graph, table: TableState) -> int:
    """How far a table is behind its trailing edge; 0 if it is fresh. What runs now counts until it has ended."""
    spec, running = table.table, table.running
    loading = () if running is None or running.job.kind == "upkeep" else running.job.files
    if spec.is_base and (table.files or loading):
        period = graph.periods_us[spec.name]
        newest = next(reversed(table.files.values())) if table.files else loading[-1]
        since = 0 if table.last_arrival_us is None else (newest.arrived_us - table.last_arrival_us) // period
        # A file holds a period of data, but after an outage one may hold all that was missed.
        return max(len(table.files) + len(loading), since) * period
    behind = 0
    if not spec.is_base and table.seen_us is not None and graph.has_time[spec.name]:
        behind = max(0, table.seen_us - (table.edge_us if table.edge_us is not None else table.seen_us))
    pending = bool(table.needs) or (running is not None and running.job.kind != "upkeep")
    # Work that does not move the edge, such as a backfill, is work all the same.
    return max(1, behind) if pending else 0
