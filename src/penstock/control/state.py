"""state = fold(events): everything the core remembers. No clock, no I/O; the same log gives the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.control.awaiting import Awaited
from penstock.control.backfilling import Backfilling
from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    Event,
    FeedCameBack,
    FeedFile,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    Job,
    Publication,
    PunctuationArrived,
    RefreshRequested,
    RequestCancelled,
    RunStarted,
    RunStopped,
    TableRetried,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
    WarehouseDeclared,
)
from penstock.control.feeding import Feeding
from penstock.control.propagation import Change, Dated
from penstock.control.tablestate import Running, TableState
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, Interval, PartitionSet
from penstock.model.tables import NEW, Feed, Table
from penstock.model.time import BEGIN_US, END_US, SECOND_US
from penstock.queries.demand import Demand
from penstock.requests.needs import Need, partitions_of, pending, restated

BACK_OFF_US = 1 * SECOND_US
LONGEST_BACK_OFF_US = 300 * SECOND_US


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    feed: str
    file: FeedFile
    reason: str
    at_us: int


class State(Backfilling, Feeding):
    """Mutable, but only `apply` changes it. `touched` names the tables whose readiness an event may have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.tracks = 1
        self.policy = "max-benefit"
        # The most periods of data that one load may take; the controller says it for the policy.
        self.chop: float | None = None
        # The priority that the job of each table comes with; also of the policy.
        self.weights: Mapping[str, float] = {}
        self.jobs = 0
        self.applied = 0
        self.now_us = 0
        self.owner: str | None = None
        self.quarantine: dict[str, QuarantinedFile] = {}
        self.rewritten: dict[str, int] = {}
        # What runs, by track; also jobs of tables that are no longer declared, until they end.
        self.busy: dict[int, Running] = {}
        self.awaited = Awaited()
        # What queries read, as of when that was last told; and how busy the tracks were until then.
        self.updates = "always"
        self.demand = Demand()
        self.demand_us = 0
        self.worked_s = 0.0
        self.pressure = 0.0
        self._handlers: dict[type, Callable[..., None]] = {
            WarehouseDeclared: self._declared,
            RunStarted: self._run_started,
            RunStopped: self._run_stopped,
            FileArrived: self._file_arrived,
            FileRewritten: self._file_rewritten,
            FileQuarantined: self._file_quarantined,
            PunctuationArrived: self._punctuation,
            UpdateStarted: self._started,
            UpdateFinished: self._finished,
            UpdateFailed: self._failed,
            TableRetried: self._retried,
            BackfillRequested: self._backfill_requested,
            RequestCancelled: self._request_cancelled,
            UpdateStopped: self._stopped,
            RefreshRequested: self._refresh_requested,
            DemandSeen: self._demand_seen,
            FeedWentOut: self._went_out,
            FeedCameBack: self._came_back,
            FeedPaused: self._paused,
            FeedResumed: self._resumed,
        }

    def apply(self, event: Event, number: int | None = None) -> None:
        self.number = self.applied + 1 if number is None else number
        self._handlers[type(event)](event)
        self.applied = self.number
        if event.at_us > self.now_us:
            self.now_us = event.at_us
            if event.at_us > self.awaited.next_us:
                self.touched.update(self.awaited.expire(event.at_us))

    def fold(self, events: Iterable[tuple[int, Event]]) -> State:
        for number, event in events:
            self.apply(event, number)
        return self

    # What users declare

    def _declared(self, event: WarehouseDeclared) -> None:
        self.graph = Graph(event.feeds, event.tables)
        self.tracks, self.policy, self.updates = event.tracks, event.policy, event.updates
        old, self.tables = self.tables, {}
        again: list[TableState] = []
        for name in self.graph.order:
            table = self.graph.tables[name]
            state = old.get(name)
            if state is None or state.table.feed != table.feed:
                # What fed it was another thing altogether: nothing of what is known of it holds.
                state = TableState(table, snapshot=state.snapshot if state else 0)
            elif self._redefined(state, table):
                again.append(state)
            self.tables[name] = state
        again += self._with_new_followers(again)
        for state in again:
            self._restate(state, event.at_us)
        # A new view starts from what its sources already hold.
        for name, state in self.tables.items():
            if state.table.leader is not None:
                state.needs, state.held = pending(), pending()  # what its leader needs is enough
                continue
            self.advance(state, self.snapshot + 1, event.at_us, append=False)
            if not state.exists and not self.graph.flows[name] and self.sources_exist(name):
                state.needs.add(EVERYTHING, restated(event.at_us, self.number))
            self._admit_again(state)
        self._settle_requests(event.at_us)
        self._declare_feeds(event)
        self.touched.update(self.tables)
        self.awaited.keep(self.tables)

    def _admit_again(self, state: TableState) -> None:
        """What was held may be let through by the policy of now."""
        for start, end, need in state.held.remove(EVERYTHING) if state.held else ():
            edge = state.edge_us if state.edge_us is not None else BEGIN_US
            here = PartitionSet(((start, end),))
            # Beyond the edge it is, among other things, about new rows.
            new = here.within(state.table.grain.floor(edge), END_US) if NEW in state.table.propagate else EMPTY
            if not need.parked:
                self.require(state, new, need)
                here -= new
            self.admit(state, here, need)

    def _with_new_followers(self, again: list[TableState]) -> list[TableState]:
        """Leaders that must make everything again because one of those who follow them is new or another than before."""
        changed = {id(state) for state in again}
        return [
            self.tables[leader]
            for leader, followers in self.graph.followers.items()
            if id(self.tables[leader]) not in changed
            and any(id(self.tables[name]) in changed or not self.tables[name].exists for name in followers)
        ]

    def _redefined(self, state: TableState, table: Table) -> bool:
        """Whether what makes a table is another than before."""
        before, state.table = state.table, table
        if (before.partition, before.zone) != (table.partition, table.zone):
            pieces, state.needs = list(state.needs.pieces()), pending()
            for start, end, need in pieces:
                state.needs.add(PartitionSet.of(table.grain.hull(start, end)), need)
            pieces, state.held = list(state.held.pieces()), pending()
            for start, end, need in pieces:
                self._hold(state, PartitionSet.of(table.grain.hull(start, end)), need)
        elif (before.logic, before.sources, before.leader) == (table.logic, table.sources, table.leader):
            return False
        state.failed, state.attempt, state.error, state.retry_at_us = False, 0, None, None
        return True

    def _restate(self, state: TableState, at_us: int) -> None:
        """Everything that the table has must be made again."""
        state.redefined = state.running is not None
        if state.exists:
            self.require(state, self.extent(state), restated(at_us, self.number))
            state.counts.requests += 1

    # Processes

    def _run_started(self, event: RunStarted) -> None:
        self.owner = event.owner
        self.watched_us = event.at_us
        self.demand, self.demand_us, self.worked_s, self.pressure = Demand(), 0, 0.0, 0.0
        self.busy.clear()
        for state in self.tables.values():
            if state.running is not None:
                self._give_back(state, event.at_us)

    def _run_stopped(self, event: RunStopped) -> None:
        self.owner = None

    def _give_back(self, state: TableState, at_us: int) -> None:
        """A job that did not finish: its work is pending again, older files first as before."""
        running, state.running = state.running, None
        assert running is not None
        self.busy.pop(running.track, None)
        job = running.job
        bad = self.quarantine
        files = {file.uri: file for file in job.files if file.uri not in bad or bad[file.uri].file != file}
        if files and state.loading is not None:
            state.order |= dict.fromkeys(files, state.loading)
        state.files = files | state.files
        state.loading, state.redefined, state.overrun = None, False, False
        grain = state.table.grain
        for piece in job.pieces:
            need = self.still_wanted(piece.need)
            if need is not None:
                self.require(state, PartitionSet.of(grain.hull(piece.start_us, piece.end_us)), need)
        state.amount += job.amount
        self._settle_requests(at_us)
        self.touched.add(state.table.name)

    # Files

    def _fed(self, feed: str) -> Iterator[TableState]:
        fed = (self.tables[name] for name in self.graph.fed_by.get(feed, ()))
        return (state for state in fed if state.table.leader is None)

    def _file_arrived(self, event: FileArrived) -> None:
        self._hear(event.feed, event.at_us, delivery=True)
        for state in self._fed(event.feed):
            self._to_load(state, event.file)

    def _file_rewritten(self, event: FileRewritten) -> None:
        self._hear(event.feed, event.at_us)
        self.rewritten[event.feed] = self.rewritten.get(event.feed, 0) + 1
        for state in self._fed(event.feed):
            self._to_load(state, event.file)
            had = PartitionSet.of(*event.ranges).hull(state.table.grain)
            state.needs.add(had, restated(event.at_us, self.number))

    def _to_load(self, state: TableState, file: FeedFile) -> None:
        if self.quarantine:
            self.quarantine.pop(file.uri, None)
        before = state.files.get(file.uri)
        if before is None:
            state.arrived += 1
            state.order[file.uri] = state.arrived
        else:
            state.amount -= before.size_bytes
        state.files[file.uri] = file
        state.amount += file.size_bytes
        state.counts.requests += 1
        self.touched.add(state.table.name)

    def _file_quarantined(self, event: FileQuarantined) -> None:
        uri = event.file.uri
        self._hear(event.feed, event.file.arrived_us)
        self.quarantine[uri] = QuarantinedFile(event.feed, event.file, event.reason, event.at_us)
        for state in self._fed(event.feed):
            dropped = state.files.pop(uri, None)
            if dropped is not None:
                state.amount = max(0.0, state.amount - dropped.size_bytes)
                del state.order[uri]
            self._keep_promises(state, event.at_us)
            self.touched.add(state.table.name)

    def _punctuation(self, event: PunctuationArrived) -> None:
        self._hear(event.feed, event.at_us)
        for state in self._fed(event.feed):
            promises = state.promises
            upto = event.upto_us
            if promises and promises[-1][0] == state.arrived:
                upto = max(upto, promises.pop()[1])
            promises.append((state.arrived, upto))
            self._keep_promises(state, event.at_us)

    def _keep_promises(self, state: TableState, at_us: int) -> None:
        """A promise holds for the table once every file that came before it is loaded."""
        if not state.promises:
            return
        unloaded = [state.order[next(iter(state.files))]] if state.files else []
        if state.loading is not None:
            unloaded.append(state.loading)
        edge = state.edge_us
        while state.promises and (not unloaded or state.promises[0][0] < min(unloaded)):
            upto = state.promises.popleft()[1]
            edge = upto if edge is None else max(edge, upto)
        if edge is not None and edge != state.edge_us:
            self._complete(state, edge, at_us)
            if state.exists:
                # Nothing is new but that rows which are there already may be used.
                self.tell_readers(state, Change(self.snapshot + 1, True, (), at_us))

    # Updates

    def _started(self, event: UpdateStarted) -> None:
        self.jobs += 1
        running = Running(event.job, event.track, event.at_us, event.why)
        self.busy[event.track] = running
        for job in event.job.each:
            state = self.tables.get(job.table)
            if state is not None:  # else it was taken out of the warehouse just now
                state.running = running if job is event.job else replace(running, job=job)
                self._taken(state, job, event)

    def _taken(self, state: TableState, job: Job, event: UpdateStarted) -> None:
        self._touch(job.table)
        if job.files:
            state.loading = min(state.order.get(file.uri, state.arrived) for file in job.files)
        for file in job.files:
            if state.files.get(file.uri) == file:  # else other content came after the decision
                del state.files[file.uri], state.order[file.uri]
        if job.table in self.awaited:
            everything = EVERYTHING if state.table.is_base else PartitionSet()
            self.awaited.started(job.table, everything | partitions_of(job.pieces))
        decided_at = event.decided_at or self.applied
        for piece in job.pieces:
            for start, end, need in state.needs.remove(PartitionSet(((piece.start_us, piece.end_us),))):
                here = PartitionSet(((start, end),))
                if need.last <= decided_at:
                    continue
                if not need.changed and not piece.need.append and job.kind == "derive":
                    # It was only asked for again, and the job makes it from nothing.
                    for number in set(need.requests).difference(piece.need.requests):
                        self.join_running(state, here, number)
                else:
                    # Something changed after the decision, which the job will not see.
                    state.needs.add(here, need.rest(job.pin, job.edge_us, event.at_us))
        state.amount = max(0.0, state.amount - job.amount) if state.needs or state.files else 0.0

    def _finished(self, event: UpdateFinished) -> None:
        for publication in event.publications:
            self.snapshot = max(self.snapshot, publication.snapshot)
        ended = self._ended(event.job, event.table)
        for state in ended:
            self._done(state, event, len(ended))
            if self.recovering:
                self._see_whether_recovered(state.table.name)

    def _done(self, state: TableState, event: UpdateFinished, together: int) -> None:
        running, state.running, state.loading = state.running, None, None
        state.overrun = state.stopped = False
        assert running is not None
        job = running.job
        state.last, state.last_finished_us, state.last_how = running, event.at_us, event.how
        state.attempt, state.error, state.retry_at_us, state.failed = 0, None, None, False
        if job.kind == "upkeep":
            state.small_files = 0
            state.merged_snapshot = max((p.snapshot for p in event.publications), default=state.merged_snapshot)
            return
        if job.table == event.table:
            # What a group takes is known of the group, by the first of its tables.
            first = self.graph.grouped_with(job.table)[0]
            self.tables[first].cost.observe(sum(each.amount for each in job.each), event.seconds)
            self.worked_s += event.seconds
        state.counts.updates += 1
        state.counts.busy_s += event.seconds / together
        state.counts.folded += event.how.startswith("fold")
        if job.files:
            newest = max(file.arrived_us for file in job.files)
            state.last_arrival_us = max(newest, state.last_arrival_us or BEGIN_US)
        for publication in event.publications:
            if publication.table == job.table:
                self._published(state, publication, job, event.at_us)
            elif publication.table in self.graph.followers.get(job.table, ()) and publication.table in self.tables:
                self._published(self.tables[publication.table], publication, job, event.at_us)
                self._followed(self.tables[publication.table], state)
        self._reload(state, event)
        self._keep_promises(state, event.at_us)
        if state.redefined:
            self._restate(state, event.at_us)
        if self.requests:
            self._made_for_requests(state, job, event.at_us)

    def _followed(self, follower: TableState, leader: TableState) -> None:
        follower.last, follower.last_finished_us, follower.last_how = (
            leader.last,
            leader.last_finished_us,
            leader.last_how,
        )
        follower.seen_us = leader.seen_us
        follower.counts.updates += 1

    def _touch(self, name: str) -> None:
        """Whether a table may run depends on those with which it is made."""
        self.touched.add(name)
        if name in self.graph.tables:
            leader = self.graph.tables[name].leader
            self.touched.update((*self.graph.followers.get(name, ()), *([leader] if leader is not None else [])))

    def _reload(self, state: TableState, event: UpdateFinished) -> None:
        """Files that got other content while they were loaded: their old rows are in the table now and must go."""
        assert state.last is not None
        if not state.files or not any(file.uri in state.files for file in state.last.job.files):
            return
        flows = self.graph.flows[event.table]
        for publication in event.publications:
            if publication.table == event.table:
                had = PartitionSet.of(*publication.changed).hull(state.table.grain) if flows else EVERYTHING
                state.needs.add(had, restated(event.at_us, self.number))

    def _ended(self, job: str, table: str) -> list[TableState]:
        """The tables whose running job ended; not those that are no longer declared, or if the job was given up."""
        names = [table]
        for track, running in self.busy.items():
            if running.job.id == job:
                names = [each.table for each in running.job.each]
                del self.busy[track]
                break
        for name in names:
            self._touch(name)
        known = (self.tables[name] for name in names if name in self.tables)
        return [state for state in known if state.running is not None and state.running.job.id == job]

    def _published(self, state: TableState, publication: Publication, job: Job, at_us: int) -> None:
        name = state.table.name
        state.snapshot = publication.snapshot
        if state.table.is_base:
            state.reflects, state.consistent = {name: publication.snapshot}, True
        else:
            state.consistent = job.reflects is not None
            state.reflects = dict(job.reflects) if job.reflects is not None else state.reflects
        state.counts.rows += publication.rows
        state.counts.quarantined_rows += publication.quarantined_rows
        state.small_files += publication.files
        begin = publication.begin_us
        if begin is None and not state.table.is_base:
            begin = self.begin(name)  # no rows as yet, but that is known from there on
        if begin is not None:
            state.begin_us = begin if state.begin_us is None else min(begin, state.begin_us)
        if job.files:
            self._records_seen(state, publication, max(file.arrived_us for file in job.files))
        if publication.leading_us is not None:
            state.leading_us = max(publication.leading_us, state.leading_us or BEGIN_US)
        if publication.complete_us is not None:
            self._complete(state, publication.complete_us, at_us)
        if self.graph.out[name]:
            self.tell_readers(state, self._change(name, publication, job, at_us))

    def _change(self, name: str, publication: Publication, job: Job, at_us: int) -> Change:
        """The publication with the times of the changes behind it: those of the base tables, however long ago."""
        edge_at = at_us
        found: dict[tuple[int, tuple[int, ...], bool], list[Interval]] = {}
        for piece in job.pieces:
            need = piece.need
            found.setdefault((need.at_us, need.requests, self._stays(need)), []).append((piece.start_us, piece.end_us))
            if not need.late:
                edge_at = min(edge_at, need.at_us)
        if not self.graph.flows[name]:
            keys = list(found) if not job.files else [*found, (at_us, (), False)]
            ranges = tuple(Dated(EVERYTHING, *key) for key in keys or [(at_us, (), False)])
        elif len(found) == 1 and job.kind == "derive":
            ranges = (Dated(PartitionSet.of(*publication.changed), *next(iter(found))),)
        else:
            rest = PartitionSet.of(*publication.changed)
            dated = []
            for key, where in found.items():
                part = rest & PartitionSet.of(*where)
                dated.append(Dated(part, *key))
                rest -= part
            ranges = tuple(each for each in (*dated, Dated(rest, at_us)) if each.where)
        return Change(publication.snapshot, publication.append, ranges, edge_at, publication.size_bytes)

    def _stays(self, need: Need) -> bool:
        """Whether a change was to be made in this table and no other."""
        if need.changed or not need.requests:
            return False
        known = [self.requests[number] for number in need.requests if number in self.requests]
        return all(not request.downstream for request in known)

    def _complete(self, state: TableState, edge_us: int, at_us: int) -> None:
        if state.edge_us is None or edge_us > state.edge_us:
            state.edge_us = edge_us
            state.staleness.moved(at_us, edge_us)

    # Failures

    def _failed(self, event: UpdateFailed) -> None:
        for state in self._ended(event.job, event.table):
            self._gave_up(state, event)

    def _gave_up(self, state: TableState, event: UpdateFailed) -> None:
        assert state.running is not None
        upkeep = state.running.job.kind == "upkeep"
        self._give_back(state, event.at_us)
        state.counts.failures += 1
        if upkeep:
            state.small_files = 0
            return
        state.error = event.error
        state.attempt += 1
        if event.final or state.attempt >= state.table.attempts:
            state.failed, state.retry_at_us = True, None
        else:
            state.retry_at_us = event.at_us + min(LONGEST_BACK_OFF_US, BACK_OFF_US << min(state.attempt - 1, 20))

    def _stopped(self, event: UpdateStopped) -> None:
        """Given up in favour of what came meanwhile: with that its work is pending again."""
        for state in self._ended(event.job, event.table):
            self._give_back(state, event.at_us)
            state.stopped = True

    def _retried(self, event: TableRetried) -> None:
        for name in self.graph.grouped_with(event.table):
            state = self.tables.get(name)
            if state is not None:
                state.failed, state.attempt, state.retry_at_us = False, 0, None
                self.touched.add(name)

    # Queries

    def _refresh_requested(self, event: RefreshRequested) -> None:
        for name, intervals in event.wanted:
            if name in self.tables:
                self.awaited.add(name, PartitionSet.of(*intervals), event.deadline_us)
                self.touched.add(name)

    def _demand_seen(self, event: DemandSeen) -> None:
        for name, count in event.reads:
            if name in self.tables:
                self.demand.read(self.graph, [name], event.at_us, count)
        passed_s = (event.at_us - self.demand_us) / SECOND_US
        if self.demand_us and passed_s > 0:
            self.pressure = min(1.0, self.worked_s / (passed_s * self.tracks))
        self.demand_us, self.worked_s = event.at_us, 0.0


def feed_of(state: State, table: Table) -> Feed:
    assert table.feed is not None
    return state.graph.feeds[table.feed]
