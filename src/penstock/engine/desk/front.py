"""The front door for queries: takes them, decides about each, has them answered on Spark, and tells how each ended.

It knows the warehouse only through the log, as every other reader does; so it works inside the process that keeps the tables fresh and beside it.
What it wants of that process it writes into the log. One thread decides and watches the clock; each lane is a thread that
runs one query at a time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from penstock.control.state import State
from penstock.control.views.inputs import WaitingRows
from penstock.declare.warehouse import Definitions
from penstock.engine.clock import Clock
from penstock.engine.desk.answer import Answer
from penstock.engine.desk.assessment import KeptAnswers, KnownState, Weighing, gain, is_fresh, price_per_s
from penstock.engine.desk.feedback import Refreshing, Steered, Tallies
from penstock.engine.desk.lanes import Lanes, Run
from penstock.engine.desk.query_text import Texts
from penstock.engine.desk.question import Reader, ResultRows
from penstock.engine.desk.reads import EVERY_S, DemandLog, Reading, check_readable, readings
from penstock.engine.desk.result_files import ResultFiles
from penstock.engine.desk.ticket import QueryQueue, QueryTicket, Register
from penstock.engine.desk.versions import QueryError
from penstock.engine.updates.times import waiting_rows
from penstock.errors import PenstockError
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US, format_duration
from penstock.queries.choice import Choice, Option, Way
from penstock.queries.contract import Contract, Profile, WhenStale
from penstock.queries.estimate import RefreshStep
from penstock.queries.live import LivePolicy, find_live_policy
from penstock.queries.outcome import DeadlineMissed, Ending, QueryOutcome, Rejected, Stale, ending, judged
from penstock.queries.predict import Predictor
from penstock.store.store import Store
from penstock.tables import Catalogue

T = TypeVar("T")

# How often waiting queries look whether what they wait for is there.
_LOOK_S = 0.05


class Busy(PenstockError):
    """More queries wait than may."""


@dataclass(frozen=True)
class FrontSettings:
    policy: str = "default"
    # Queries that run at the same time.
    lanes: int = 2
    functions: tuple[str, ...] = ()
    # ResultRows of an answer: the most in a message, and the most at all.
    inline_rows: int = 10_000
    inline_bytes: int = 16 << 20
    most_rows: int = 1_000_000
    # Nothing takes longer than this, whatever its contract.
    longest_us: int = 10 * MINUTE_US
    most_waiting: int = 2_000
    # Answers that are kept for those who ask the same, and ended queries for those who ask how they ended.
    kept_bytes: int = 64 << 20
    kept_queries: int = 5_000
    # Files of answers: in all, and for how long.
    disk_bytes: int = 8 << 30
    files_kept_us: int = HOUR_US


class Front:
    def __init__(
        self,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        reader: Callable[[], Reader],
        clock: Clock | None = None,
        settings: FrontSettings = FrontSettings(),
        profiles: Mapping[str, Profile] | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.clock = clock or Clock()
        self.settings = settings
        self.profiles = dict(profiles or {"default": Profile()})
        self.policy: LivePolicy = find_live_policy(settings.policy)
        self.predictor = Predictor()
        self.tallies = Tallies()
        self._texts = Texts(warehouse, settings.functions)
        self._known = KnownState(store)
        self._kept = KeptAnswers(settings.kept_bytes)
        self._weighing = Weighing(store, catalogue, self._known, self.predictor, self._kept)
        self._refreshing = Refreshing(store, self._known, wake)
        self._telling = DemandLog(store, self.clock)
        weights = next(iter(self.profiles.values())).contract.weights
        self._steered = Steered(self.policy, self._known, store, weights, settings.lanes, wake)
        self._changed = threading.Condition(threading.RLock())
        self._inbox: list[QueryTicket] = []
        self._waiting: list[QueryTicket] = []
        self._queue = QueryQueue({name: profile.share for name, profile in self.profiles.items()})
        self._register = Register(settings.kept_queries, settings.kept_bytes)
        self._files = ResultFiles(settings.disk_bytes, settings.files_kept_us)
        self._closing = False
        self._lanes = Lanes(self, reader, settings.lanes, len(self.profiles) - 1)
        self._clerk = threading.Thread(target=self._work, name="penstock-front", daemon=True)
        self._clerk.start()

    # Asking

    def ask(
        self,
        sql: str,
        contract: Contract | None = None,
        *,
        profile: str = "default",
        limit: int | None = None,
        as_files: bool = False,
        key: str | None = None,
    ) -> QueryTicket:
        """Take a query. Raises `SqlProblem` if it cannot be one, `QueryError` if there is nothing to read, `Busy` if too many wait.
        With a `key` that was used before, the query of that time."""
        if (known := self._register.known(profile, key)) is not None:
            return known
        if profile not in self.profiles:
            raise QueryError(f"there is no profile `{profile}`; there are {', '.join(self.profiles)}")
        read, shape, steady = self._texts.understood(sql)
        now_us = self.clock.now_us()
        own = self._texts.touched(read, now_us)
        check_readable(self._known.now(), own)
        contract = contract or self.profiles[profile].contract
        longest = min(contract.within_us or self.settings.longest_us, self.settings.longest_us)
        most = self.settings.most_rows if as_files else self.settings.inline_rows
        with self._changed:
            if (known := self._register.known(profile, key)) is not None:
                return known
            if self._register.open >= self.settings.most_waiting:
                raise Busy(f"{self._register.open:,} queries are waiting already; ask again later")
            asked = QueryTicket(
                id=uuid.uuid4().hex,
                number=self._register.next_number(),
                sql=sql,
                read=read,
                touched=own,
                shape=shape,
                steady=steady,
                profile=profile,
                contract=contract,
                limit=min(limit or most, most),
                arrived_us=now_us,
                deadline_us=now_us + longest,
                as_files=as_files,
            )
            asked.moved(now_us, "asked", f"by {profile}")
            self._register.add(asked, key)
            self._telling.read(own)
            self._inbox.append(asked)
            self._changed.notify_all()
        return asked

    def find(self, identity: str) -> QueryTicket | None:
        return self._register.find(identity)

    def withdraw(self, asked: QueryTicket) -> None:
        """Whoever asked does not want it any more."""
        with self._changed:
            if not asked.has_ended:
                self._leave(asked)
                asked.moved(self.clock.now_us(), "withdrawn", "cancelled by who asked")
                self.tallies.withdrawn += 1
                self._ended(asked)

    def status(self) -> dict[str, int]:
        with self._changed:
            return {"waiting": len(self._waiting), "queued": len(self._queue), "running": len(self._lanes.runs)}

    def looking(self, look: Callable[[State], T]) -> T:
        """What someone finds in the state of the warehouse, which nobody changes meanwhile."""
        return self._known.looking(look)

    def waiting(self, tables: Iterable[str] | None) -> tuple[WaitingRows, ...]:
        """The rows that these tables (or all) do not use yet, because another source has not come as far."""
        with self.store.read() as conn:
            return self.looking(
                lambda state: self._rows_waiting(conn, state, state.tables if tables is None else tables)
            )

    def _rows_waiting(self, conn: Connection, state: State, tables: Iterable[str]) -> tuple[WaitingRows, ...]:
        return waiting_rows(self.catalogue, conn, self.warehouse.definitions, state, tables)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            for asked in self._register:
                self.withdraw(asked)
            self._changed.notify_all()
        self._clerk.join(timeout=10)
        self._lanes.close()
        self._telling.tell(force=True)

    # The clerk

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._inbox and not self._closing:
                    self._changed.wait(self._patience_s())
                if self._closing:
                    return
            self._round()

    def _round(self) -> None:
        """Everything that can be decided now."""
        with self._changed:
            inbox, self._inbox = self._inbox, []
        for asked in inbox:
            if not asked.has_ended:
                self._guarded(asked, self._decide)
        with self._changed:
            self._lapse()
            self._files.expire(self.clock.now_us())
            waiting = list(self._waiting)
        self._weighing.new_round()
        for asked in waiting:
            if not asked.has_ended:
                self._guarded(asked, self._look)
        self._telling.tell()
        self._steer()

    def _patience_s(self) -> float:
        if self._waiting:
            return _LOOK_S
        deadlines = [asked.deadline_us for asked in self._open_queries()]
        if (due_us := self._steered.due_us()) is not None:
            deadlines.append(due_us)
        if not deadlines:
            return EVERY_S
        return max(0.002, min(EVERY_S, self.clock.wall_s(min(deadlines) - self.clock.now_us()) + 0.001))

    def _open_queries(self) -> list[QueryTicket]:
        running = [asked for run in self._lanes.runs for asked in run.members]
        return [*self._waiting, *self._queue, *running]

    def _guarded(self, asked: QueryTicket, what: Callable[[QueryTicket], None]) -> None:
        """Whatever goes wrong with one query, the others go on."""
        try:
            what(asked)
        except Exception as error:
            self.fail(asked, str(error) or type(error).__name__)

    def _decide(self, asked: QueryTicket) -> None:
        now_us = self.clock.now_us()
        with self._changed:
            busy = [run.left_s(now_us) for run in self._lanes.runs]
            ahead_s = (sum(busy) + self._queue.ahead_s(asked.deadline_us)) / self.settings.lanes
            others = [*self._queue, *self._waiting]
        with self._known.lock:
            options, steps = self._weighing.options(asked, ahead_s, now_us)
        choice = self._chosen(asked, options, others, busy, now_us)
        with self._changed:
            if asked.has_ended:
                return
            asked.way, asked.why, asked.choice = choice.way, choice.why, choice
            if self.policy.is_default and choice.way not in (Way.WAIT, Way.REFRESH):
                self._refreshing.hurry(asked, choice, options, steps, now_us)
            if choice.way is Way.REJECT:
                assert choice.rejected is not None
                self.end(asked, choice.rejected)
                return
            if choice.option is not None and choice.prospect is not None:
                asked.run = choice.option.run
                asked.gain = gain(asked, choice.prospect.success, choice.prospect.in_time)
            if choice.way in (Way.WAIT, Way.REFRESH):
                self._begin_waiting(asked, choice, steps, now_us)
            else:
                self._enqueue(asked, choice.why)

    def _chosen(
        self, asked: QueryTicket, options: list[Option], others: list[QueryTicket], busy: list[float], now_us: int
    ) -> Choice:
        if self.policy.is_default:
            free = [0.0] * max(0, self.settings.lanes - len(busy)) + busy
            price = price_per_s(asked, options, others, free, now_us)
            return self.policy.choose(asked.contract, options, now_us, asked.arrived_us, price)
        with self._changed:
            refused = self._steered.admit(asked, options, now_us)
        return self.policy.choose(asked.contract, options, now_us, asked.arrived_us, refused=refused)

    def _steer(self) -> None:
        """Let the controller of the policy look when it wants to."""
        now_us = self.clock.now_us()
        with self._changed:
            due_us = self._steered.due_us()
            if due_us is not None and now_us >= due_us:
                self._steered.look(now_us)

    def _begin_waiting(self, asked: QueryTicket, choice: Choice, steps: tuple[RefreshStep, ...], now_us: int) -> None:
        weights = asked.contract.weights
        # At the latest. Running sooner only makes it surer that a stale answer is in time: what is that worth?
        surely = 0.9 if weights.stale < weights.missed else 0.5
        run_us = int(min(asked.run.quantile(surely), 600.0) * SECOND_US)
        asked.start_by_us = max(now_us, asked.deadline_us - run_us)
        asked.moved(now_us, "waiting", choice.why)
        self._waiting.append(asked)
        if choice.way is Way.REFRESH:
            self._refreshing.request(asked, steps, asked.start_by_us, now_us)

    def _look(self, asked: QueryTicket) -> None:
        """Whether what a waiting query waits for is there, or it cannot wait any longer."""
        now_us = self.clock.now_us()
        assert asked.start_by_us is not None
        with self._known.lock:
            in_vain = self._weighing.waits_in_vain(asked, now_us)
        if in_vain is None and now_us < asked.start_by_us:
            return
        fresh = in_vain is False
        with self._changed:
            if asked in self._waiting:
                self._waiting.remove(asked)
                asked.gain = gain(asked, 1.0 if fresh else 0.0, 1.0)
                self._enqueue(asked, "what it needs is there" if fresh else "it cannot wait any longer for updates")

    def _enqueue(self, asked: QueryTicket, what: str) -> None:
        asked.moved(self.clock.now_us(), "queued", what)
        self._queue.put(asked)
        self._lanes.need(sum(1 for _ in self._queue.groups()))
        self._changed.notify_all()

    def _lapse(self) -> None:
        """Deadlines that have come."""
        now_us = self.clock.now_us()
        for asked in self._open_queries():
            if now_us >= asked.deadline_us:
                started = asked.status == "running"
                self._leave(asked)
                self.end(asked, DeadlineMissed(asked.deadline_us - asked.arrived_us, started))

    def _leave(self, asked: QueryTicket) -> None:
        """Out of whatever list it is in; what runs for it alone is stopped."""
        if asked in self._waiting:
            self._waiting.remove(asked)
        if asked in self._inbox:
            self._inbox.remove(asked)
        self._queue.drop(asked)
        self._lanes.leave(asked)

    def prepare(self, lanes: int) -> Callable[[], None]:
        """Make so many lanes ready; what is returned waits until one is. Else lanes begin with the first queries, which wait for that."""
        with self._changed:
            self._lanes.prepare(lanes)
        return self._lanes.wait_ready

    # Running: called by the lanes

    @property
    def is_closing(self) -> bool:
        return self._closing

    def next_run(self) -> Run | None:
        """What a free lane does next; waits for it. None: no more."""
        with self._changed:
            while True:
                if self._closing:
                    return None
                members = self._queue.take(self.clock.now_us(), self._lanes.busy_profiles or frozenset())
                if members:
                    run = Run(members, self.clock.now_us())
                    self._lanes.runs.append(run)
                    for asked in members:
                        asked.moved(run.started_us, "running", "on Spark")
                        self._steered.started(asked, run.started_us)
                    return run
                self._lanes.idle += 1
                self._changed.wait(0.2 if len(self._queue) else None)
                self._lanes.idle -= 1

    def begins(self, run: Run, reader: Reader) -> bool:
        """From now on it can be stopped; False if nobody wants it any more."""
        with self._changed:
            run.reader = reader
            return bool(run.members)

    def over(self, run: Run) -> None:
        """Also what gave no answer took time."""
        took_s = (self.clock.now_us() - run.started_us) / SECOND_US
        with self._changed:
            self._lanes.runs.remove(run)
            for profile in run.profiles:
                self._queue.used(profile, took_s / len(run.profiles))
            self._changed.notify_all()

    def pin(self, run: Run) -> tuple[Reading, int]:
        """The versions for a run, kept while it lasts, and how many bytes they are."""
        asked = run.members[0] if run.members else run.first
        with self._known.lock, self.store.write() as conn:
            # Nobody else writes now: what is known at this time is in the state, and nothing else.
            now_us = self.clock.now_us()
            state = self._known.at(conn)
            found = readings(self.store, self.catalogue, conn, state, asked.touched, now_us)
            able = [reading for reading in found if reading.consistent or not asked.contract.consistent]
            if not able:
                raise QueryError(
                    "there is no consistent state of its tables to read now; ask again, or take any with `--any`"
                )
            reading = replace(able[0], waiting=self._rows_waiting(conn, state, asked.touched))
            for snapshot in {reading.head, *(version.read_at for version in reading.versions)}:
                self.catalogue.pin(conn, snapshot, run.group, now_us + HOUR_US)
            return reading, self._weighing.sizes.of(conn, reading, asked.touched)

    def unpin(self, run: Run) -> None:
        with self.store.write() as conn:
            self.catalogue.unpin(conn, run.group)

    def kept(self, asked: QueryTicket, reading: Reading) -> ResultRows | None:
        with self._changed:
            return self._kept.get(asked, reading)

    def worth_running(self, run: Run, reading: Reading) -> bool:
        """Not if all who asked want no stale answer, and it would be one."""
        now_us = self.clock.now_us()
        with self._changed:
            for asked in list(run.members):
                withhold = asked.contract.when_stale is WhenStale.WITHHOLD
                if withhold and not is_fresh(asked, reading, now_us):
                    self._lanes.leave(asked)
                    lag = reading.lag_at(asked.arrived_us)
                    self.end(asked, Stale(now_us - asked.arrived_us, reading.complete_us, lag, True), reading)
            return bool(run.members)

    def answered(self, run: Run, reading: Reading, rows: ResultRows, size_bytes: int | None) -> None:
        """A run gave rows; `size_bytes` if it read something."""
        finished_us = self.clock.now_us()
        took_s = (finished_us - run.started_us) / SECOND_US
        with self._changed:
            if size_bytes is not None:
                self.predictor.observe(run.first.shape, size_bytes, took_s)
                self._kept.put(run.first, reading, rows)
                self._steered.worked(took_s)
            for asked in list(run.members):
                within = replace(asked.contract, within_us=asked.deadline_us - asked.arrived_us)
                lag = reading.lag_at(asked.arrived_us)
                outcome = judged(within, asked.arrived_us, finished_us, reading.complete_us, lag)
                shared = size_bytes is None or asked is not run.first
                self.end(asked, outcome, reading, None if isinstance(outcome, DeadlineMissed) else rows, shared)
            run.members.clear()

    # Endings

    def end(
        self,
        asked: QueryTicket,
        outcome: QueryOutcome,
        reading: Reading | None = None,
        rows: ResultRows | None = None,
        shared: bool = False,
    ) -> None:
        """Once for each query: whoever is first decides."""
        with self._changed:
            if asked.has_ended:
                return
            withheld = isinstance(outcome, Stale) and outcome.withheld
            asked.answer = Answer(outcome, asked.way, asked.why, reading, None if withheld else rows, shared)
            now_us = self.clock.now_us()
            self.tallies.add(asked, outcome, (now_us - asked.arrived_us) / SECOND_US)
            asked.moved(now_us, "done", _told(outcome))
            self._ended(asked, ending(outcome))
            if rows is not None and not withheld:
                self._register.keep(asked)
                self._files.add(rows, now_us)

    def fail(self, asked: QueryTicket, error: str) -> None:
        """Spark could not compute it: a division by zero, a wrong cast."""
        with self._changed:
            if not asked.has_ended:
                self._leave(asked)
                asked.error = error
                self.tallies.failed += 1
                asked.moved(self.clock.now_us(), "failed", error.splitlines()[0] if error else "failed")
                self._ended(asked)

    def _ended(self, asked: QueryTicket, how: Ending | None = None) -> None:
        self._steered.ended(asked, self.clock.now_us(), how)
        self._register.ended()

    @property
    def results_folder(self) -> Path:
        return self.warehouse.declarations.state_folder / "results"


def _told(outcome: QueryOutcome) -> str:
    match outcome:
        case Rejected():
            return f"rejected: {outcome.why}"
        case DeadlineMissed():
            return f"deadline missed after {format_duration(outcome.after_us)}"
        case Stale():
            return "stale, withheld" if outcome.withheld else "stale"
    return "success"
