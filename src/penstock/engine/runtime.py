"""The live runtime: the thin driver between the world and the core.

One thread folds the log, decides and hands jobs to tracks; each track is a thread with a Spark session and a scheduler
pool of its own. Everything that happens goes through the log first, also what other processes ask for (`penstock retry`
just appends an event), so that the state of the core is always the fold of what the store has.
"""

from __future__ import annotations

import queue
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.control.controller import Controller
from penstock.control.events import Event, FileQuarantined, RunStarted, RunStopped
from penstock.control.snapshot import dump
from penstock.control.views.health import FeedWatch
from penstock.declare.warehouse import Definitions
from penstock.engine.arrivals.intake import Arrivals, offered
from penstock.engine.arrivals.schemas import FeedSchemas
from penstock.engine.arrivals.watcher import Lookout
from penstock.engine.clock import Clock
from penstock.engine.declarations import declared, restored_state
from penstock.engine.flows.progress import Watched
from penstock.engine.flows.work import Kept, quarantine_of
from penstock.engine.spark.session import is_alive, session_in
from penstock.engine.spark.work import SparkWork
from penstock.engine.updates.cleanup import delete_files, sweep, swept, unpublished, written_by_a_job
from penstock.engine.updates.executor import Executor
from penstock.engine.upkeep.identity import Identity
from penstock.engine.upkeep.replication import Replication
from penstock.engine.upkeep.retention import check_presence, expire
from penstock.model.graph import Graph
from penstock.queries.situation import Updates
from penstock.requests.job import Job
from penstock.store.lock import RunLock
from penstock.store.store import Store
from penstock.tables import Catalogue

SNAPSHOT_EVERY = 2_000
EXPIRE_EVERY_S = 60.0
MARK_EVERY_S = 5.0


