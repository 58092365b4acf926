"""Updates, from the start of a job to what it published, or to its failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.control.demand import QueryDemand
from penstock.control.events import (
    FaultMet,
    TablePublished,
    TableRetried,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
)
from penstock.control.feeds import Feeds
from penstock.control.files import Files
from penstock.model.grain import WHOLE
from penstock.model.partitions import EVERYTHING, Interval, PartitionSet
from penstock.model.time import BEGIN_US, END_US, SECOND_US
from penstock.requests.backfill import Backfills
from penstock.requests.job import Job, PublishedTable
from penstock.requests.ledger import Ledger
from penstock.requests.needs import Need, partitions_of, restated, united
from penstock.requests.propagation import Dated, Propagation, PublishedChange
from penstock.requests.tablestate import Running, TableState
from penstock.requests.waits import QueryWaits
from penstock.scheduling.jobs import FinishedJob
from penstock.scheduling.protocol import Saved

BACK_OFF_US = 1 * SECOND_US
LONGEST_BACK_OFF_US = 300 * SECOND_US


class Runs:
    """What runs, and what the policy has not seen of what ended."""

    def __init__(
        self,
        ledger: Ledger,
        propagation: Propagation,
        backfills: Backfills,
        feeds: Feeds,
        files: Files,
        waits: QueryWaits,
        reading: QueryDemand,
    ) -> None:
        self.reading = reading
        self.ledger = ledger
        self.propagation = propagation
        self.backfills = backfills
        self.feeds = feeds
        self.files = files
        self.waits = waits
        self.jobs = 0
        # What runs, by track; also jobs of tables that are no longer declared, until they end.
        self.busy: dict[int, Running] = {}
        # What the policy remembers, and the jobs that ended since its last decision on record, by number of the event.
        self.memory: Mapping[str, Any] = {}
        # What a policy that follows what happens remembered when the state was saved, and as of which event; what it remembers now.
        self.followed: dict[str, Any] = {}
        self._follows: Any = None
        self.unseen: dict[int, FinishedJob] = {}

    @property
    def on_tracks(self) -> dict[int, Running]:
        """What runs on tracks of ours, and not with an outside job."""
        return {track: running for track, running in self.busy.items() if track >= 0}

    def follow(self, memory: Any) -> None:
        self._follows, self.followed = memory, {}

    @property
    def remembered(self) -> dict[str, Any]:
        """What a policy that follows what happens remembers, in plain values, as of which event; empty if it cannot be written
        down."""
        memory = self._follows
        return {"applied": self.ledger.applied, "memory": memory.dump()} if isinstance(memory, Saved) else self.followed

    def started(self, event: UpdateStarted) -> None:
        self.jobs += 1
        running = Running(event.job, event.track, event.at_us, event.why)
        self.busy[event.track] = running
        if self.unseen and event.job.kind != "order":
            decided_at = event.decided_at or self.ledger.applied
            self.unseen = {number: done for number, done in self.unseen.items() if number > decided_at}
        if event.memory is not None:
            self.memory = event.memory
        for job in event.job.each:
            state = self.ledger.tables.get(job.table)
            if state is not None:  # else it was taken out of the warehouse just now
                state.running = running if job is event.job else replace(running, job=job)
                self._taken(state, job, event)

    def _taken(self, state: TableState, job: Job, event: UpdateStarted) -> None:
        self.ledger.touch(job.table)
        if job.files:
            state.loading = min(state.order.get(file.uri, state.arrived) for file in job.files)
        for file in job.files:
            if state.files.get(file.uri) == file:  # else other content came after the decision
                del state.files[file.uri], state.order[file.uri]
        state.withdrawn.difference_update(job.withdrawn)
        state.anew = ""
        if job.table in self.waits and not self._more_is_awaited(job.table):
            everything = EVERYTHING if state.table.is_base else PartitionSet()
            self.waits.started(job.table, everything | partitions_of(job.pieces))
        decided_at = event.decided_at or self.ledger.applied
        for piece in job.pieces:
            for start, end, need in state.needs.remove(PartitionSet(((piece.start_us, piece.end_us),))):
                here = PartitionSet(((start, end),))
                if need.last <= decided_at:
                    continue
                new = set(need.requests).difference(piece.need.requests)
                joins = not need.changed and not piece.need.append and job.kind == "derive"
                if joins and all(self.backfills.may_join(state, number) for number in new):
                    # It was only asked for again, and the job makes it from nothing.
                    for number in new:
                        self.backfills.join_running(state, here, number)
                else:
                    # Something changed after the decision, which the job will not see.
                    state.needs.add(here, need.rest(job.pin, job.edge_us, event.at_us))
        self._rest(state, job)
        state.amount = max(0.0, state.amount - job.news) if state.needs or state.files else 0.0

    def _rest(self, state: TableState, job: Job) -> None:
        """What a job leaves that goes up to some time inside of a partition."""
        if not job.makes_anew or job.edge_us is None or state.seen_us is None or state.seen_us <= job.edge_us:
            return
        grain = state.table.grain
        begin = BEGIN_US if grain is WHOLE else grain.floor(job.edge_us)
        for piece in job.pieces:
            here = PartitionSet.of((piece.start_us, piece.end_us)).within(begin, END_US)
            if here:
                left = piece.need.rest(job.pin, job.edge_us, piece.need.at_us)
                state.needs.add(here, replace(left, late=False, requests=(), came_us=piece.need.came_us))

    def _more_is_awaited(self, name: str) -> bool:
        """Whether an update that starts now cannot be all that is waited for, as what the table is made from is still to come."""
        above = self.ledger.graph.ancestors[name]
        return any(one in self.waits or self.ledger.tables[one].running is not None for one in above)

    def finished(self, event: UpdateFinished) -> None:
        for publication in event.publications:
            self.ledger.snapshot = max(self.ledger.snapshot, publication.snapshot)
        self._note(event)
        ended = self._ended(event.job, event.table)
        for state in ended:
            self._done(state, event, len(ended))
            if self.feeds.recovering:
                self.feeds.see_whether_recovered(state.table.name)

    def _done(self, state: TableState, event: UpdateFinished, together: int) -> None:
        running, state.running, state.loading = state.running, None, None
        state.overrun = state.stopped = False
        assert running is not None
        job = running.job
        state.last, state.last_finished_us, state.last_how = running, event.at_us, event.how
        state.attempt, state.error, state.retry_at_us, state.failed = 0, None, None, False
        state.deaths = 0
        if job.kind == "upkeep":
            state.small_files = 0
            if job.anew:  # it was emptied; what it is made of first is still the first of its declaration
                state.anew = job.anew
                self.ledger.former.difference_update(self.ledger.graph.made_with(job.table))
                for name in self.ledger.graph.made_with(job.table):
                    empty = self.ledger.tables[name]
                    empty.emptied, empty.reflects = self.ledger.snapshot, dict(job.reflects or ())
            state.merged_snapshot = max((p.snapshot for p in event.publications), default=state.merged_snapshot)
            return
        if job.anew:
            self.ledger.former.difference_update(self.ledger.graph.made_with(job.table))
        if job.table == event.table:
            amount = sum(each.amount for each in job.each)
            self.ledger.cost_of(job.table).observe(amount, event.seconds)
            if (periods := self._periods(state, job)) and amount:
                # What is read again in any case is read once, however many periods there are.
                news = sum(each.news for each in job.each)
                self.ledger.cost_of(job.table).observe_period(amount - news + news / periods)
            self._worked(job, event.seconds)
        state.counts.updates += 1
        state.counts.busy_s += event.seconds / together
        state.counts.folded += event.how.startswith("fold")
        state.counts.merged += max(0, len(job.files) + len(job.withdrawn) - 1)
        if job.files:
            for uri in {file.uri for file in job.files}.difference(state.files):
                state.again.discard(uri)
            newest = max(file.arrived_us for file in job.files)
            state.last_arrival_us = max(newest, state.last_arrival_us or BEGIN_US)
        for publication in event.publications:
            if publication.table == job.table:
                self._published(state, publication, job, event.at_us)
            elif (
                publication.table in self.ledger.graph.followers.get(job.table, ())
                and publication.table in self.ledger.tables
            ):
                self._published(self.ledger.tables[publication.table], publication, job, event.at_us)
                self._followed(self.ledger.tables[publication.table], state)
        for uri in state.came.keys() - state.files.keys():
            del state.came[uri]
        self._reload(state, event)
        self.files.keep_promises(state, event.at_us)
        if state.redefined:
            self.restate(state, event.at_us)
        if self.ledger.requests:
            self.backfills.count_made(state, job, event.at_us)

    def _worked(self, job: Job, seconds: float) -> None:
        """What outside jobs do costs our tracks nothing."""
        if job.kind != "order":
            self.reading.worked_s += seconds

    def _periods(self, state: TableState, job: Job) -> float:
        """How many periods of new data a job took; 0 if it made old partitions again, or nobody knows."""
        period = self.ledger.graph.periods_us[job.table]
        if any(piece.need.late for piece in job.pieces):
            return 0.0
        if job.files:
            last, newest = state.last_arrival_us, max(file.arrived_us for file in job.files)
            return max(1.0, (newest - last) / period) if last is not None else float(len(job.files))
        if job.complete_us is None or state.edge_us is None:
            return 0.0
        return max(0, job.complete_us - state.edge_us) / period

    def published_outside(self, event: TablePublished) -> None:
        """Others changed a table of their own accord."""
        publication = event.publication
        self.ledger.snapshot = max(self.ledger.snapshot, publication.snapshot)
        state = self.ledger.tables.get(event.table)
        if state is None:
            return
        self.ledger.touch(event.table)
        reflects = dict(state.reflects) if state.consistent else None
        job = Job(
            event.job,
            event.table,
            "order",
            publication.snapshot,
            reflects=tuple(sorted(reflects.items())) if reflects is not None else None,
        )
        state.last, state.last_finished_us = Running(job, -1, event.at_us, event.why), event.at_us
        state.last_how, state.anew = "handed over", ""
        state.counts.updates += 1
        self.ledger.former.discard(event.table)
        self._published(state, publication, job, event.at_us)

    def _note(self, event: UpdateFinished | UpdateFailed) -> None:
        """An end that the policy has not seen yet."""
        for track, running in self.busy.items():
            if running.job.id == event.job and running.job.kind not in ("upkeep", "order"):
                failed = isinstance(event, UpdateFailed)
                expected_s = running.job.expected_s
                self.unseen[self.ledger.number] = FinishedJob(
                    self.ledger.graph.updated_as.get(event.table, event.table),
                    track,
                    event.at_us,
                    expected_s,
                    event.seconds,
                    failed,
                )
                return

    def _followed(self, follower: TableState, leader: TableState) -> None:
        follower.last, follower.last_finished_us, follower.last_how = (
            leader.last,
            leader.last_finished_us,
            leader.last_how,
        )
        follower.seen_us, follower.anew = leader.seen_us, ""
        follower.counts.updates += 1

    def _reload(self, state: TableState, event: UpdateFinished) -> None:
        """Files that got other content while they were loaded: their old rows are in the table now and must go."""
        assert state.last is not None
        other = [file.uri for file in state.last.job.files if file.uri in state.files]
        if not other:
            return
        state.again.update(other)
        flows = self.ledger.graph.has_time[event.table]
        for publication in event.publications:
            if publication.table == event.table:
                had = PartitionSet.of(*publication.changed).hull(state.table.grain) if flows else EVERYTHING
                self.ledger.require(state, had, restated(event.at_us, self.ledger.number, "corrected"))

    def _ended(self, job: str, table: str) -> list[TableState]:
        """The tables whose running job ended; not those that are no longer declared, or if the job was given up."""
        names = [table]
        for track, running in self.busy.items():
            if running.job.id == job:
                names = [each.table for each in running.job.each]
                del self.busy[track]
                break
        for name in names:
            self.ledger.touch(name)
        known = (self.ledger.tables[name] for name in names if name in self.ledger.tables)
        return [state for state in known if state.running is not None and state.running.job.id == job]

    def _published(self, state: TableState, publication: PublishedTable, job: Job, at_us: int) -> None:
        name = state.table.name
        state.snapshot = publication.snapshot
        if state.table.is_origin:
            state.reflects, state.consistent = {name: publication.snapshot}, True
        else:
            state.consistent = job.reflects is not None and not publication.mixed
            state.reflects = dict(job.reflects) if job.reflects is not None and state.consistent else state.reflects
        state.counts.rows += publication.rows
        if publication.quarantined_rows is not None:
            state.counts.quarantined_rows = publication.quarantined_rows
            state.counts.late_rows = publication.late_rows
        state.small_files += publication.files
        if self._is_restated(state, publication, job):
            state.restated.note(at_us, self._came(job))
        self._measure(state, publication, job)
        begin = publication.begin_us
        if begin is None and not state.table.is_origin:
            begin = self.ledger.begin(name)  # no rows as yet, but that is known from there on
        if begin is not None and (state.begin_us is None or begin < state.begin_us):
            # Who reads all of it has partitions before its former begin now, which are not made yet.
            known = BEGIN_US if state.begin_us is None else state.begin_us
            publication = replace(publication, same=PartitionSet.of(*publication.same).within(known, END_US).intervals)
            state.begin_us = begin
        if job.files:
            self.feeds.note_ages(state, publication, max(file.arrived_us for file in job.files))
        if publication.leading_us is not None:
            state.leading_us = max(publication.leading_us, state.leading_us or BEGIN_US)
        if publication.complete_us is not None:
            # While it ran, its sources may have been declared to be less far.
            most = publication.complete_us if state.table.is_origin else self.ledger.tables[job.table].seen_us
            if most is not None:
                self.propagation.complete(state, min(most, publication.complete_us), at_us)
        if publication.left is not None:
            self._less_is_left(state, publication.left, at_us)
        if self.ledger.graph.out[name]:
            self.propagation.tell_readers(state, self._change(name, publication, job, at_us))

    def _measure(self, state: TableState, publication: PublishedTable, job: Job) -> None:
        """How much the table holds now."""
        if publication.append:
            delivered = 0 if job.pieces else sum(file.size_bytes for file in job.files)
            state.volume.added(publication.size_bytes, delivered)
        else:
            timed = self.ledger.graph.has_time[publication.table] and state.table.grain is not WHOLE
            changed = PartitionSet.of(*publication.changed).hull(state.table.grain) if timed else EVERYTHING
            state.volume.replaced(state.has_us, changed, publication.size_bytes)

    def _less_is_left(self, state: TableState, left: Interval, at_us: int) -> None:
        """A base table is complete as far as the rows tell that it has, not those that were taken back."""
        low, high = left
        state.leading_us = high - 1 if low < high else None
        edge = self.files.promised_edge(state)
        if state.edge_us is not None and (edge is None or edge < state.edge_us):
            self.propagation.move_back(state, edge, at_us)
            self.backfills.settle_all(at_us)

    def _came(self, job: Job) -> set[int]:
        """When that came for which a job was: its files, and what users asked for."""
        asked = (self.ledger.requests.get(number) for piece in job.pieces for number in piece.need.requests)
        came = {request.at_us for request in asked if request is not None and request.table == job.table}
        return came | {file.arrived_us for file in job.files}

    def _is_restated(self, state: TableState, publication: PublishedTable, job: Job) -> bool:
        """Whether old rows of a table changed by something from outside."""
        if not state.table.is_origin:
            asked = (self.ledger.requests.get(number) for piece in job.pieces for number in piece.need.requests)
            return any(request is not None and request.table == state.table.name for request in asked)
        if job.pieces or not self.ledger.graph.has_time[state.table.name]:
            return True
        return state.edge_us is not None and any(start < state.edge_us for start, _ in publication.changed)

    def _change(self, name: str, publication: PublishedTable, job: Job, at_us: int) -> PublishedChange:
        """The publication with the times of the changes behind it: those of the base tables, however long ago."""
        edge_at = at_us
        found: dict[tuple[int, tuple[int, ...], bool, int, int, tuple[str, ...]], list[Interval]] = {}
        came = self.ledger.tables[job.table].since_us(job.files) or 0
        for piece in job.pieces:
            need = piece.need
            oldest = min(need.oldest_us, came) if came else need.came_us
            key = (need.at_us, need.requests, self._stays(need), need.upto_us, oldest, need.reasons)
            found.setdefault(key, []).append((piece.start_us, piece.end_us))
            if not need.late:
                edge_at = min(edge_at, need.at_us)
        others = (at_us, (), False, 0, came, self._reasons(name, job))
        if not self.ledger.graph.has_time[name]:
            keys = list(found) if not job.files else [*found, others]
            ranges = tuple(Dated(EVERYTHING, *key) for key in keys or [others])
        elif len(found) == 1 and job.makes_anew:
            ranges = (Dated(PartitionSet.of(*publication.changed), *next(iter(found))),)
        else:
            rest = PartitionSet.of(*publication.changed)
            dated = []
            for key, where in found.items():
                part = rest & PartitionSet.of(*where)
                dated.append(Dated(part, *key))
                rest -= part
            ranges = tuple(each for each in (*dated, Dated(rest, *others)) if each.where)
        same = PartitionSet.of(*publication.same)
        return PublishedChange(publication.snapshot, publication.append, ranges, edge_at, publication.size_bytes, same)

    def _reasons(self, name: str, job: Job) -> tuple[str, ...]:
        """What the rows that files bring are called, where they are older than what was there."""
        if job.kind != "load":
            return ()
        if job.anew:
            return united(("logic",), self._why_changed(name))
        feed = self.ledger.graph.feeds[self.ledger.tables[job.table].table.feed or ""]
        found = {feed.reason_of(file.uri) for file in job.files} | {
            reason for piece in job.pieces for reason in piece.need.reasons
        }
        return tuple(sorted(({"late"} if not found & {"corrected", "withdrawn"} else set()) | found - {""}))

    def _why_changed(self, name: str) -> tuple[str, ...]:
        reason = self.ledger.tables[name].table.reason
        return (reason,) if reason else ()

    def _stays(self, need: Need) -> bool:
        """Whether a change was to be made in this table and no other."""
        if need.changed or not need.requests:
            return False
        known = [self.ledger.requests[number] for number in need.requests if number in self.ledger.requests]
        return all(not request.downstream for request in known)

    def failed(self, event: UpdateFailed) -> None:
        self._note(event)
        for state in self._ended(event.job, event.table):
            self._gave_up(state, event)

    def _gave_up(self, state: TableState, event: UpdateFailed) -> None:
        running = state.running
        assert running is not None
        self.give_back(state, event.at_us)
        state.counts.failures += 1
        if running.job.kind == "upkeep":
            state.small_files = 0
            return
        job = running.job
        if job.table == event.table:
            self.ledger.cost_of(job.table).observe_failure(sum(each.amount for each in job.each), event.seconds)
            self._worked(job, event.seconds)
        state.error = event.error
        state.attempt += 1
        if event.final or state.attempt >= state.table.attempts:
            state.failed, state.retry_at_us = True, None
        else:
            state.retry_at_us = event.at_us + min(LONGEST_BACK_OFF_US, BACK_OFF_US << min(state.attempt - 1, 20))

    def stopped(self, event: UpdateStopped) -> None:
        """Given up in favour of what came meanwhile: with that its work is pending again."""
        for state in self._ended(event.job, event.table):
            self.give_back(state, event.at_us)
            state.stopped = True

    def interrupted(self, event: FaultMet) -> None:
        """An update that the world did not let end: it is pending again, as if it had not been tried."""
        for state in self._ended(event.job, event.table):
            self.give_back(state, event.at_us)
            if event.part == "spark":
                # What ends Spark each time is no fault of the world: an update that needs more memory than there is.
                state.deaths += 1
                if state.deaths >= state.table.attempts:
                    state.failed, state.retry_at_us = True, None
                    state.error = f"each time that it was updated Spark ended: {event.reason}"
                    state.counts.failures += 1

    def retried(self, event: TableRetried) -> None:
        for name in self.ledger.graph.grouped_with(event.table):
            state = self.ledger.tables.get(name)
            if state is not None:
                state.try_anew()
                self.ledger.touched.add(name)

    def give_back(self, state: TableState, at_us: int) -> None:
        """A job that did not finish: its work is pending again, older files first as before."""
        running, state.running = state.running, None
        assert running is not None
        self.busy.pop(running.track, None)
        job = running.job
        bad = self.files.quarantine
        files = {
            file.uri: file
            for file in job.files
            if file.uri not in state.withdrawn and (file.uri not in bad or bad[file.uri].file != file)
        }
        for uri, file in files.items():
            if state.files.get(uri, file) != file:
                state.came.setdefault(uri, file.arrived_us)
        if files and state.loading is not None:
            state.order |= dict.fromkeys(files, state.loading)
        state.files = files | state.files
        state.withdrawn |= set(job.withdrawn).difference(state.files)
        state.anew = job.anew or state.anew
        state.loading, state.redefined, state.overrun = None, False, False
        grain = state.table.grain
        for piece in job.pieces:
            need = self.backfills.still_wanted(piece.need)
            if need is not None:
                self.ledger.require(state, PartitionSet.of(grain.hull(piece.start_us, piece.end_us)), need)
        state.amount += job.news
        self.backfills.settle_work(state, (number for piece in job.pieces for number in piece.need.requests), at_us)
        self.ledger.touched.add(state.table.name)

    def give_all_back(self, at_us: int) -> None:
        """The process that ran them is gone: everything that was running is pending again. Outside jobs go on."""
        self.busy = {track: running for track, running in self.busy.items() if track < 0}
        for state in self.ledger.tables.values():
            if state.running is not None and state.running.track >= 0:
                self.give_back(state, at_us)

    def forget_ended(self) -> None:
        """A policy that was not there yet need not see what ended."""
        self.unseen.clear()

    def restate(self, state: TableState, at_us: int) -> None:
        """Everything that the table has must be made again."""
        state.redefined = state.running is not None
        if state.exists:
            self.ledger.reason(state, self.ledger.extent(state))
            need = restated(at_us, self.ledger.number, "logic", state.table.reason)
            self.ledger.require(state, self.ledger.extent(state), need)
