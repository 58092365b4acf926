"""state = fold(events): everything the core remembers. No clock, no I/O; the same log gives the same state.

The state is composed of parts. Each owns its data and has the only methods that change it; `apply` calls them. Others read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from penstock.control.declaration import Declaration
from penstock.control.demand import QueryDemand
from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    DeskOpened,
    Event,
    FaultEnded,
    FaultMet,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    FilesOffered,
    FileWithdrawn,
    GuaranteeRenewed,
    GuaranteeVoided,
    PeriodsStretched,
    PunctuationArrived,
    QueriesHandled,
    RefreshRequested,
    RequestCancelled,
    RunStarted,
    RunStopped,
    TablePublished,
    TableRetried,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
    WarehouseDeclared,
)
from penstock.control.faults import Faults
from penstock.control.feeds import Feeds, FeedState, Recovering
from penstock.control.files import Files, QuarantinedFile
from penstock.control.labels import labels_below
from penstock.control.promises import Promises, Void
from penstock.control.runs import Runs
from penstock.model.cost import CostModel
from penstock.model.freshness import SourceEdge
from penstock.model.graph import Graph
from penstock.model.partitions import PartitionSet
from penstock.queries.demand import Demand
from penstock.queries.situation import Updates
from penstock.requests.backfill import Backfills
from penstock.requests.ledger import Ledger, UserRequest
from penstock.requests.propagation import Propagation
from penstock.requests.tablestate import Running, TableState
from penstock.requests.waits import QueryWaits
from penstock.scheduling.chopping import Cut
from penstock.scheduling.jobs import FinishedJob


def _read(path: str) -> Any:
    """Something of a part that others may read, but not set."""
    return property(attrgetter(path))


class State:
    graph: Graph = _read("ledger.graph")
    tables: Mapping[str, TableState] = _read("ledger.tables")
    requests: Mapping[int, UserRequest] = _read("ledger.requests")
    snapshot: int = _read("ledger.snapshot")
    applied: int = _read("ledger.applied")
    # Tables whose readiness an event may have changed.
    touched: frozenset[str] = _read("ledger.touched")
    former: frozenset[str] = _read("ledger.former")
    cost_of: Callable[[str], CostModel] = _read("ledger.cost_of")
    sources_exist: Callable[[str], bool] = _read("ledger.sources_exist")
    source_edges: Callable[[str], list[SourceEdge] | None] = _read("ledger.source_edges")
    trailing_edge: Callable[[str], int | None] = _read("ledger.trailing_edge")
    begin: Callable[[str], int | None] = _read("ledger.begin")
    extent: Callable[[TableState], PartitionSet] = _read("ledger.extent")
    wanted: Callable[[TableState, PartitionSet], PartitionSet] = _read("backfills.wanted")
    feeds: Mapping[str, FeedState] = _read("known_feeds.known")
    recovering: Mapping[str, Recovering] = _read("known_feeds.recovering")
    watched_us: int = _read("known_feeds.watched_us")
    paused: Callable[[TableState], FeedState | None] = _read("known_feeds.paused")
    quarantine: Mapping[str, QuarantinedFile] = _read("files.quarantine")
    rewritten: Mapping[str, int] = _read("files.rewritten")
    retired: Mapping[str, TableState] = _read("files.retired")
    # Guarantees that do not hold now.
    void: Mapping[str, Void] = _read("promises.void")
    jobs: int = _read("runs.jobs")
    busy: Mapping[int, Running] = _read("runs.busy")
    on_tracks: Mapping[int, Running] = _read("runs.on_tracks")
    memory: Mapping[str, Any] = _read("runs.memory")
    unseen: Mapping[int, FinishedJob] = _read("runs.unseen")
    tracks: int = _read("declaration.tracks")
    cores: int | None = _read("declaration.cores")
    policy: str = _read("declaration.policy")
    updates: Updates = _read("reading.updates")
    demand: Demand = _read("reading.demand")
    demand_us: int = _read("reading.demand_us")
    pressure: float = _read("reading.pressure")
    stretched: Mapping[str, int] = _read("reading.stretched")
    # Tables whose work nothing puts off, as the policy promises when it is done.
    kept: frozenset[str] = _read("reading.kept")
    deferred_until: Callable[[TableState], int | None] = _read("reading.deferred_until")

    def __init__(self) -> None:
        self.ledger = ledger = Ledger()
        self.awaited = QueryWaits()
        self.propagation = Propagation(ledger)
        self.backfills = Backfills(ledger)
        self.reading = QueryDemand(ledger, self.awaited)
        self.known_feeds = feeds = Feeds(ledger)
        self.files = files = Files(ledger, self.propagation, feeds)
        self.runs = runs = Runs(ledger, self.propagation, self.backfills, feeds, files, self.awaited, self.reading)
        self.declaration = Declaration(
            ledger, self.propagation, self.backfills, feeds, files, runs, self.awaited, self.reading
        )
        self.faults = Faults()
        self.promises = Promises()
        self.now_us = 0
        self.owner: str | None = None
        # Tables whose newest version was found, by the last event, to contain more than was said when it was published.
        self.relabelled: Mapping[str, Mapping[str, int]] = {}
        # What follows from the policy: the most periods of data that one update may take, and the weight of each table.
        self.chops: Mapping[str, Cut] = {}
        self.weights: Mapping[str, float] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            WarehouseDeclared: self._declared,
            RunStarted: self._run_started,
            RunStopped: self._run_stopped,
            FileArrived: files.file_arrived,
            FileRewritten: files.file_rewritten,
            FileWithdrawn: files.file_withdrawn,
            FileQuarantined: files.file_quarantined,
            FilesOffered: files.files_offered,
            PunctuationArrived: files.punctuation,
            UpdateStarted: runs.started,
            UpdateFinished: runs.finished,
            UpdateFailed: runs.failed,
            UpdateStopped: runs.stopped,
            TableRetried: runs.retried,
            FaultMet: self._fault_met,
            FaultEnded: self.faults.ended,
            TablePublished: runs.published_outside,
            BackfillRequested: self._backfill_requested,
            RequestCancelled: lambda event: self.backfills.cancel(event.request, event.at_us),
            RefreshRequested: self._refresh_requested,
            DemandSeen: lambda event: self.reading.seen(event, self.tracks),
            PeriodsStretched: self.reading.stretch,
            # For who wants to know how queries fared; the tables are as they were.
            DeskOpened: lambda event: None,
            QueriesHandled: lambda event: None,
            FeedWentOut: feeds.went_out,
            FeedCameBack: feeds.came_back,
            FeedPaused: feeds.pause,
            FeedResumed: feeds.resume,
            GuaranteeVoided: self.promises.voided,
            GuaranteeRenewed: self.promises.renewed,
        }

    def apply(self, event: Event, number: int | None = None) -> None:
        ledger = self.ledger
        ledger.number = ledger.applied + 1 if number is None else number
        ledger.event_us = event.at_us
        before, ledger.touched = ledger.touched, set()
        self._handlers[type(event)](event)
        self.relabelled = self._relabel(event) if isinstance(event, UpdateFinished) else {}
        if ledger.graph.stepped:
            for name in self._told_nothing_more():
                if self.propagation.is_stuck(ledger.tables[name]) and not self.more_is_coming(name):
                    self.propagation.fall_back(ledger.tables[name], event.at_us)
        ledger.touched |= before
        ledger.applied = ledger.number
        if ledger.former:  # anything may have been what they waited for
            ledger.touched.update(ledger.former & ledger.tables.keys())
        if event.at_us > self.now_us:
            self.now_us = event.at_us
            if event.at_us > self.awaited.next_us:
                ledger.touched.update(self.awaited.expire(event.at_us))

    def _relabel(self, event: UpdateFinished) -> Mapping[str, Mapping[str, int]]:
        same = [each.table for each in event.publications if each.same and each.table in self.tables]
        labels = labels_below(self, same) if same else {}
        for name, label in labels.items():
            table = self.ledger.tables[name]
            table.reflects, table.consistent = dict(label), True
        return labels

    def _declared(self, event: WarehouseDeclared) -> None:
        self.declaration.declared(event)
        self.promises.declare(event)

    def _told_nothing_more(self) -> list[str]:
        """The tables that go on in steps which this event touched, or to which nothing comes any more since it; in order."""
        found: set[str] = set()
        new = [name for name in self.touched if name in self.tables]
        while new:
            name = new.pop()
            if name not in found:
                found.add(name)
                if not self._is_moving(self.tables[name]):
                    new += [edge.table for edge in self.graph.out[name]]
        return sorted(found.intersection(self.graph.stepped), key=self.graph.rank.__getitem__)

    def more_is_coming(self, name: str) -> bool:
        """Whether something is on its way to a table, which may bring its sources abreast."""
        return any(self._is_moving(self.tables[above]) for above in self.graph.ancestors[name])

    def _is_moving(self, table: TableState) -> bool:
        waits = bool(table.files or table.needs) and not table.failed and not self.paused(table)
        return table.running is not None or waits

    def fold(self, events: Iterable[tuple[int, Event]]) -> State:
        for number, event in events:
            self.apply(event, number)
        return self

    # Processes

    def _run_started(self, event: RunStarted) -> None:
        self.owner = event.owner
        self.faults.open.clear()
        self.known_feeds.watched_us = event.at_us
        self.reading.forget()
        self.runs.give_all_back(event.at_us)

    def _run_stopped(self, event: RunStopped) -> None:
        self.owner = None

    def _fault_met(self, event: FaultMet) -> None:
        self.faults.met(event)
        self.runs.interrupted(event)

    def abandoned(self) -> None:
        """The process that ran the project is gone without a word: what it was doing is pending again, as it will be
        when the next one starts. For those who look; the log says nothing of it."""
        self.owner = None
        self.runs.give_all_back(self.now_us)

    # What users and queries want

    def _backfill_requested(self, event: BackfillRequested) -> None:
        request = UserRequest(
            self.ledger.number,
            event.at_us,
            event.table,
            reason=event.reason,
            downstream=event.downstream,
            deadline_us=event.deadline_us,
        )
        self.backfills.ask(request, event.ranges)

    def _refresh_requested(self, event: RefreshRequested) -> None:
        for name, intervals in event.wanted:
            if name in self.tables:
                self.awaited.add(name, PartitionSet.of(*intervals), event.deadline_us)
                self.ledger.touched.add(name)

    # For the controller: these change nothing that is remembered

    def tick(self, now_us: int) -> None:
        """It is at least that late."""
        self.now_us = max(self.now_us, now_us)

    def follow_policy(self, chops: Mapping[str, Cut], weights: Mapping[str, float], kept: frozenset[str]) -> None:
        self.chops, self.weights, self.reading.kept = chops, weights, kept

    def touch(self, names: Iterable[str]) -> None:
        self.ledger.touched.update(names)

    def take_touched(self) -> set[str]:
        """The tables to ask again; from now on others."""
        touched, self.ledger.touched = self.ledger.touched, set()
        return touched

    # For the simulator, which knows what is learned elsewhere

    def know(self, name: str, *, cost: CostModel | None = None, amount: float | None = None) -> None:
        table = self.ledger.tables[name]
        table.cost = table.cost if cost is None else cost
        table.amount = table.amount if amount is None else amount
