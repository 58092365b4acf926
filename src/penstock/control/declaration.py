"""What a changed declaration makes of a table that has rows already."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.demand import QueryDemand
from penstock.control.events import WarehouseDeclared
from penstock.control.feeds import Feeds
from penstock.control.files import Files
from penstock.control.runs import Runs
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.tables import NEW, Feed, Table
from penstock.model.time import BEGIN_US, END_US
from penstock.requests.backfill import Backfills
from penstock.requests.job import Anew
from penstock.requests.ledger import Ledger
from penstock.requests.needs import pending, restated
from penstock.requests.propagation import Propagation
from penstock.requests.tablestate import TableState
from penstock.requests.waits import QueryWaits
from penstock.scheduling.policies import name_of_now

# Between what a base table does to rows and what its feed takes for rows, in the fingerprint of its logic.
SEAM = "|"


def what_is_anew(before: Table, table: Table) -> Anew:
    """How a table starts anew: not at all; with the `rows` that it has, in other partitions; or, a base table, by reading its
    `files` again. A view has no rows of its own: it is made again from its sources in any case."""
    if before.external != table.external and not table.is_base:
        return "rows"
    if before.feed != table.feed:
        return "files" if table.is_base else "rows"
    other_time = before.time is not None and before.time != table.time
    if table.is_base and (other_time or logic_differs(before.logic, table.logic)):
        return "files"
    if (before.partition, before.zone) != (table.partition, table.zone):
        return "rows"
    if table.is_base:
        return ""
    if other_time or (set(before.sources), before.leader, before.when) != (
        set(table.sources),
        table.leader,
        table.when,
    ):
        return "rows"
    return "rows" if loses_columns(before.shape, table.shape) else ""


def loses_columns(before: str, now: str) -> bool:
    """Whether a table no longer has a column, or has it with another type: what it holds cannot stay beside that."""
    if not before or not now:
        return False
    kept = set(now.splitlines())
    named = {line.rpartition(" ")[0]: line for line in kept}
    for line in set(before.splitlines()) - kept:
        name, _, kind = line.rpartition(" ")
        if name not in named or "?" not in (kind, named[name].rpartition(" ")[2]):
            return True
    return False


def logic_differs(before: str, now: str) -> bool:
    """Whether rows of a base table would be other ones. What was recorded before feeds were part of it says nothing of them."""
    if SEAM not in before:
        return before != now.partition(SEAM)[0]
    return before != now


class Declaration:
    """What users declared last, and what a new declaration does to what is there."""

    def __init__(
        self,
        ledger: Ledger,
        propagation: Propagation,
        backfills: Backfills,
        feeds: Feeds,
        files: Files,
        runs: Runs,
        waits: QueryWaits,
        reading: QueryDemand,
    ) -> None:
        self.ledger, self.propagation, self.backfills = ledger, propagation, backfills
        self.feeds, self.files, self.runs = feeds, files, runs
        self.waits, self.reading = waits, reading
        self.tracks = 1
        self.cores: int | None = None
        self.policy = "max-benefit"
        # What the log calls the policy, if that name is no longer known and another took its place.
        self.former_policy = ""

    def name_policy(self, name: str) -> None:
        """The policy by a name that is on record, which an earlier version may have written."""
        self.policy = name_of_now(name)
        self.former_policy = name if self.policy != name else ""

    def declared(self, event: WarehouseDeclared) -> None:
        promised, self.ledger.graph = (
            self.ledger.graph.feeds,
            Graph(event.feeds, event.tables, self.ledger.graph.learned_us),
        )
        before_policy = self.policy
        self.name_policy(event.policy)
        if self.policy != before_policy or self.former_policy:
            self.runs.memory = {}  # of another policy
        self.tracks, self.cores, self.reading.updates = event.tracks, event.cores, event.updates
        old, self.ledger.tables = self.ledger.tables, {}
        again: list[TableState] = []
        for name in self.ledger.graph.order:
            table = self.ledger.graph.tables[name]
            before = old.pop(name, None) or self.files.retired.pop(name, None)
            state = self._begun(table, before)
            if self._redefined(state, table):
                again.append(state)
            self.ledger.tables[name] = state
        self._begin_with_followers(again)
        for state in again:
            self.runs.restate(state, event.at_us)
        self._promise_anew(promised, event.at_us)
        # What a base table holds is not lost when it is taken out: should it come back, it goes on from there.
        self.files.retired |= {name: state for name, state in old.items() if state.table.is_base and state.exists}
        self.ledger.former |= {name for name, state in old.items() if not state.table.is_base and state.exists}
        # A new view starts from what its sources already hold.
        for name, state in self.ledger.tables.items():
            if state.table.leader is not None:
                state.needs, state.held = pending(), pending()  # what its leader needs is enough
                continue
            if not self.ledger.graph.has_time[name]:
                state.edge_us = state.seen_us = None  # it is as its sources are, whatever it was
            elif not state.table.is_base:
                self.propagation.fall_back(
                    state, event.at_us
                )  # a source that is new to it, or is waited for now, may be less far
            self.propagation.advance(state, self.ledger.snapshot + 1, event.at_us, append=False)
            if not state.exists and not self.ledger.graph.has_time[name] and self.ledger.sources_exist(name):
                state.needs.add(EVERYTHING, restated(event.at_us, self.ledger.number))
            self._admit_again(state)
        self.backfills.settle_all(event.at_us)
        self.feeds.declare(event)
        self.ledger.touched.update(self.ledger.tables)
        self.waits.keep(self.ledger.tables)

    def _promise_anew(self, before: Mapping[str, Feed], at_us: int) -> None:
        """Base tables whose feed promises something else than before are complete as far as it promises now. What is made
        from them follows: to a later time as with new rows, to an earlier one at once."""
        for name in self.ledger.graph.order:
            state = self.ledger.tables[name]
            feed = self.ledger.graph.feeds.get(state.table.feed or "")
            old = before.get(state.table.feed or "")
            if feed is not None and old is not None and feed.markers and old.markers not in ("", feed.markers):
                # Others promise now: what they say is told after this.
                state.promised_us = None
                state.promises.clear()
            if feed is not None and old is not None and _promise(feed) != _promise(old):
                edge = self.files.promised_edge(state)
                if edge is not None and (state.edge_us is None or edge > state.edge_us):
                    self.propagation.complete(state, edge, at_us)
                elif edge != state.edge_us:
                    self.propagation.move_back(state, edge, at_us)

    def _admit_again(self, state: TableState) -> None:
        """What was held may be let through by the policy of now."""
        for start, end, need in state.held.remove(EVERYTHING) if state.held else ():
            edge = state.edge_us if state.edge_us is not None else BEGIN_US
            here = PartitionSet(((start, end),))
            # Beyond the edge it is, among other things, about new rows.
            new = here.within(state.table.grain.floor(edge), END_US) if NEW in state.table.propagate else EMPTY
            if not need.parked:
                self.ledger.require(state, new, need)
                here -= new
            self.ledger.admit(state, here, need)

    def _begun(self, table: Table, before: TableState | None) -> TableState:
        """What is known of a table under its declaration of now."""
        above = [
            self.ledger.tables[edge.source].anew
            for edge in self.ledger.graph.into[table.name]
            if edge.source != table.name
        ]
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
            self.ledger.former.add(table.name)
        elif not before.exists:
            state.emptied = before.emptied
        state.cost, state.counts, state.staleness = before.cost, before.counts, before.staleness
        if table.is_base and before.table.feed == table.feed:
            state.files, state.order, state.came, state.arrived = (
                before.files,
                before.order,
                before.came,
                before.arrived,
            )
            state.amount = before.amount
            state.said_us = _said(before) if before.table.time == table.time else None
            if anew != "files":  # else the markers are offered again with the files: they may be read otherwise
                state.promises = before.promises
        return state

    def _begin_with_followers(self, again: list[TableState]) -> None:
        """A leader makes everything again if one of those who follow it is another than before, and anew if one is new."""
        for leader, followers in self.ledger.graph.followers.items():
            state = self.ledger.tables[leader]
            others = [self.ledger.tables[name] for name in followers]
            if state.exists and any(not each.exists or each.anew for each in others):
                self.ledger.tables[leader] = state = self._begun_again(state)
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
            self.ledger.former.add(before.table.name)
        state.cost, state.counts, state.staleness = before.cost, before.counts, before.staleness
        state.files, state.order, state.came, state.arrived = before.files, before.order, before.came, before.arrived
        state.said_us = _said(before)
        return state

    def _redefined(self, state: TableState, table: Table) -> bool:
        """Whether what makes a table is another than before, though all that it holds is in the right place."""
        before, state.table = state.table, table
        if (before.logic, before.leader) == (table.logic, table.leader) or table.is_base:
            return False
        state.failed, state.attempt, state.error, state.retry_at_us = False, 0, None, None
        return True


def _promise(feed: Feed) -> tuple[object, ...]:
    """What a feed says of the rows that are still to come."""
    return feed.lateness_us, feed.punctuated, feed.markers, feed.mode, feed.timed


def _said(table: TableState) -> int | None:
    """Up to when a table was said to be complete."""
    return table.said_us if table.anew and table.edge_us is None else table.edge_us
