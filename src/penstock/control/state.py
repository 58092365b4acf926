"""state = fold(events): everything the core remembers. No clock, no I/O; the same log gives the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    Event,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    FilesOffered,
    FileWithdrawn,
    PeriodsStretched,
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
from penstock.control.redefinition import what_is_anew
from penstock.control.tablestate import TableState
from penstock.control.updating import Updating
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import NEW, Feed, Table
from penstock.model.time import BEGIN_US, END_US, SECOND_US
from penstock.queries.demand import Demand
from penstock.requests.needs import pending, restated
from penstock.scheduling.chopping import Cut


class State(Updating):
    """Mutable, but only `apply` changes it. `touched` names the tables whose readiness an event may have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.tracks = 1
        self.policy = "max-benefit"
        # The most periods of data that one update of a table may take, if not all; the controller says it for the policy.
        self.chops: Mapping[str, Cut] = {}
        # The priority that the job of each table comes with; also of the policy.
        self.weights: Mapping[str, float] = {}
        self.now_us = 0
        self.owner: str | None = None
        # What queries read, as of when that was last told; and how busy the tracks were until then.
        self.updates = "always"
        # Least times between updates, as a policy of queries wants them.
        self.stretched: dict[str, int] = {}
        self.demand = Demand()
        self.demand_us = 0
        self.pressure = 0.0
        self._handlers: dict[type, Callable[..., None]] = {
            WarehouseDeclared: self._declared,
            RunStarted: self._run_started,
            RunStopped: self._run_stopped,
            FileArrived: self._file_arrived,
            FileRewritten: self._file_rewritten,
            FileWithdrawn: self._file_withdrawn,
            FileQuarantined: self._file_quarantined,
            FilesOffered: self._files_offered,
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
            PeriodsStretched: self._periods_stretched,
            FeedWentOut: self._went_out,
            FeedCameBack: self._came_back,
            FeedPaused: self._paused,
            FeedResumed: self._resumed,
        }

    def apply(self, event: Event, number: int | None = None) -> None:
        self.number = self.applied + 1 if number is None else number
        self.event_us = event.at_us
        before, self.touched = self.touched, set()
        self._handlers[type(event)](event)
        if self.graph.stepped:
            for name in self._told_nothing_more():
                if self.is_stuck(self.tables[name]) and not self.more_is_coming(name):
                    self.fall_back(self.tables[name], event.at_us)
        self.touched |= before
        self.applied = self.number
        if self.former:  # anything may have been what they waited for
            self.touched.update(self.former & self.tables.keys())
        if event.at_us > self.now_us:
            self.now_us = event.at_us
            if event.at_us > self.awaited.next_us:
                self.touched.update(self.awaited.expire(event.at_us))

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

    # What users declare

    def _declared(self, event: WarehouseDeclared) -> None:
        promised, self.graph = self.graph.feeds, Graph(event.feeds, event.tables)
        if event.policy != self.policy:
            self.memory = {}  # of another policy
        self.tracks, self.policy, self.updates = event.tracks, event.policy, event.updates
        old, self.tables = self.tables, {}
        again: list[TableState] = []
        for name in self.graph.order:
            table = self.graph.tables[name]
            before = old.pop(name, None) or self.retired.pop(name, None)
            state = self._begun(table, before)
            if self._redefined(state, table):
                again.append(state)
            self.tables[name] = state
        self._begin_with_followers(again)
        for state in again:
            self._restate(state, event.at_us)
        self._promise_anew(promised, event.at_us)
        # What a base table holds is not lost when it is taken out: should it come back, it goes on from there.
        self.retired |= {name: state for name, state in old.items() if state.table.is_base and state.exists}
        self.former |= {name for name, state in old.items() if not state.table.is_base and state.exists}
        # A new view starts from what its sources already hold.
        for name, state in self.tables.items():
            if state.table.leader is not None:
                state.needs, state.held = pending(), pending()  # what its leader needs is enough
                continue
            if not self.graph.flows[name]:
                state.edge_us = state.seen_us = None  # it is as its sources are, whatever it was
            elif not state.table.is_base:
                self.fall_back(state, event.at_us)  # a source that is new to it, or is waited for now, may be less far
            self.advance(state, self.snapshot + 1, event.at_us, append=False)
            if not state.exists and not self.graph.flows[name] and self.sources_exist(name):
                state.needs.add(EVERYTHING, restated(event.at_us, self.number))
            self._admit_again(state)
        self._settle_requests(event.at_us)
        self._declare_feeds(event)
        self.touched.update(self.tables)
        self.awaited.keep(self.tables)

    def _promise_anew(self, before: Mapping[str, Feed], at_us: int) -> None:
        """Base tables whose feed promises something else than before are complete as far as it promises now. What is made
        from them follows: to a later time as with new rows, to an earlier one at once."""
        for name in self.graph.order:
            state = self.tables[name]
            feed = self.graph.feeds.get(state.table.feed or "")
            old = before.get(state.table.feed or "")
            if feed is not None and old is not None and feed.markers and old.markers not in ("", feed.markers):
                # Others promise now: what they say is told after this.
                state.promised_us = None
                state.promises.clear()
            if feed is not None and old is not None and _promise(feed) != _promise(old):
                edge = self.promised_edge(state)
                if edge is not None and (state.edge_us is None or edge > state.edge_us):
                    self.complete(state, edge, at_us)
                elif edge != state.edge_us:
                    self.move_back(state, edge, at_us)

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

    def _begun(self, table: Table, before: TableState | None) -> TableState:
        """What is known of a table under its declaration of now."""
        above = [self.tables[edge.source].anew for edge in self.graph.into[table.name] if edge.source != table.name]
        if before is None:
            # One of this name may have been there before: nothing of that is left when this one is made.
            return TableState(table, anew="" if table.is_base else "rows")
        anew = what_is_anew(before.table, table)
        if any(above) and not table.is_base:
            anew = "rows"
        if not before.exists and not before.anew:
            anew = ""  # there is nothing that could be other than declared
        if not anew:
            return before
        anew = "files" if "files" in (anew, before.anew) else anew
        if anew == "rows" and table.is_base:
            # The same rows in other partitions: for its readers it is not there until they are.
            before.table, before.snapshot, before.anew = table, 0, anew
            asked, before.needs = list(before.needs.pieces()), pending()
            for start, end, need in asked:
                before.needs.add(PartitionSet.of(table.grain.hull(start, end)), need)
            return before
        state = TableState(table, anew=anew)
        if before.exists and not table.is_base:
            self.former.add(table.name)
        state.cost, state.counts, state.staleness = before.cost, before.counts, before.staleness
        if table.is_base and before.table.feed == table.feed:
            state.files, state.order, state.arrived = before.files, before.order, before.arrived
            state.amount = before.amount
            if anew != "files":  # else the markers are offered again with the files: they may be read otherwise
                state.promises = before.promises
        return state

    def _begin_with_followers(self, again: list[TableState]) -> None:
        """A leader makes everything again if one of those who follow it is another than before, and anew if one is new."""
        for leader, followers in self.graph.followers.items():
            state = self.tables[leader]
            others = [self.tables[name] for name in followers]
            if state.exists and any(not each.exists or each.anew for each in others):
                self.tables[leader] = state = self._begun_again(state)
                again[:] = [each for each in again if each.table.name != leader]
            elif not any(state is each for each in again) and any(one is each for one in again for each in others):
                again.append(state)
            if state.anew:
                for each in others:
                    each.snapshot = 0
                    again[:] = [one for one in again if one is not each]

    def _begun_again(self, before: TableState) -> TableState:
        state = TableState(before.table, anew="files" if before.table.is_base else "rows")
        if not before.table.is_base:
            self.former.add(before.table.name)
        state.cost, state.counts, state.staleness = before.cost, before.counts, before.staleness
        state.files, state.order, state.arrived = before.files, before.order, before.arrived
        return state

    def _redefined(self, state: TableState, table: Table) -> bool:
        """Whether what makes a table is another than before, though all that it holds is in the right place."""
        before, state.table = state.table, table
        if (before.logic, before.leader) == (table.logic, table.leader) or table.is_base:
            return False
        state.failed, state.attempt, state.error, state.retry_at_us = False, 0, None, None
        return True

    # Processes

    def _run_started(self, event: RunStarted) -> None:
        self.owner = event.owner
        self.watched_us = event.at_us
        self.demand, self.demand_us, self.worked_s, self.pressure = Demand(), 0, 0.0, 0.0
        self.stretched = {}
        self._give_all_back(event.at_us)

    def _run_stopped(self, event: RunStopped) -> None:
        self.owner = None

    def abandoned(self) -> None:
        """The process that ran the project is gone without a word: what it was doing is pending again, as it will be
        when the next one starts. For those who look; the log says nothing of it."""
        self.owner = None
        self._give_all_back(self.now_us)

    def _give_all_back(self, at_us: int) -> None:
        self.busy.clear()
        for state in self.tables.values():
            if state.running is not None:
                self._give_back(state, at_us)

    # Queries

    def _refresh_requested(self, event: RefreshRequested) -> None:
        for name, intervals in event.wanted:
            if name in self.tables:
                self.awaited.add(name, PartitionSet.of(*intervals), event.deadline_us)
                self.touched.add(name)

    def _periods_stretched(self, event: PeriodsStretched) -> None:
        before, self.stretched = self.stretched, {name: us for name, us in event.periods if name in self.tables}
        self.touched.update(name for name in before.keys() | self.stretched.keys() if name in self.tables)

    def _demand_seen(self, event: DemandSeen) -> None:
        for name, count in event.reads:
            if name in self.tables:
                self.demand.read(self.graph, [name], event.at_us, count)
        passed_s = (event.at_us - self.demand_us) / SECOND_US
        if self.demand_us and passed_s > 0:
            self.pressure = min(1.0, self.worked_s / (passed_s * self.tracks))
        self.demand_us, self.worked_s = event.at_us, 0.0


def _promise(feed: Feed) -> tuple[object, ...]:
    """What a feed says of the rows that are still to come."""
    return feed.lateness_us, feed.punctuated, feed.markers, feed.mode, feed.timed


def feed_of(state: State, table: Table) -> Feed:
    assert table.feed is not None
    return state.graph.feeds[table.feed]
