"""The front door for queries: takes them, decides about each, has them answered on Spark, and tells how each ended.

It knows the warehouse only through the log, as every other reader does; so it works inside the process that keeps the tables fresh and beside it.
What it wants of that process it writes into the log. One thread decides and watches the clock; each lane is a thread that
runs one query at a time.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from os import cpu_count
from pathlib import Path
from random import random
from typing import TypeVar

from sqlalchemy import Connection

from penstock.control.events import PeriodsStretched
from penstock.control.state import State
from penstock.control.views.inputs import WaitingRows
from penstock.declare.warehouse import Definitions
from penstock.engine.clock import WallClock
from penstock.engine.desk.answer import Answer
from penstock.engine.desk.assessment import Assessment, KeptAnswers, KnownState, Prospect, is_fresh
from penstock.engine.desk.feedback import Refreshing, Tallies
from penstock.engine.desk.keeper import DeskKeeper
from penstock.engine.desk.lanes import Lanes, Run
from penstock.engine.desk.query_text import Texts
from penstock.engine.desk.question import Reader, ResultRows
from penstock.engine.desk.reads import EVERY_S, DemandLog, Reading, check_readable, readings
from penstock.engine.desk.result_files import ResultFiles
from penstock.engine.desk.ticket import QueryTicket, Register
from penstock.engine.desk.versions import QueryError
from penstock.engine.ports import Clock
from penstock.engine.updates.times import waiting_rows
from penstock.errors import PenstockError
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US, format_duration
from penstock.queries.contract import Contract, Freshness, Profile, WhenStale
from penstock.queries.desk import (
    Admit,
    AskForUpdates,
    DeskCommand,
    DeskEvent,
    DeskSetup,
    LanesSeen,
    QueryCame,
    QueryWent,
    RunEnded,
    StartQueries,
    StretchPeriods,
    TimePassed,
    TurnAway,
)
from penstock.queries.outcome import Cause, DeadlineMissed, Ending, QueryOutcome, Rejected, Stale, Way, ending, judged
from penstock.queries.policies import LIVE
from penstock.queries.policies.unit import UnitSettings
from penstock.queries.predict import Predictor
from penstock.store.store import Store
from penstock.tables import Catalogue

T = TypeVar("T")

# How often waiting queries look whether what they wait for is there, and how often the desk looks again when nothing else happens.
_LOOK_S, _AGAIN_S = 0.05, 0.25


class Busy(PenstockError):
    """More queries wait than may."""


@dataclass(frozen=True)
class FrontSettings:
    policy: str = "max-satisfaction"
    unit: UnitSettings = LIVE
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
    # That queries and updates share; 0: those of this machine. What the first query of a process takes longer, as long as that is not known.
    cores: int = 0
    cold_s: float = 0.0


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
        self.clock = clock or WallClock()
        self.settings = settings
        self.profiles = dict(profiles or {"default": Profile()})
        self._texts = Texts(warehouse, settings.functions)
        self._known = KnownState(store)
        self._kept = KeptAnswers(settings.kept_bytes)
        setup = DeskSetup(
            0,
            settings.policy,
            settings.lanes,
            len(self.profiles) - 1,
            settings.cores or cpu_count() or 1,
            {name: profile.share for name, profile in self.profiles.items()},
        )
        self._keeper = DeskKeeper(store, self.clock, setup, settings.unit, settings.cold_s)
        self._assessment = Assessment(store, catalogue, self._known, self.predictor, self._kept)
        self._refreshing = Refreshing(store, self._known, wake)
        self._wake = wake
        self._demand = DemandLog(store, self.clock, setup.cores or 1)
        self._changed = threading.Condition(threading.RLock())
        self._inbox: list[QueryTicket] = []
        self._open: dict[int, QueryTicket] = {}
        # Runs that wait for their lane, which is free; and what the clerk is to write into the log.
        self._assigned: deque[Run] = deque()
        self._to_tell: list[tuple[AskForUpdates, QueryTicket] | StretchPeriods] = []
        self._looked_us = 0
        self._applied = -1
        self._cold: tuple[float, ...] = ()
        self._updates_seen: dict[str, int] = {}
        self._register = Register(settings.kept_queries, settings.kept_bytes)
        self._files = ResultFiles(settings.disk_bytes, settings.files_kept_us)
        self._closing = False
        self._lanes = Lanes(self, reader, settings.lanes, len(self.profiles) - 1)
        self._clerk = threading.Thread(target=self._work, name="penstock-front", daemon=True)
        self._clerk.start()

    @property
    def predictor(self) -> Predictor:
        return self._keeper.predictor

    @property
    def tallies(self) -> Tallies:
        return self._keeper.tallies

    @property
    def figures(self) -> Mapping[str, float]:
        """What the policy tells of itself: the price of a second of work, or how cautious it is."""
        with self._changed:
            return dict(self._keeper.desk.figures) if self._keeper.desk is not None else {}

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
                text=read.sql,
                tables=read.tables,
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
            self._demand.read(own)
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
            found = [asked.status for asked in self._open.values()]
            return {
                "waiting": found.count("waiting"),
                "queued": found.count("queued"),
                "running": len(self._lanes.runs) + len(self._assigned),
            }

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
        self._demand.tell(force=True)
        self._tell_log(force=True)

    # The clerk

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._inbox and not self._to_tell and not self._closing:
                    self._changed.wait(self._patience_s())
                if self._closing:
                    return
            self._round()

    def _round(self) -> None:
        """Everything that can be decided now."""
        with self._changed:
            inbox, self._inbox = self._inbox, []
        self._assessment.new_round()
        for asked in inbox:
            if not asked.has_ended:
                self._guarded(asked, self._decide)
        with self._changed:
            self._lapse()
            self._files.expire(self.clock.now_us())
        self._look()
        self._steer()
        self._write()
        self._demand.tell()
        self._tell_log()

    def _patience_s(self) -> float:
        waiting = [asked for asked in self._open.values() if asked.status in ("waiting", "queued")]
        if waiting:
            return _LOOK_S
        due = [asked.deadline_us for asked in self._open.values()]
        desk = self._keeper.desk
        if desk is not None and (due_us := desk.due_us()) is not None:
            due.append(due_us)
        if not due:
            return EVERY_S
        return max(0.002, min(EVERY_S, self.clock.wall_s(min(due) - self.clock.now_us()) + 0.001))

    def _guarded(self, asked: QueryTicket, what: Callable[[QueryTicket], None]) -> None:
        """Whatever goes wrong with one query, the others go on."""
        try:
            what(asked)
        except Exception as error:
            self.fail(asked, str(error) or type(error).__name__)

    def _decide(self, asked: QueryTicket) -> None:
        now_us = self.clock.now_us()
        with self._known.lock:
            prospect = self._assessment.of(asked, now_us)
            state = self._known.now()
            asked.looked_at = state.applied
            seen = self._assessment.outlook({asked.number: prospect}, self._keeper.desk is None, now_us)
            self._keeper.open(state.graph, now_us)
        contract = asked.contract
        came = QueryCame(
            now_us,
            asked.number,
            asked.deadline_us,
            tuple(asked.touched),
            prospect.run,
            contract.weights,
            contract.when_stale is WhenStale.MARK,
            str(hash(asked.same)),
            asked.profile,
            contract.freshness.lag,
            contract.freshness.age_us,
        )
        with self._changed:
            if asked.has_ended:
                return
            asked.run = prospect.run
            self._open[asked.number] = asked
            if self._hopes(asked, prospect):
                if (cold := self._keeper.cold(self._lanes.cold)) != self._cold:
                    self._cold = cold
                    self._handle(LanesSeen(now_us, cold))
                self._handle(seen)
                self._handle(came)

    def _hopes(self, asked: QueryTicket, prospect: Prospect) -> bool:
        """Whether it may still end well; else it is told so."""
        asked.steps_before, asked.chain = prospect.steps, prospect.chain
        if prospect.chain is not None or asked.contract.when_stale is WhenStale.MARK:
            return True
        self.end(asked, self._rejected(asked, Cause.FRESHNESS, None, prospect))
        return False

    def _rejected(
        self, asked: QueryTicket, cause: Cause, within_s: float | None, prospect: Prospect | None = None
    ) -> Rejected:
        """With what would be accepted, as far as that is known."""
        now_us = self.clock.now_us()
        left = format_duration(ceil((asked.deadline_us - asked.arrived_us) / SECOND_US) * SECOND_US)
        why = {
            Cause.OTHERS: "others would lose more by its work than it would gain",
            Cause.FRESHNESS: f"its tables cannot be as fresh as it needs ({asked.contract.freshness})",
            Cause.IMPOSSIBLE: f"it takes longer than {left}, even if nothing is before it",
            Cause.OVERLOAD: "too much is asked and updated at the moment",
            Cause.DEADLINE: f"what must be done before it does not leave enough of {left}",
        }[cause]
        within_us = None if within_s is None else now_us - asked.arrived_us + ceil(within_s * SECOND_US) + 1
        if prospect is None or prospect.reading is None:
            return Rejected(why, cause, within_us)
        reading, need = prospect.reading, asked.contract.freshness
        age = None
        if need.age_us is not None and reading.complete_us is not None:
            ends_us = now_us + int(min(prospect.run.quantile(0.9), 3600.0) * SECOND_US)
            age = max(need.age_us, ends_us - reading.complete_us)
        lag = None if need.lag is None else max(need.lag, reading.lag_at(asked.arrived_us))
        return Rejected(why, cause, within_us, Freshness(age, lag))

    def _look(self) -> None:
        """Whether what queries wait for is there; and now and then what the desk makes of the time that passed."""
        now_us = self.clock.now_us()
        with self._changed:
            waiting = [asked for asked in self._open.values() if asked.status in ("waiting", "queued")]
        if not waiting:
            return
        prospects: dict[int, Prospect] = {}
        with self._known.lock:
            applied = self._known.now().applied
            for asked in waiting:
                if asked.chain != () and asked.looked_at != applied:
                    asked.looked_at = applied
                    prospects[asked.number] = self._assessment.of(asked, now_us)
            if not prospects and now_us - self._looked_us < _AGAIN_S * SECOND_US and self._applied == applied:
                return
            seen = self._assessment.outlook(prospects, False, now_us)
            self._applied, self._looked_us = applied, now_us
        with self._changed:
            for number, prospect in prospects.items():
                asked_ = self._open.get(number)
                if asked_ is None or asked_.status == "running" or not self._hopes(asked_, prospect):
                    seen.chains.pop(number)
                elif not prospect.chain and asked_.status == "waiting":
                    fresh = "what it needs is there" if prospect.chain == () else "what it needs will not come"
                    asked_.moved(now_us, "queued", fresh)
            self._handle(seen)

    def _steer(self) -> None:
        """Let the controller of the policy look when it wants to."""
        now_us = self.clock.now_us()
        with self._changed:
            due_us = self._keeper.desk.due_us() if self._keeper.desk is not None else None
        if due_us is None or now_us < due_us:
            return
        with self._known.lock:
            state = self._known.now()
            counts = {name: table.counts.updates for name, table in state.tables.items()}
            seen = self._assessment.outlook({}, True, now_us)
        before, self._updates_seen = self._updates_seen or counts, counts
        more = {name: count - before.get(name, 0) for name, count in counts.items() if count > before.get(name, 0)}
        with self._changed:
            self._handle(seen)
            self._handle(TimePassed(now_us, random(), more))

    # What the desk decided

    def _handle(self, event: DeskEvent) -> None:
        """Tell the desk, and do what it says."""
        for command in self._keeper.handle(event):
            self._do(command)

    def _do(self, command: DeskCommand) -> None:
        now_us = self.clock.now_us()
        match command:
            case Admit():
                self._admitted(self._open[command.number], command.chance)
            case TurnAway():
                asked = self._open.pop(command.number)
                asked.way = Way.REJECT
                rejected = self._rejected(asked, command.cause, command.within_s)
                asked.why = rejected.why
                self.end(asked, rejected)
            case StartQueries():
                members = [self._open[number] for number in command.numbers]
                self._assigned.append(Run(members, now_us))
                for asked in members:
                    asked.moved(now_us, "running", "on Spark")
                self._lanes.need(len(self._assigned))
                self._changed.notify_all()
            case AskForUpdates():
                self._to_tell.append((command, self._open[command.number]))
                self._changed.notify_all()
            case StretchPeriods():
                self._to_tell.append(command)
                self._changed.notify_all()

    def _admitted(self, asked: QueryTicket, chance: float) -> None:
        asked.chance = chance
        desk = self._keeper.desk
        waits = desk is not None and desk.is_waiting(asked.number) and bool(asked.chain)
        if waits:
            asked.way = Way.WAIT if all(enough for _, enough in asked.chain or ()) else Way.REFRESH
        tables = f" ({', '.join(name for name, _ in asked.chain or ())})" if waits else ""
        asked.why = f"{asked.way}{tables}: {chance:.0%} to succeed"
        asked.moved(self.clock.now_us(), "waiting" if waits else "queued", asked.why)

    def _write(self) -> None:
        """What concerns updates goes into the log."""
        with self._changed:
            told, self._to_tell = self._to_tell, []
        for command in told:
            now_us = self.clock.now_us()
            if isinstance(command, StretchPeriods):
                with self.store.write() as conn:
                    self.store.append(conn, [PeriodsStretched(now_us, tuple(sorted(command.periods.items())))])
                self._wake()
                continue
            asked, until_us = command[1], max(command[0].until_us, now_us + 1)
            try:
                self._refreshing.request(asked, asked.steps_before, until_us, now_us)
            except Exception as error:  # whatever goes wrong with one query, the others go on
                self.fail(asked, str(error) or type(error).__name__)

    def _tell_log(self, force: bool = False) -> None:
        with self._changed:
            told = self._keeper.take(force)
        self._keeper.tell(told)

    def _lapse(self) -> None:
        """Deadlines that have come."""
        now_us = self.clock.now_us()
        for asked in list(self._open.values()):
            if now_us >= asked.deadline_us:
                started = asked.status == "running"
                self._leave(asked)
                self.end(asked, DeadlineMissed(asked.deadline_us - asked.arrived_us, started))

    def _leave(self, asked: QueryTicket) -> None:
        """Out of whatever list it is in; what runs for it alone is stopped."""
        if asked in self._inbox:
            self._inbox.remove(asked)
        for run in [run for run in self._assigned if asked in run.members]:
            run.members.remove(asked)
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
                if self._assigned:
                    run = self._assigned.popleft()
                    self._lanes.runs.append(run)
                    return run
                self._lanes.idle += 1
                self._changed.wait()
                self._lanes.idle -= 1

    def begins(self, run: Run, reader: Reader) -> bool:
        """From now on it can be stopped; False if nobody wants it any more."""
        with self._changed:
            run.reader = reader
            return bool(run.members)

    def over(self, run: Run) -> None:
        """Also what gave no answer took time."""
        with self._changed:
            self._lanes.runs.remove(run)
            self._demand.worked((self.clock.now_us() - run.started_us) / SECOND_US)
            if not self._closing:
                self._handle(RunEnded(self.clock.now_us(), run.first.number))
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
            return reading, self._assessment.sizes.of(conn, reading, asked.touched)

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
                if withhold and not is_fresh(asked, reading, asked.run, now_us):
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
                if run.cold and self.settings.cold_s:
                    self._keeper.was_cold(took_s - run.first.run.mean_s)
                else:
                    self.predictor.observe(run.first.shape, size_bytes, took_s)
                self._kept.put(run.first, reading, rows)
            for asked in list(run.members):
                within = replace(asked.contract, within_us=asked.deadline_us - asked.arrived_us)
                lag = reading.lag_at(asked.arrived_us)
                outcome = judged(within, asked.arrived_us, finished_us, reading.complete_us, lag)
                shared = size_bytes is None or asked is not run.first
                if not reading.newest:
                    asked.way = Way.OLDER
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
        if self._open.pop(asked.number, None) is not None and not self._closing:
            self._handle(QueryWent(self.clock.now_us(), asked.number, how))
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
