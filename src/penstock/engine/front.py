"""The front door for queries: takes them, decides about each, has them answered on Spark, and tells how each ended.

It knows the warehouse only through the log, as every other reader does; so it works inside the process that keeps the tables fresh and beside it.
What it wants of that process it writes into the log. One thread decides and watches the clock; each lane is a thread that
runs one query at a time.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TypeVar

from pyspark.sql import SparkSession
from sqlalchemy import Connection

from penstock.control.events import DemandSeen, RefreshRequested
from penstock.control.state import State
from penstock.control.touching import Touched, made_by, to_refresh
from penstock.declare.sql_read import ReadQuery, read_query
from penstock.declare.sql_shape import is_steady, shape_of
from penstock.declare.sql_touched import Timed, touched
from penstock.declare.warehouse import Warehouse
from penstock.engine.answer import Answer, Rows
from penstock.engine.asked import Asked
from penstock.engine.clock import Clock
from penstock.engine.lanes import Lanes, Run
from penstock.engine.load import QUARANTINE
from penstock.engine.options import Sizes, of_reading, of_refresh
from penstock.engine.queue import QueryQueue
from penstock.engine.reading import restored_state
from penstock.engine.reads import Reading, readings
from penstock.engine.tallies import Tallies
from penstock.engine.versions import QueryError
from penstock.errors import PenstockError
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US, format_duration
from penstock.queries.chain import Step
from penstock.queries.choice import Choice, Option, Way
from penstock.queries.contract import Contract, Profile, WhenStale
from penstock.queries.crowding import Question, loss
from penstock.queries.estimate import Estimate
from penstock.queries.live import LivePolicy, find_live_policy
from penstock.queries.outcome import DeadlineMissed, Outcome, Rejected, Stale, judged
from penstock.queries.predict import PlanShape, Predictor
from penstock.store.store import Store
from penstock.tables import Catalogue

T = TypeVar("T")

# How often waiting queries look whether what they wait for is there.
_LOOK_S = 0.05
_REPORT_S = 10.0
_FADE_S, _FADED_S = 60.0, 3600.0
# A decision may be based on a state that is so old.
_STATE_S = 0.02
_AT_ONCE = Estimate(0.005)
# Texts of queries that are remembered.
_TEXTS = 1_000


class Busy(PenstockError):
    """More queries wait than may."""


@dataclass(frozen=True)
class FrontSettings:
    policy: str = "default"
    # Queries that run at the same time.
    lanes: int = 2
    functions: tuple[str, ...] = ()
    # Rows of an answer: the most in a message, and the most at all.
    inline_rows: int = 10_000
    most_rows: int = 1_000_000
    # Nothing takes longer than this, whatever its contract.
    longest_us: int = 10 * MINUTE_US
    most_waiting: int = 2_000
    # Answers that are kept for those who ask the same, and ended queries for those who ask how they ended.
    kept_bytes: int = 64 << 20
    kept_queries: int = 5_000


class Front:
    def __init__(
        self,
        warehouse: Warehouse,
        store: Store,
        catalogue: Catalogue,
        session: Callable[[], SparkSession],
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
        # Tells the process that keeps the tables fresh that the log has something for it.
        self._wake = wake
        self._schemas = {
            **{name: one.columns for name, one in warehouse.definitions.items()},
            **{f"{name}_quarantine": QUARANTINE for name in warehouse.definitions},
        }
        self._timed = {
            name: Timed(one.time, one.table.grain)
            for name, one in warehouse.definitions.items()
            if one.time is not None
        }
        self._sizes = Sizes(catalogue)
        self._texts: dict[str, tuple[ReadQuery, PlanShape, bool]] = {}
        self._state: State | None = None
        self._looked_at = 0.0
        self._state_lock = threading.RLock()
        self._changed = threading.Condition(threading.RLock())
        self._seen: dict[object, list[Reading]] = {}
        self._inbox: list[Asked] = []
        self._waiting: list[Asked] = []
        self._queue = QueryQueue({name: profile.share for name, profile in self.profiles.items()})
        self._queries: OrderedDict[str, Asked] = OrderedDict()
        self._by_key: dict[tuple[str, str], Asked] = {}
        self._open = 0
        self._numbers = 0
        self._kept: OrderedDict[object, Rows] = OrderedDict()
        self._reads: Counter[str] = Counter()
        self._reported_at = monotonic()
        self._read_at = monotonic() - _FADED_S
        self._closing = False
        self._lanes = Lanes(self, session, settings.lanes)
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
    ) -> Asked:
        """Take a query. Raises `SqlProblem` if it cannot be one, `QueryError` if there is nothing to read, `Busy` if too many wait.
        With a `key` that was used before, the query of that time."""
        if key is not None and (known := self._by_key.get((profile, key))) is not None:
            return known
        if profile not in self.profiles:
            raise QueryError(f"there is no profile `{profile}`; there are {', '.join(self.profiles)}")
        read, shape, steady = self._understood(sql)
        now_us = self.clock.now_us()
        found = touched(read, self._timed, now_us)
        own = {name: found[name] for name in read.tables if name in self.warehouse.definitions}
        self._check_exists(own)
        contract = contract or self.profiles[profile].contract
        longest = min(contract.within_us or self.settings.longest_us, self.settings.longest_us)
        most = self.settings.most_rows if as_files else self.settings.inline_rows
        with self._changed:
            if key is not None and (known := self._by_key.get((profile, key))) is not None:
                return known
            if self._open >= self.settings.most_waiting:
                raise Busy(f"{self._open:,} queries are waiting already; ask again later")
            self._numbers += 1
            asked = Asked(
                id=uuid.uuid4().hex,
                number=self._numbers,
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
            self._open += 1
            self._queries[asked.id] = asked
            if key is not None:
                self._by_key[profile, key] = asked
            self._reads.update(list(own))
            self._lanes.begin()
            self._inbox.append(asked)
            self._changed.notify_all()
        return asked

    def _understood(self, sql: str) -> tuple[ReadQuery, PlanShape, bool]:
        """What a text asks: the same for everyone who sends it."""
        known = self._texts.get(sql)
        if known is None:
            read = read_query(sql, self._schemas, self.settings.functions)
            known = self._texts[sql] = read, shape_of(read), is_steady(read)
            while len(self._texts) > _TEXTS:
                self._texts.pop(next(iter(self._texts)), None)
        return known

    def _check_exists(self, names: Touched) -> None:
        state = self._known_state()
        for name in names:
            table = state.tables.get(name)
            if table is None or not table.exists:
                raise QueryError(
                    f"table `{name}` has nothing to read yet; `penstock explain {name}` says what it waits for"
                )

    def find(self, identity: str) -> Asked | None:
        return self._queries.get(identity)

    def withdraw(self, asked: Asked) -> None:
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
        with self._state_lock:
            return look(self._known_state())

    def close(self) -> None:
        with self._changed:
            self._closing = True
            for asked in list(self._queries.values()):
                self.withdraw(asked)
            self._changed.notify_all()
        self._clerk.join(timeout=10)
        self._lanes.close()
        self._report(force=True)

    # What is known of the warehouse

    def _known_state(self, max_age_s: float = _STATE_S) -> State:
        with self._state_lock:
            if self._state is None or monotonic() - self._looked_at > max_age_s:
                self._state = restored_state(self.store, self._state)
                self._looked_at = monotonic()
            return self._state

    def _state_at(self, conn: Connection) -> State:
        """The state as of a transaction; hold the lock of the state while using it."""
        if self._state is None:
            self._state = restored_state(self.store)
        self._state.fold(self.store.events(conn, self._state.applied))
        self._looked_at = monotonic()
        return self._state

    # The clerk

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._inbox and not self._closing:
                    self._changed.wait(self._patience_s())
                if self._closing:
                    return
                inbox, self._inbox = self._inbox, []
            for asked in inbox:
                if not asked.has_ended:
                    self._guarded(asked, self._decide)
            with self._changed:
                self._lapse()
                waiting = list(self._waiting)
            self._seen.clear()
            for asked in waiting:
                if not asked.has_ended:
                    self._guarded(asked, self._look)
            self._report()

    def _patience_s(self) -> float:
        if self._waiting:
            return _LOOK_S
        deadlines = [asked.deadline_us for asked in self._open_queries()]
        if not deadlines:
            return _REPORT_S
        return max(0.002, min(_REPORT_S, self.clock.wall_s(min(deadlines) - self.clock.now_us()) + 0.001))

    def _open_queries(self) -> list[Asked]:
        running = [asked for run in self._lanes.runs for asked in run.members]
        return [*self._waiting, *self._queue, *running]

    def _guarded(self, asked: Asked, what: Callable[[Asked], None]) -> None:
        """Whatever goes wrong with one query, the others go on."""
        try:
            what(asked)
        except Exception as error:
            self.fail(asked, str(error) or type(error).__name__)

    def _decide(self, asked: Asked) -> None:
        now_us = self.clock.now_us()
        with self._state_lock:
            state = self._known_state()
            options, steps = self._options(asked, state, now_us)
        price = self._price_per_s(asked, options, now_us)
        choice = self.policy.choose(asked.contract, options, now_us, asked.arrived_us, price)
        with self._changed:
            if asked.has_ended:
                return
            asked.way, asked.why, asked.choice = choice.way, choice.why, choice
            if choice.way is Way.REJECT:
                assert choice.rejected is not None
                self.end(asked, choice.rejected)
                return
            if choice.option is not None and choice.prospect is not None:
                asked.run = choice.option.run
                asked.gain = _gain(asked, choice.prospect.success, choice.prospect.in_time)
            if choice.way in (Way.WAIT, Way.REFRESH):
                self._begin_waiting(asked, choice, steps, now_us)
            else:
                self._enqueue(asked, choice.why)

    def _options(self, asked: Asked, state: State, now_us: int) -> tuple[list[Option], tuple[Step, ...]]:
        with self._changed:
            busy = sum(run.left_s(now_us) for run in self._lanes.runs)
            ahead_s = (busy + self._queue.ahead_s(asked.deadline_us)) / self.settings.lanes
        ahead = Estimate(ahead_s, 0.3 * ahead_s)
        options: list[Option] = []
        run = asked.run
        with self.store.read() as conn:
            for reading in readings(self.store, self.catalogue, conn, state, asked.touched, now_us):
                run = self.predictor.predict(asked.shape, self._sizes.of(conn, reading, asked.touched))
                is_kept = self._answer_key(asked, reading) in self._kept
                taking = (_AT_ONCE, Estimate(0.0)) if is_kept else (run, ahead)
                options.append(of_reading(reading, asked.arrived_us, *taking))
        refresh = of_refresh(state, asked.touched, run, ahead, now_us)
        if refresh is None:
            return options, ()
        return [*options, refresh[0]], refresh[1]

    def _price_per_s(self, asked: Asked, options: Sequence[Option], now_us: int) -> float:
        """What a second of its work costs those who wait. Who asks what somebody waits for costs nothing: one run answers both."""
        with self._changed:
            groups: dict[tuple[object, ...], list[Asked]] = {}
            for one in (*self._queue, *self._waiting):
                if one is not asked and one.gain > 0:
                    groups.setdefault(one.same, []).append(one)
            busy = [run.left_s(now_us) for run in self._lanes.runs]
        if asked.same in groups or not options:
            return 0.0
        run = options[-1].run
        waiting = [
            Question(
                min(one.deadline_us - now_us for one in group) / SECOND_US, group[0].run, sum(one.gain for one in group)
            )
            for group in groups.values()
        ]
        free = [0.0] * max(0, self.settings.lanes - len(busy)) + busy
        new = Question((asked.deadline_us - now_us) / SECOND_US, run, 0.0)
        return loss(waiting, new, free) / max(1e-3, run.mean_s)

    def _begin_waiting(self, asked: Asked, choice: Choice, steps: tuple[Step, ...], now_us: int) -> None:
        weights = asked.contract.weights
        # At the latest. Running sooner only makes it surer that a stale answer is in time: what is that worth?
        surely = 0.9 if weights.stale < weights.missed else 0.5
        run_us = int(min(asked.run.quantile(surely), 600.0) * SECOND_US)
        asked.start_by_us = max(now_us, asked.deadline_us - run_us)
        asked.moved(now_us, "waiting", choice.why)
        self._waiting.append(asked)
        if choice.way is Way.REFRESH:
            self._request(asked, steps, now_us)

    def _request(self, asked: Asked, steps: tuple[Step, ...], now_us: int) -> None:
        """Say in the log which partitions are needed until when, unless somebody needs them as soon already."""
        assert asked.start_by_us is not None
        with self._state_lock:
            awaited = self._known_state().awaited
            news = [
                step
                for step in steps
                if step.table not in awaited
                or not step.partitions <= awaited.partitions(step.table)
                or (awaited.until(step.table, step.partitions) or asked.start_by_us + 1) > asked.start_by_us
            ]
            if not news:
                return
            state = self._known_state()
            wanted = tuple((made_by(state, step.table).table.name, step.partitions.intervals) for step in steps)
            with self.store.write() as conn:
                self.store.append(conn, [RefreshRequested(now_us, asked.id, wanted, asked.start_by_us)])
            self._known_state(0.0)
        self._wake()

    def _look(self, asked: Asked) -> None:
        """Whether what a waiting query waits for is there, or it cannot wait any longer."""
        now_us = self.clock.now_us()
        assert asked.start_by_us is not None
        with self._state_lock:
            state = self._known_state()
            if asked.looked_at == state.applied and now_us < asked.start_by_us:
                return
            asked.looked_at = state.applied
            found = self._seen_by(asked, state, now_us)
            able = [one for one in found if one.consistent or not asked.contract.consistent]
            fresh = any(self._is_fresh(asked, one, now_us) for one in able)
            nothing_left = state.owner is None or not to_refresh(state, asked.touched)
        if not fresh and not nothing_left and now_us < asked.start_by_us:
            return
        with self._changed:
            if asked in self._waiting:
                self._waiting.remove(asked)
                asked.gain = _gain(asked, 1.0 if fresh else 0.0, 1.0)
                self._enqueue(asked, "what it needs is there" if fresh else "it cannot wait any longer for updates")

    def _seen_by(self, asked: Asked, state: State, now_us: int) -> list[Reading]:
        """What a query could read now; in one round of the clerk the same for all that touch the same."""
        key = state.applied, tuple(asked.touched.items())
        if key not in self._seen:
            with self.store.read() as conn:
                state = self._state_at(conn)
                self._seen[key] = readings(self.store, self.catalogue, conn, state, asked.touched, now_us)
        return self._seen[key]

    def _is_fresh(self, asked: Asked, reading: Reading, now_us: int) -> bool:
        ends_us = now_us + int(asked.run.mean_s * SECOND_US)
        age = None if reading.complete_us is None else max(0, ends_us - reading.complete_us)
        return asked.contract.freshness.met(age, reading.lag_at(asked.arrived_us))

    def _enqueue(self, asked: Asked, what: str) -> None:
        asked.moved(self.clock.now_us(), "queued", what)
        self._queue.put(asked)
        self._changed.notify_all()

    def _lapse(self) -> None:
        """Deadlines that have come."""
        now_us = self.clock.now_us()
        for asked in self._open_queries():
            if now_us >= asked.deadline_us:
                started = asked.status == "running"
                self._leave(asked)
                self.end(asked, DeadlineMissed(asked.deadline_us - asked.arrived_us, started))

    def _leave(self, asked: Asked) -> None:
        """Out of whatever list it is in; what runs for it alone is stopped."""
        if asked in self._waiting:
            self._waiting.remove(asked)
        if asked in self._inbox:
            self._inbox.remove(asked)
        self._queue.drop(asked)
        self._lanes.leave(asked)

    # Running: called by the lanes

    def next_run(self) -> Run | None:
        """What a free lane does next; waits for it. None: no more."""
        with self._changed:
            while True:
                if self._closing:
                    return None
                members = self._queue.take(self.clock.now_us())
                if members:
                    run = Run(members, self.clock.now_us())
                    self._lanes.runs.append(run)
                    for asked in members:
                        asked.moved(run.started_us, "running", "on Spark")
                    return run
                self._changed.wait(0.2 if len(self._queue) else None)

    def over(self, run: Run) -> None:
        with self._changed:
            self._lanes.runs.remove(run)

    def pin(self, run: Run) -> tuple[Reading, int]:
        """The versions for a run, kept while it lasts, and how many bytes they are."""
        asked = run.members[0] if run.members else run.first
        now_us = self.clock.now_us()
        with self._state_lock, self.store.write() as conn:
            state = self._state_at(conn)
            found = readings(self.store, self.catalogue, conn, state, asked.touched, now_us)
            able = [reading for reading in found if reading.consistent or not asked.contract.consistent]
            if not able:
                raise QueryError(
                    "there is no consistent state of its tables to read now; ask again, or take any with `--any`"
                )
            reading = able[0]
            for snapshot in {reading.head, *(version.read_at for version in reading.versions)}:
                self.catalogue.pin(conn, snapshot, run.group, now_us + HOUR_US)
            return reading, self._sizes.of(conn, reading, asked.touched)

    def unpin(self, run: Run) -> None:
        with self.store.write() as conn:
            self.catalogue.unpin(conn, run.group)

    def kept(self, asked: Asked, reading: Reading) -> Rows | None:
        with self._changed:
            key = self._answer_key(asked, reading)
            if key is None or key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def _answer_key(self, asked: Asked, reading: Reading) -> object:
        """Answers with the same key are the same; None if this one is only itself."""
        return (asked.read.sql, asked.limit, reading.key) if asked.steady and not asked.as_files else None

    def worth_running(self, run: Run, reading: Reading) -> bool:
        """Not if all who asked want no stale answer, and it would be one."""
        now_us = self.clock.now_us()
        with self._changed:
            for asked in list(run.members):
                withhold = asked.contract.when_stale is WhenStale.WITHHOLD
                if withhold and not self._is_fresh(asked, reading, now_us):
                    self._lanes.leave(asked)
                    lag = reading.lag_at(asked.arrived_us)
                    self.end(asked, Stale(now_us - asked.arrived_us, reading.complete_us, lag, True), reading)
            return bool(run.members)

    def answered(self, run: Run, reading: Reading, rows: Rows, size_bytes: int | None) -> None:
        """A run gave rows; `size_bytes` if it read something."""
        finished_us = self.clock.now_us()
        took_s = (finished_us - run.started_us) / SECOND_US
        with self._changed:
            if size_bytes is not None:
                self.predictor.observe(run.first.shape, size_bytes, took_s)
                self._keep(self._answer_key(run.first, reading), rows)
            for asked in list(run.members):
                self._queue.used(asked.profile, took_s / len(run.members))
            for asked in list(run.members):
                within = replace(asked.contract, within_us=asked.deadline_us - asked.arrived_us)
                lag = reading.lag_at(asked.arrived_us)
                outcome = judged(within, asked.arrived_us, finished_us, reading.complete_us, lag)
                shared = size_bytes is None or asked is not run.first
                self.end(asked, outcome, reading, None if isinstance(outcome, DeadlineMissed) else rows, shared)
            run.members.clear()

    def _keep(self, key: object, rows: Rows) -> None:
        if key is None or rows.nbytes > self.settings.kept_bytes // 8:
            return
        self._kept[key] = rows
        while sum(one.nbytes for one in self._kept.values()) > self.settings.kept_bytes or len(self._kept) > 1000:
            self._kept.popitem(last=False)

    # Endings

    def end(
        self,
        asked: Asked,
        outcome: Outcome,
        reading: Reading | None = None,
        rows: Rows | None = None,
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
            self._ended(asked)

    def fail(self, asked: Asked, error: str) -> None:
        """Spark could not compute it: a division by zero, a wrong cast."""
        with self._changed:
            if not asked.has_ended:
                self._leave(asked)
                asked.error = error
                self.tallies.failed += 1
                asked.moved(self.clock.now_us(), "failed", error.splitlines()[0] if error else "failed")
                self._ended(asked)

    def _ended(self, asked: Asked) -> None:
        self._open -= 1
        while len(self._queries) > self.settings.kept_queries:
            oldest = next(iter(self._queries.values()))
            if not oldest.has_ended:
                break
            self._forget(oldest)

    def _forget(self, asked: Asked) -> None:
        del self._queries[asked.id]
        for key in [key for key, one in self._by_key.items() if one is asked]:
            del self._by_key[key]
        if asked.answer is not None and asked.answer.found is not None:
            for file in asked.answer.found.files:
                file.unlink(missing_ok=True)

    @property
    def results_folder(self) -> Path:
        return self.warehouse.declarations.state_folder / "results"

    # Demand

    def _report(self, force: bool = False) -> None:
        """Now and then the log is told what was read, so that updates can follow."""
        now = monotonic()
        if self._reads:
            self._read_at = now
        # That nothing was read any more is told too, for a while: so that what is known of the demand fades.
        every = _REPORT_S if self._reads else _FADE_S
        if now - self._reported_at < every and not (force and self._reads):
            return
        if not self._reads and now - self._read_at > _FADED_S:
            return
        self._reported_at = now
        with self._changed:
            reads, self._reads = self._reads, Counter()
        with self.store.write() as conn:
            self.store.append(conn, [DemandSeen(self.clock.now_us(), tuple(sorted(reads.items())))])


def _gain(asked: Asked, success: float, in_time: float) -> float:
    """What running it promises, over letting its deadline pass."""
    weights = asked.contract.weights
    return success * (weights.success + weights.missed) + (in_time - success) * (weights.missed - weights.stale)


def _told(outcome: Outcome) -> str:
    match outcome:
        case Rejected():
            return f"rejected: {outcome.why}"
        case DeadlineMissed():
            return f"deadline missed after {format_duration(outcome.after_us)}"
        case Stale():
            return "stale, withheld" if outcome.withheld else "stale"
    return "success"
