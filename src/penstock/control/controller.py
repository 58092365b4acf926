"""Events in, commands out. The simulator and the live engine drive this same object: `apply` folds one event, `decide`
says what to start now, `wake_at_us` when to ask again even if nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from penstock.control.events import (
    DemandSeen,
    Event,
    FaultMet,
    FeedCameBack,
    FeedResumed,
    FileArrived,
    RunStarted,
    StartUpdate,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
    WarehouseDeclared,
)
from penstock.control.feeds import Recovering
from penstock.control.job_building import build_job
from penstock.control.outlook import LearnedOutlook
from penstock.control.readiness import Work, blocked, ready_group, ready_job, ready_work
from penstock.control.state import State
from penstock.model.time import END_US
from penstock.requests.in_flight import InFlight
from penstock.requests.tablestate import TableState, lag_us
from penstock.requests.windows import closes_us
from penstock.scheduling import guard
from penstock.scheduling.jobs import (
    Fact,
    Outlook,
    ReadyJob,
    ReadyJobs,
    RunningJob,
    Situation,
    Start,
)
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import UpdatePolicy, powers

_NOBODY: frozenset[str] = frozenset()


class Controller:
    def __init__(
        self, state: State | None = None, policy: UpdatePolicy | None = None, outlook: Outlook | None = None
    ) -> None:
        self.state = state or State()
        self._given = policy
        self._learned = LearnedOutlook(self.state)
        self.outlook = outlook or self._learned
        self._memory: Any = {}  # of a policy that follows what happens; of others it is in the state
        self._woken: int | None = None
        self._set_policy()

    def _set_policy(self) -> None:
        self.policy = bound(self._given or find_policy(self.state.policy), self.state.graph)
        graph = self._bound_to = self.state.graph
        can = powers(self.policy)
        self.state.follow_policy(can.cuts(graph), can.weights_in(graph), can.kept)
        self.ready = can.no_jobs()
        # What outside jobs could do now: no policy ranks it, as it takes no track.
        self.orders: dict[str, ReadyJob] = {}
        # Tables with late work, which depends on all that are above them; and those that pause, or hold late work back.
        self._late: set[str] = set()
        self._late_below: dict[str, set[str]] = {}
        self._pausing: dict[str, int] = {}
        # Tables with work that has waited long enough, and for which others.
        self._waited: dict[str, frozenset[str]] = {}
        # Tables that are held up, as policies know them; and since when others could start that were.
        self._held: set[str] = set()
        self._able_us: dict[str, int] = {}
        self._paused_until_us = END_US
        # What is collected together with a table that has started goes with it.
        self._joining: set[str] = set()
        self.state.touch(self.state.tables)
        self._follows, self._resumes = can.follows, can.resumes
        if self._follows is not None:
            exact = self.state.runs.followed.get("applied") == self.state.applied
            self._begin(None if exact else self.state.now_us)
        else:
            self.state.runs.follow(None)

    def _begin(self, at_us: int | None) -> None:
        """A policy that follows what happens starts from what is known now, and from what it remembers: also of the process
        before, if that went by such a policy. Not at the state's own time, which also moves with decisions that are not on
        record. Without a time, nothing happened since."""
        state, policy = self.state, self._follows
        assert policy is not None
        before = state.runs.remembered
        self._held.clear()
        self._able_us.clear()
        state.touch(state.tables)
        if before.get("applied") != state.applied:
            before = {}  # it missed what happened since
        self._memory = guard.attempt(policy.begin, state.tracks, self.outlook)
        runs = {name for name in state.graph.updated_with if self._runs(name)}
        resumes = self._resumes if before else None
        if resumes is not None:
            guard.attempt(resumes.resume, self._memory, before["memory"], runs, at_us)
        if at_us is not None:
            for name in state.graph.updated_with:
                self._tell(Fact(at_us, name, "lags", self._lag_us(name)))
                if resumes is None and name in runs:
                    self._tell(Fact(at_us, name, "starts", 0))
        state.runs.follow(self._memory)

    def _runs(self, name: str) -> bool:
        tables = (self.state.tables[each] for each in self.state.graph.grouped_with(name))
        return any(table.running is not None for table in tables)

    def _tell(self, fact: Fact) -> None:
        assert self._follows is not None
        guard.attempt(self._follows.follow, self._memory, fact, self.outlook)

    def apply(self, event: Event, number: int | None = None) -> None:
        if self._follows is None or isinstance(event, RunStarted | WarehouseDeclared):
            self._apply(event, number)
            if self._follows is not None:
                self._begin(event.at_us)
            return
        while (until_us := self._paused_until_us) < event.at_us:
            self.state.tick(until_us)
            self._refresh()
            if self._paused_until_us <= until_us:
                break
        graph = self.state.graph
        state = self.state
        before = state.take_touched()
        ended = self._ending(event)
        recovering = dict(state.recovering) if isinstance(event, FeedCameBack | FeedResumed) else None
        self._apply(event, number)
        known = state.graph.planned_as
        if isinstance(event, UpdateStarted) and event.job.table in known:
            self._able_us.pop(known[event.job.table], None)
            self._tell(Fact(event.at_us, known[event.job.table], "starts", 0, event.able_us))
        elif ended is not None and ended in state.graph.updated_with:
            self._tell(Fact(event.at_us, ended, "ends", self._lag_us(ended)))
        # In the order of the tables: sets have none.
        for name in sorted({known[each] for each in state.touched if each in known} - {ended}):
            self._tell(Fact(event.at_us, name, "lags", self._lag_us(name)))
        if recovering is not None:
            for name in self._owed(recovering):
                self._tell(Fact(event.at_us, name, "owed", 0))
        state.touch(before)
        if state.graph is not graph:  # how often a feed delivers is known now
            self._set_policy()
        if not isinstance(event, FileArrived):  # of which many come at once, and none holds anything up
            self._refresh()

    def _owed(self, before: Mapping[str, Recovering]) -> list[str]:
        """The tables that an outage reached which is over now, as policies know them."""
        state = self.state
        new = [name for name, found in state.recovering.items() if before.get(name) != found]
        return sorted({state.graph.updated_as[name] for name in new})

    def _lag_us(self, name: str) -> int:
        """How far a table, or one of its group, is behind what it may take up."""
        state = self.state
        return max(
            0 if state.paused(table) is not None else lag_us(state.graph, table)
            for table in (state.tables[each] for each in state.graph.grouped_with(name))
        )

    def _ending(self, event: Event) -> str | None:
        """The table whose update an event ends, as policies know it."""
        if isinstance(event, UpdateFinished | UpdateFailed | UpdateStopped | FaultMet):
            table = self.state.tables.get(event.table)
            running = table.running if table is not None else None
            if running is not None and running.job.id == event.job:
                return self.state.graph.updated_as[event.table]
        return None

    def _apply(self, event: Event, number: int | None) -> None:
        self.state.apply(event, number)
        if isinstance(event, WarehouseDeclared):
            self._learned.declared()
            self._set_policy()
        elif isinstance(event, DemandSeen):
            # Who may start, and how soon, may be others now.
            self.state.touch((*self.ready, *self._pausing))
        elif isinstance(event, UpdateStarted):
            self._joining.update(self.state.graph.together.get(event.job.table, ()))
        elif isinstance(event, UpdateFinished | UpdateFailed):
            self._learned.finished(self.state.graph.updated_as.get(event.table, event.table))

    def decide(self, now_us: int) -> list[StartUpdate]:
        state = self.state
        state.tick(now_us)
        self._refresh()
        self._woken = None
        pause_us = state.faults.pauses_until_us
        if pause_us > state.now_us:
            self._woken = pause_us
            return []
        orders = self._issued()
        free = tuple(track for track in range(state.tracks) if track not in state.busy)
        if state.faults.open:  # one after the other, until one ends: who meets a fault each time shows by that
            free = free[:1] if not state.on_tracks else ()
        if not free or not self.ready:
            return orders
        known = state.graph.updated_as
        running = {
            track: RunningJob(known.get(job.job.table, job.job.table), track, job.started_us, job.job.expected_s)
            for track, job in state.on_tracks.items()
        }
        situation = Situation(
            state.now_us,
            self.ready,
            running,
            free,
            state.tracks,
            MappingProxyType(state.memory) if self._follows is None else self._memory,
            tuple(state.unseen.values()),
            self.outlook,
            self._able_us,
        )
        decision = guard.decide(self.policy, situation)
        self._woken = decision.wake_at_us
        # What is remembered goes on record with what is started. A decision that starts nothing leaves no trace: else a
        # replay, which does not know of it, would decide otherwise later.
        memory = None if self._follows is not None or decision.memory == state.memory else dict(decision.memory)
        first = 1 + len(orders)
        return orders + [
            StartUpdate(
                build_job(state, state.tables[start.table], self.ready[start.table], state.jobs + number, start.take),
                start.track,
                self._because(start),
                state.now_us,
                memory if number == first else None,
                self._able_us.get(start.table),
            )
            for number, start in enumerate(self._first_who_is_awaited(decision.starts, len(free)), first)
        ]

    def _issued(self) -> list[StartUpdate]:
        """Work orders for all that outside jobs can do now. Each has a place of its own beside the tracks."""
        state = self.state
        found = []
        for number, name in enumerate(sorted(self.orders), state.jobs + 1):
            job = build_job(state, state.tables[name], self.orders[name], number)
            moved = [source for source, version in job.inputs if version > state.tables[name].snapshot]
            why = f"reads {', '.join(moved)}, which changed" if moved else "is to be made again"
            found.append(StartUpdate(job, -number, why + self._no_more(name), state.now_us))
        return found

    def _first_who_is_awaited(self, starts: Sequence[Start], free: int) -> Sequence[Start]:
        """A table that a query waits for may become ready at any moment, when its source is loaded: a track is kept for
        it, as updates are not interrupted."""
        state = self.state
        if state.updates != "demand" or not state.awaited:
            return starts
        waiting = state.awaited.ends(state.now_us)
        outside = (name for name in state.graph.order if state.tables[name].table.external)
        begun = (running.job.table for running in state.busy.values())
        for name in (*(start.table for start in starts), *begun, *outside):
            for each in state.graph.grouped_with(name):
                waiting.pop(each, None)
        kept: list[Start] = []
        spare = free - len(waiting) - sum(self.ready[start.table].awaited_us is not None for start in starts)
        for start in starts:
            until = state.reading.gives_way_until(self.ready[start.table])
            if until <= state.now_us:
                kept.append(start)
            elif spare > 0:
                kept.append(start)
                spare -= 1
            else:
                until = min(until, 1 + min(waiting.values(), default=until))
                self._woken = until if self._woken is None else min(self._woken, until)
        return kept

    def _because(self, start: Start) -> str:
        hurry = self.ready[start.table].awaited_us is not None
        why = guard.reason(start) + self._no_more(start.table)
        return f"is what a query waits for; it {why}" if hurry else why

    def _no_more(self, name: str) -> str:
        """For what an update does not wait any more."""
        tables = self.state.graph.grouped_with(name)
        waited = sorted({each for one in tables for each in self._waited.get(one, ())})
        return f"; it waited long enough for what comes through {', '.join(waited)}" if waited else ""

    def _refresh(self) -> None:
        """Ask again about the tables that an event touched, those with late work below them, and those whose pause or
        hold is over. Everything else is as ready as it was: what is known here never depends on when it was asked."""
        state = self.state
        if state.graph is not self._bound_to:  # how often a feed delivers is known now
            self._set_policy()
        touched = state.take_touched()
        names = set(touched)
        for name in touched:
            names |= self._late_below.get(name, _NOBODY)
        names |= self._joining
        self._joining = set()
        if self._paused_until_us <= state.now_us:
            names.update(name for name, until in self._pausing.items() if until <= state.now_us)
        paused = dict(self._pausing)
        settling = InFlight(state)  # one look at what is on its way, for all that are asked
        groups: set[str] = set()
        for name in names:
            table = state.tables.get(name)
            group = table.table.group if table is not None else None
            if group is None:
                self._ask(name, settling)
            elif group not in groups:
                groups.add(group)
                self._ask_group([state.tables[member] for member in state.graph.groups[group]], settling)
        if self._follows is not None:
            for name in {state.graph.updated_as[each] for each in names if each in state.graph.planned_as}:
                over = (
                    us for each in state.graph.grouped_with(name) if (us := paused.get(each, END_US)) <= state.now_us
                )
                self._note_held(name, max(over, default=state.now_us))
        self._paused_until_us = min(self._pausing.values(), default=END_US)

    def _note_held(self, name: str, until_us: int) -> None:
        """Whether something keeps the work of a table from starting, or did so until some time. Its own updates, one after the
        other, are no such thing. It follows from the log alone: events are what it is asked at, and ends of pauses."""
        tables = [self.state.tables[each] for each in self.state.graph.grouped_with(name)]
        if name in self.ready and not self.ready[name].upkeep:
            if name in self._held:
                self._held.discard(name)
                self._able_us[name] = until_us
        elif all(table.running is None for table in tables) and any(table.needs or table.files for table in tables):
            self._held.add(name)
            self._able_us.pop(name, None)
        else:
            self._held.discard(name)

    def _ask_group(self, members: Sequence[TableState], settling: InFlight) -> None:
        """Tables that are updated together are one job, by the name of the first of them. Only merging of small files is
        done for each by itself."""
        job, works = ready_group(self.state, members, settling)
        for table in members:
            name = table.table.name
            self._pausing.pop(name, None)
            self.ready.discard(name)
            until = self._pauses_until(table) if job is None else None
            if until is not None and until < END_US:
                self._pausing[name] = until
            self._pause(name, works[name])
            self._watch(name, works[name].late)
        if job is not None:
            self.ready.put(job)
        elif not any(table.needs or table.running for table in members):
            for table in members:
                upkeep = ready_job(self.state, table)
                if upkeep is not None:
                    self.ready.put(upkeep)

    def _ask(self, name: str, settling: InFlight) -> None:
        table = self.state.tables.get(name)
        self._pausing.pop(name, None)
        self.orders.pop(name, None)
        work = Work()
        if table is None:
            self.ready.discard(name)
        else:
            if not table.table.is_base and blocked(self.state, table) is None:
                work = ready_work(self.state, table, settling=settling)
            job = ready_job(self.state, table, work)
            if job is not None and table.table.external and not job.upkeep:
                self.orders[name] = job
                self.ready.discard(name)
            elif job is not None:
                self.ready.put(job)
            else:
                self.ready.discard(name)
                until = self._pauses_until(table)
                if until is not None and until < END_US:
                    self._pausing[name] = until
        self._pause(name, work)
        self._watch(name, work.late)

    def _pause(self, name: str, work: Work) -> None:
        """Late work that waits does so until some time at most."""
        self._waited.pop(name, None)
        if work.waited_for:
            self._waited[name] = work.waited_for
        until = min(work.settles_us, work.deferred.until_us if work.deferred is not None else END_US)
        if until < END_US:
            self._pausing[name] = min(until, self._pausing.get(name, END_US))

    def _pauses_until(self, table: TableState) -> int | None:
        """When it can be ready by itself, though nothing happens: after a failure, or because it is read seldom."""
        if table.failed or table.running is not None:
            return None
        times = [table.retry_at_us or 0]
        if table.needs or table.files:
            times.append(self.state.deferred_until(table) or 0)
            if table.table.is_base:
                times.append(closes_us(self.state, table) or 0)
        return max(times) if max(times) > self.state.now_us else None

    def _watch(self, name: str, late: bool) -> None:
        if late == (name in self._late):
            return
        (self._late.add if late else self._late.discard)(name)
        for above in self.state.graph.ancestors[name]:
            below = self._late_below.setdefault(above, set())
            (below.add if late else below.discard)(name)

    @property
    def memory(self) -> Any:
        """That of a policy that follows what happens."""
        return self._memory

    @property
    def able_us(self) -> Mapping[str, int]:
        """Since when tables with work could start that were held up before."""
        return self._able_us

    def ready_now(self) -> ReadyJobs:
        self._refresh()
        return self.ready

    @property
    def wake_at_us(self) -> int | None:
        times = [*self._pausing.values(), *([self._woken] if self._woken is not None else [])]
        if self._joining:
            times.append(self.state.now_us + 1)
        return min(times, default=None)

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing could run, and nothing will by itself. What outside jobs do is not ours to wait for."""
        self._refresh()
        quiet = not (self.orders or self._pausing or self.state.on_tracks)
        return quiet and all(job.upkeep for job in self.ready.values())
