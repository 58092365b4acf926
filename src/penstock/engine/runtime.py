"""The live runtime: the thin driver between the world and the core.

One thread folds the log, decides and hands jobs to tracks; each track is a thread with a Spark session and a scheduler
pool of its own. Everything that happens goes through the log first, also what other processes ask for (`penstock retry`
just appends an event), so that the state of the core is always the fold of what the store has.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FaultEnded,
    FaultMet,
    FileQuarantined,
    RunStarted,
    RunStopped,
    UpdateFailed,
    UpdateFinished,
    UpdateStopped,
)
from penstock.control.orders import open_orders, void_orders
from penstock.control.premises import PremiseWatch
from penstock.control.snapshot import dump
from penstock.control.views.health import FeedWatch
from penstock.declare.warehouse import Definitions
from penstock.engine.arrivals.intake import Arrivals, offered
from penstock.engine.arrivals.schemas import FeedSchemas
from penstock.engine.arrivals.watcher import Lookout
from penstock.engine.clock import WallClock
from penstock.engine.declarations import declared, restored_controller, restored_state
from penstock.engine.external.commit_watcher import Lake
from penstock.engine.external.dispatch import OrderDispatcher
from penstock.engine.external.followed_replicas import ReplicaFollower
from penstock.engine.external.report import Reports
from penstock.engine.faults import NotAvailable, WorldFault, fault_of
from penstock.engine.flows.progress import Watched
from penstock.engine.flows.work import Kept, quarantine_of
from penstock.engine.log import SPARK_FILE, keep_small, log_event
from penstock.engine.ports import Clock, Compute, Computed, Storage
from penstock.engine.spark.session import ENDED, has_ended, is_alive, session_in
from penstock.engine.spark.work import SparkWork
from penstock.engine.storage import LocalStorage
from penstock.engine.updates.cleanup import sweep, swept, unpublished
from penstock.engine.updates.executor import Executor
from penstock.engine.updates.recent import RecentRows
from penstock.engine.upkeep.identity import Identity, NotOurs
from penstock.engine.upkeep.replication import Replication
from penstock.engine.upkeep.retention import check_presence, expire
from penstock.errors import PenstockError
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.queries.situation import Updates
from penstock.requests.job import Job
from penstock.store.lock import RunLock
from penstock.store.store import Store
from penstock.tables import Catalogue

_log = logging.getLogger(__name__)
SNAPSHOT_EVERY = 2_000
EXPIRE_EVERY_S = 60.0
MARK_EVERY_S = 5.0
# Between two questions to a store that does not answer.
STORE_PAUSE_S = 0.2
LONGEST_STORE_PAUSE_S = 5.0
# What is cancelled ends within so long, or is left to itself: it can publish nothing any more.
CANCEL_S = 15.0
CANCEL_AT_ONCE_S = 2.0
# How many results of the largest size that are written by this process are kept for who reads them next.
RECENT_TIMES = 8


@dataclass(frozen=True)
class Pace:
    """How often the world is looked at."""

    scan_s: float = 0.2
    log_s: float = 0.5


@dataclass
class StoreAway:
    """The store does not answer, which it cannot say itself."""

    since_us: int
    fault: WorldFault
    pause_s: float


class Runtime:
    def __init__(
        self,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        session: Callable[[], SparkSession],
        clock: Clock | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.storage: Storage = LocalStorage(catalogue.data_path)
        self.clock = clock or WallClock()
        self.pace = pace or Pace()
        self.owner = f"run-{uuid.uuid4().hex[:12]}"
        self.controller = Controller()
        self.watch = FeedWatch(self.controller.state)
        self.premises = PremiseWatch(self.controller)
        self.updates: Updates = "always"
        self._session = session
        self.identity = Identity(warehouse.declarations.config.name, store, catalogue)
        self._lock = RunLock(store, warehouse.declarations.state_folder / "run.lock")
        self._news = threading.Event()
        self._stop = threading.Event()
        self._broken: list[BaseException] = []
        self._tracks: list[_Track] = []
        self._saved = 0
        self._expired_at = self._marked_at = monotonic()
        # From when on running updates are cancelled, and when they are given up; once somebody asked to stop.
        self._cancel_at = self._leave_at = float("inf")
        # The jobs that tracks have, by id: others that the state takes for running are nobody's.
        self._handed: set[str] = set()
        self._spark: SparkSession | None = None
        self._store_away: StoreAway | None = None
        # A flow that failed may be tried again on another track.
        self._kept_of_flows = Kept()
        self.flows = Watched()
        # What a level of a chain has written, the next one reads, also on another track.
        limit = warehouse.declarations.config.run.driver_bytes
        self._recent = RecentRows(RECENT_TIMES * limit, limit)
        # Called with each event as it is folded, for those who show what happens.
        self.on_event: Callable[[int, Event], None] = lambda _number, _event: None
        # Called when the store does not answer, which cannot be on record until it does.
        self.on_fault: Callable[[WorldFault], None] = lambda _fault: None
        self.replication = Replication(warehouse, store, catalogue, self.clock.now_us)
        self.schemas = FeedSchemas(warehouse, store)
        self.arrivals = Arrivals(
            store, warehouse.declarations.folder, list(warehouse.feeds.values()), self.schemas.known, self.clock.now_us
        )
        self.lookout = self._lookout()
        self.lake = Lake(warehouse, store, catalogue)
        self.followed = ReplicaFollower(warehouse, store, catalogue)
        self._watched_at = float("-inf")
        self.telling = OrderDispatcher(warehouse, store, self._command_failed, self.wake)

    # Life

    def start(self, standby: bool = False, on_wait: Callable[[str], None] = lambda _who: None) -> None:
        """Take the project over: nobody else runs it, what a dead process left is given back and swept. `standby`: as soon as nobody does."""
        self._lock.acquire(self.owner, standby, on_wait)
        try:
            self._start()
        except BaseException:
            self._lock.release()
            raise

    def _start(self) -> None:
        self.identity.check()
        check_presence(self.store, self.catalogue)
        self.identity.taken_by(self.owner)
        self.controller = restored_controller(self.store)
        self.watch = FeedWatch(self.controller.state)
        self.premises = PremiseWatch(self.controller)
        self._saved = self.controller.state.applied
        now_us = self.clock.now_us()
        before = self.controller.state.graph
        with self.store.write() as conn:
            new = offered(self.warehouse, self.store, conn, self.controller.state, self.arrivals, now_us)
            now = declared(self.warehouse, self.store, conn, now_us, self.updates, remember=True)
            self.store.append(conn, [RunStarted(now_us, self.owner), now, *new])
        self.tail()
        self._sweep(before)

    def _sweep(self, before: Graph) -> None:
        """Staged files that no transaction published: their job died, and will be done again."""
        jobs, upto = unpublished(self.store)
        for job in jobs:
            also = {name for graph in (before, self.warehouse.graph) for name in _made_with(graph, job.tables)}
            flows = (self.warehouse.definitions[name].flow for name in job.tables if name in self.warehouse.definitions)
            also |= {quarantine_of(flow.flow.name) for flow in flows if flow is not None}
            sweep(self.store, self.catalogue, self.storage, job, sorted(also))
        swept(self.store, upto)
        with self.store.read() as conn:
            scheduled = self.catalogue.scheduled(conn)
        shutil.rmtree(self.warehouse.declarations.state_folder / "reading", ignore_errors=True)
        self._delete(scheduled)

    def _delete(self, paths: list[str]) -> None:
        """What the catalogue has forgotten. Files that others wrote, and it only listed, are theirs to delete."""
        ours = [path for path in paths if self.storage.written_by_a_job(path)]
        elsewhere = [path for path in paths if not self.storage.is_inside(path)]
        if elsewhere:
            # Nor may another program that tidies the catalogue delete what was only handed over.
            with self.store.write() as conn:
                self.catalogue.forget(conn, elsewhere)
        if ours:
            self.store.flush()
            self.storage.delete(ours)
            with self.store.write() as conn:
                self.catalogue.forget(conn, ours)

    def wake(self) -> None:
        """The log has something new."""
        self._news.set()

    def stop(self, at_once: bool = False) -> None:
        """Ask the loop to end: running updates may end within the grace period, then they are cancelled. Asked again, or `at_once`: now."""
        now = monotonic()
        grace_s = self.warehouse.declarations.config.run.grace / SECOND_US
        self._cancel_at = now if at_once or self._stop.is_set() else min(self._cancel_at, now + grace_s)
        self._leave_at = min(
            self._leave_at, self._cancel_at + (CANCEL_S if self._cancel_at > now else CANCEL_AT_ONCE_S)
        )
        self._stop.set()
        self._news.set()

    def close(self) -> None:
        left = [track for track in self._tracks if not track.end(max(0.0, min(60.0, self._leave_at - monotonic())))]
        self.arrivals.close()
        if not self._broken:
            with self.store.write() as conn:
                mine = self.store.fact(conn, "owner") == self.owner
                if mine:
                    self.store.append(conn, [RunStopped(self.clock.now_us(), self.owner)])
                    if left:  # what they still do must not count
                        self.store.set_fact(conn, "owner", f"{self.owner}, stopped")
            if mine:
                self.tail()
                self._save_state()
                self.identity.keep_up()
        self._lock.release()

    # The loop

    def run(self, until_idle: bool = False, on_round: Callable[[], None] = lambda: None) -> None:
        self.replication.start()
        self.lookout.start()
        try:
            self._loop(until_idle, on_round)
        finally:
            self.lookout.stop()
            self.telling.stop()
            self.replication.stop(finish=until_idle and not self._broken)

    def _loop(self, until_idle: bool, on_round: Callable[[], None]) -> None:
        ended = False
        while not ended:
            try:
                ended = self._round(until_idle, on_round)
            except Exception as error:
                fault = fault_of(error)
                if fault is None or fault.part != "store" or not self._store_is_back(fault):
                    raise

    def _round(self, until_idle: bool, on_round: Callable[[], None]) -> bool:
        """Look, fold, decide once; gives whether that was all."""
        found = self.lookout.found()
        self.tail()
        self._tell_store_is_back()
        if monotonic() - self._marked_at >= MARK_EVERY_S:
            self._marked_at = monotonic()
            self._keep_up_mark()
            declarations = self.warehouse.declarations
            config = declarations.config.log
            keep_small(declarations.state_folder / SPARK_FILE, config.size, config.keep)
        self._watch_spark()
        self._watch()
        self._stop_overrun()
        self._keep_orders()
        others = self._watch_others()
        stopping = self._stop.is_set()
        started = 0 if stopping else self.decide()
        on_round()
        if self._broken:
            raise self._broken[0]
        if stopping and (not self.controller.state.on_tracks or self._cancel_running()):
            return True
        if started or found or others:
            return False
        if until_idle and self.lookout.is_done(self.controller.idle and not self.telling.busy):
            return True
        self._maintain()
        self._wait()
        return False

    def _cancel_running(self) -> bool:
        """After the grace period: stop what runs; gives whether it is not waited for any longer."""
        if monotonic() >= self._cancel_at:
            for number, running in self.controller.state.on_tracks.items():
                self._track(number).stop(running.job)
        return monotonic() >= self._leave_at

    # Faults of the world

    def _keep_up_mark(self) -> None:
        """A full or missing disk is met by the next update; this is not the one to stop for it."""
        with suppress(NotOurs):
            self.identity.keep_up()

    def _watch_spark(self) -> None:
        """Notice that Spark ended though nothing ran, and start it again."""
        state = self.controller.state
        if self._spark is None or state.on_tracks or "spark" in state.faults.open or not has_ended(self._spark):
            return
        self._record([FaultMet(self.clock.now_us(), "spark", ENDED)])
        threading.Thread(target=self._restart_spark, name="penstock-spark", daemon=True).start()

    @property
    def spark_ended(self) -> bool:
        """Whether its process is gone, as far as that can be seen from outside."""
        return self._spark is not None and has_ended(self._spark)

    def spark_told(self) -> str:
        """What is wrong with it, if it answers at all; empty if nothing is."""
        spark = self._spark
        return ENDED if spark is not None and (has_ended(spark) or not is_alive(spark)) else ""

    def _restart_spark(self) -> None:
        """If that fails, the next update tries it again, and tells."""
        with suppress(NotAvailable):
            self._spark = self._session()
            fault = self.controller.state.faults.open.get("spark")
            if fault is not None:
                self._record([FaultEnded(self.clock.now_us(), "spark", fault.since_us, fault.reason)])
            self.wake()

    def _record(self, events: Sequence[Event]) -> None:
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            self.store.append(conn, events)

    def _end_faults(self, events: Sequence[Event]) -> None:
        """An update that ends shows that disk and Spark are there again; whoever can write this, that the store is."""
        worked = any(isinstance(event, UpdateFinished) for event in events)
        over = [
            FaultEnded(self.clock.now_us(), fault.part, fault.since_us, fault.reason)
            for fault in self.controller.state.faults.open.values()
            if worked or fault.part == "store"
        ]
        if over:
            self._record(over)

    def _await_store(self, fault: WorldFault) -> bool:
        """Wait until the store can be tried again; False if the process is to end before that. What is still away is met again, after a longer pause."""
        now = monotonic()
        if self._store_away is None:
            self._store_away = StoreAway(self.clock.now_us(), fault, STORE_PAUSE_S)
            _log.warning("the store is not available: %s; it is waited for", fault.reason)
            self.on_fault(fault)
        away = self._store_away
        away.pause_s = min(LONGEST_STORE_PAUSE_S, 2 * away.pause_s)
        while monotonic() < now + away.pause_s:
            if monotonic() >= self._cancel_at:
                return False
            sleep(0.05)
        return True

    def _store_is_back(self, fault: WorldFault) -> bool:
        """Wait for the store; False if the process is to end before that."""
        while self._await_store(fault):
            try:
                self._take_up(fault)
                return True
            except Exception as error:
                again = fault_of(error)
                if again is None or again.part != "store":
                    raise
                fault = again
        return False

    def _take_up(self, fault: WorldFault) -> None:
        """Go on where the project is: what was decided when the store went away may not be on record, or be so without a track that does it."""
        self._lock.regain()
        self.controller = restored_controller(self.store)
        self.watch = FeedWatch(self.controller.state)
        self.premises = PremiseWatch(self.controller)
        self._saved = self.controller.state.applied
        lost = [r.job for r in self.controller.state.on_tracks.values() if r.job.id not in self._handed]
        self._record([FaultMet(self.clock.now_us(), "store", fault.reason, job.id, job.table) for job in lost])

    def _tell_store_is_back(self) -> None:
        away = self._store_away
        if away is not None:
            self._record([FaultEnded(self.clock.now_us(), "store", away.since_us, away.fault.reason)])
            self._store_away = None

    def _wait(self) -> None:
        seconds = self.pace.log_s
        wake = self.controller.wake_at_us
        if wake is not None:
            seconds = min(seconds, max(0.01, self.clock.wall_s(wake - self.clock.now_us())))
        self._news.wait(max(0.001, seconds))
        self._news.clear()

    def tail(self) -> int:
        """Fold what the log has and we have not seen."""
        state = self.controller.state
        with self.store.read() as conn:
            events = list(self.store.events(conn, state.applied))
        for number, event in events:
            self.controller.apply(event, number)
            if state.relabelled:
                with self.store.write() as conn:
                    for name, label in state.relabelled.items():
                        self.store.relabel(conn, name, state.tables[name].snapshot, label)
            self.watch.saw(event)
            self.premises.saw(event)
            if isinstance(event, UpdateFinished | UpdateFailed | UpdateStopped | FaultMet):
                self._handed.discard(event.job)
            if isinstance(event, FileQuarantined):
                self.arrivals.look_again(event.feed, event.file.uri)
            log_event(event)
            self.on_event(number, event)
        self._end_faults([event for _, event in events])
        if state.applied - self._saved >= SNAPSHOT_EVERY:
            self._save_state()
        return len(events)

    def _save_state(self) -> None:
        state = self.controller.state
        if state.applied > self._saved:
            with self.store.write() as conn:
                self.store.save_state(conn, state.applied, dump(state))
            self._saved = state.applied

    def decide(self) -> int:
        """Ask the core what to do, log it, hand it to the tracks."""
        decided_at = self.controller.state.applied
        commands = self.controller.decide(self.clock.now_us())
        if not commands:
            return 0
        events: list[Event] = [command.started(decided_at) for command in commands]
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            self.store.append(conn, events)
        self.tail()
        self._handed.update(command.job.id for command in commands)
        for command in commands:
            if command.job.kind != "order":
                self._track(command.track).take(command.job)
        return len(commands)

    def _keep_orders(self) -> None:
        """Work orders that nobody reported in time, or that something overtook; and who is told of those that are open."""
        state = self.controller.state
        events = void_orders(state, self.clock.now_us())
        if events:
            self._record(events)
            self.tail()
        self.telling.keep_up(open_orders(state))

    def _watch_others(self) -> bool:
        """Commits to the catalogue that are not ours, and versions of tables of other projects."""
        if monotonic() - self._watched_at < self.pace.log_s:
            return False
        self._watched_at = monotonic()
        state = self.controller.state
        lake = self.lake.look(state, self.owner)
        if not (self.followed.look(state, self.owner, self.clock.now_us()) or lake):
            return False
        self.tail()
        return True

    def _command_failed(self, order: str, why: str) -> None:
        with suppress(PenstockError):  # it was reported, or taken back
            reports = Reports(self.warehouse, self.store, self.catalogue)
            reports.give_back(restored_state(self.store), order, self.clock.now_us(), why)

    def _watch(self) -> None:
        """Feeds that fell silent or came back, promises that are void or hold again: also that is on record before anyone acts on it."""
        for happened in (self.watch.happened, self.premises.happened):
            events = happened(self.clock.now_us())
            if events:
                with self.store.write() as conn:
                    self.store.check_owner(conn, self.owner)
                    self.store.append(conn, events)
                self.tail()

    def _stop_overrun(self) -> None:
        """Stop jobs for which newer work came, if their tables want that. Asked again until it is done, as Spark can only
        stop what it is doing just then; a job that ends before has ended."""
        state = self.controller.state
        for number, running in state.on_tracks.items():
            table = state.tables.get(running.job.table)
            if table is not None and table.overrun and table.running is running:
                self._track(number).stop(running.job)

    def _lookout(self) -> Lookout:
        return Lookout(self.arrivals, self.pace.scan_s, self.wake)

    def _track(self, number: int) -> _Track:
        while len(self._tracks) <= number:
            self._tracks.append(_Track(len(self._tracks), self._executor, self._finished))
        return self._tracks[number]

    def _compute(self) -> Compute:
        try:
            self._spark = self._session()
            session = session_in(self._spark, self.warehouse.zone)
            return SparkWork(
                session,
                self.warehouse,
                self.store,
                self.catalogue,
                self.schemas.fixed(session),
                self._kept_of_flows,
                self.flows,
                self._recent,
            )
        except (NotAvailable, Py4JError, OSError) as error:
            return _Away(error if isinstance(error, NotAvailable) else NotAvailable("spark", ENDED))

    def _executor(self) -> Executor:
        return Executor(
            self.warehouse,
            self.store,
            self.catalogue,
            self._compute(),
            self.storage,
            self.clock.now_us,
            self.owner,
            speed=self.clock.speed,
            loaded=self.schemas.record,
            await_store=self._await_store,
        )

    def _finished(self, error: BaseException | None) -> None:
        if error is not None:
            self._broken.append(error)
        self._news.set()

    def _maintain(self) -> None:
        """Old versions are forgotten now and then, between other things."""
        if monotonic() - self._expired_at < EXPIRE_EVERY_S:
            return
        self._expired_at = monotonic()
        pins = [running.job.pin for running in self.controller.state.busy.values()]
        self._delete(expire(self.warehouse, self.store, self.catalogue, self.clock.now_us(), pins))


def _made_with(graph: Graph, tables: Sequence[str]) -> Iterator[str]:
    for table in tables:
        if table in graph.tables:
            for name in graph.made_with(table):
                yield from (name, f"{name}_quarantine")


class _Away(Compute):
    """In the place of Spark, while it does not start."""

    is_alive = False

    def __init__(self, error: NotAvailable) -> None:
        self._error = error

    def run(self, job: Job, folder: str) -> Computed:
        raise self._error


class _Track:
    """One lane of work: a thread whose Spark jobs run in a pool of its own."""

    def __init__(self, number: int, make: Callable[[], Executor], done: Callable[[BaseException | None], None]) -> None:
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._number = number
        self._make = make
        self._executor = make()
        self._done = done
        self._thread = InheritableThread(target=self._work, name=f"penstock-track-{number}")
        self._thread.daemon = True
        self._thread.start()

    def take(self, job: Job) -> None:
        self._queue.put(job)

    def stop(self, job: Job) -> None:
        """Give up a job that runs."""
        self._executor.stopping = job.id
        self._executor.compute.stop(self._group(job))

    def _group(self, job: Job) -> str:
        return f"{job.id}-{self._executor.owner}"

    def end(self, within_s: float) -> bool:
        """End after what it does; False if that takes longer."""
        self._queue.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                if not self._executor.compute.is_alive:
                    self._executor = self._make()
                self._executor.compute.begin(self._group(job), self._number, f"{job.kind} {job.table}")
                self._executor.run(job)
                self._done(None)
            except BaseException as error:
                self._done(error)
                return