@dataclass(frozen=True)
class Pace:
    """How often the world is looked at."""

    scan_s: float = 0.2
    log_s: float = 0.5


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
        self.clock = clock or Clock()
        self.pace = pace or Pace()
        self.owner = f"run-{uuid.uuid4().hex[:12]}"
        self.controller = Controller()
        self.watch = FeedWatch(self.controller.state)
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
        # A flow that failed may be tried again on another track.
        self._kept_of_flows = Kept()
        self.flows = Watched()
        # Called with each event as it is folded, for those who show what happens.
        self.on_event: Callable[[int, Event], None] = lambda _number, _event: None
        self.replication = Replication(warehouse, store, catalogue, self.clock.now_us)
        self.schemas = FeedSchemas(warehouse, store)
        self.arrivals = Arrivals(
            store, warehouse.declarations.folder, list(warehouse.feeds.values()), self.schemas.known, self.clock.now_us
        )
        self.lookout = self._lookout()

    # Life

    def start(self) -> None:
        """Take the project over: nobody else runs it, what a dead process left is given back and swept."""
        self._lock.acquire(self.owner)
        try:
            self._start()
        except BaseException:
            self._lock.release()
            raise

    def _start(self) -> None:
        self.identity.check()
        check_presence(self.store, self.catalogue)
        self.identity.taken_by(self.owner)
        self.controller = Controller(restored_state(self.store))
        self.watch = FeedWatch(self.controller.state)
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
            sweep(self.store, self.catalogue, job, sorted(also))
        swept(self.store, upto)
        with self.store.read() as conn:
            scheduled = self.catalogue.scheduled(conn)
        shutil.rmtree(self.warehouse.declarations.state_folder / "reading", ignore_errors=True)
        self._delete(scheduled)

    def _delete(self, paths: list[str]) -> None:
        """What the catalogue has forgotten. Files that others wrote, and it only listed, are theirs to delete."""
        root = Path(self.catalogue.data_path)
        ours = [path for path in paths if written_by_a_job(path, root)]
        if ours:
            self.store.flush()
            delete_files(ours, root)
            with self.store.write() as conn:
                self.catalogue.forget(conn, ours)

    def wake(self) -> None:
        """The log has something new."""
        self._news.set()

    def stop(self) -> None:
        """Ask the loop to end after the jobs that run."""
        self._stop.set()
        self._news.set()

    def close(self) -> None:
        for track in self._tracks:
            track.end()
        self.arrivals.close()
        if not self._broken:
            with self.store.write() as conn:
                mine = self.store.fact(conn, "owner") == self.owner
                if mine:
                    self.store.append(conn, [RunStopped(self.clock.now_us(), self.owner)])
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
            self.replication.stop(finish=until_idle and not self._broken)

    def _loop(self, until_idle: bool, on_round: Callable[[], None]) -> None:
        while True:
            found = self.lookout.found()
            self.tail()
            if monotonic() - self._marked_at >= MARK_EVERY_S:
                self._marked_at = monotonic()
                self.identity.keep_up()
            self._watch_feeds()
            self._stop_overrun()
            started = 0 if self._stop.is_set() else self.decide()
            on_round()
            if self._broken:
                raise self._broken[0]
            if self._stop.is_set() and not self.controller.state.busy:
                return
            if started or found:
                continue
            if until_idle and self.lookout.is_done(self.controller.idle):
                return
            self._maintain()
            self._wait()

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
            self.watch.saw(event)
            if isinstance(event, FileQuarantined):
                self.arrivals.look_again(event.feed, event.file.uri)
            self.on_event(number, event)
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
        for command in commands:
            self._track(command.track).take(command.job)
        return len(commands)

    def _watch_feeds(self) -> None:
        """Feeds that fell silent or came back: also that is on record before anyone acts on it."""
        events = self.watch.happened(self.clock.now_us())
        if events:
            with self.store.write() as conn:
                self.store.check_owner(conn, self.owner)
                self.store.append(conn, events)
            self.tail()

    def _stop_overrun(self) -> None:
        """Stop jobs for which newer work came, if their tables want that. Asked again until it is done, as Spark can only
        stop what it is doing just then; a job that ends before has ended."""
        state = self.controller.state
        for number, running in state.busy.items():
            table = state.tables.get(running.job.table)
            if table is not None and table.overrun and table.running is running:
                self._track(number).stop(running.job)

    def _lookout(self) -> Lookout:
        return Lookout(self.arrivals, self.pace.scan_s, self.wake)

    def _track(self, number: int) -> _Track:
        while len(self._tracks) <= number:
            self._tracks.append(_Track(len(self._tracks), self._executor, self._finished))
        return self._tracks[number]

    def _executor(self) -> Executor:
        session = session_in(self._session(), self.warehouse.zone)
        work = SparkWork(
            session,
            self.warehouse,
            self.store,
            self.catalogue,
            self.schemas.fixed(session),
            self._kept_of_flows,
            self.flows,
        )
        return Executor(
            self.warehouse,
            self.store,
            self.catalogue,
            work,
            self.clock.now_us,
            self.owner,
            speed=self.clock.speed,
            loaded=self.schemas.record,
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
        spark = getattr(self._executor.compute, "session", None)
        if spark is not None:
            spark.sparkContext.cancelJobsWithTag(self._group(job))

    def _group(self, job: Job) -> str:
        return f"{job.id}-{self._executor.owner}"

    def end(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=60)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                spark = getattr(self._executor.compute, "session", None)
                if spark is not None and not is_alive(spark):
                    self._executor = self._make()
                    spark = getattr(self._executor.compute, "session", None)
                if spark is not None:
                    spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"track-{self._number}")
                    spark.sparkContext.setJobGroup(self._group(job), f"{job.kind} {job.table}", True)
                    # Threads of the job, as the steps of a flow have, make groups of their own; the tag goes with them.
                    spark.sparkContext.clearJobTags()
                    spark.sparkContext.addJobTag(self._group(job))
                self._executor.run(job)
                self._done(None)
            except BaseException as error:
                self._done(error)
                return
