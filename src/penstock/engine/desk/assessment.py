"""What a decision about a query is based on: the ways in which it could be answered now, what it would cost those who wait, and whether what it
waits for is there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TypeVar

from sqlalchemy import Connection

from penstock.control.query_inputs import Touched, are_running, complete_after, refresh_time, to_refresh
from penstock.control.state import State
from penstock.engine.declarations import restored_state
from penstock.engine.desk.question import ResultRows
from penstock.engine.desk.reads import Reading, readings
from penstock.engine.desk.ticket import QueryTicket
from penstock.model.partitions import EVERYTHING
from penstock.model.time import SECOND_US
from penstock.queries.choice import Option, Way
from penstock.queries.estimate import AT_ONCE, Estimate, RefreshStep, WaitingQuery, loss
from penstock.queries.predict import Predictor
from penstock.store.store import Store
from penstock.tables import Catalogue

# The state of the warehouse as a reader of the log knows it: folded as far as it was read, and at most a moment old.

T = TypeVar("T")

# A decision may be based on a state that is so old.
_AGE_S = 0.02


class KnownState:
    """Hold `lock` while using what it gives: another thread may bring it up to date."""

    def __init__(self, store: Store) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._state: State | None = None
        self._looked_at = 0.0

    def now(self, max_age_s: float = _AGE_S) -> State:
        with self.lock:
            if self._state is None or monotonic() - self._looked_at > max_age_s:
                self._state = restored_state(self._store, self._state)
                self._looked_at = monotonic()
            return self._state

    def at(self, conn: Connection) -> State:
        """As of a transaction."""
        with self.lock:
            if self._state is None:
                self._state = restored_state(self._store)
            self._state.fold(self._store.events(conn, self._state.applied))
            self._looked_at = monotonic()
            return self._state

    def looking(self, look: Callable[[State], T]) -> T:
        """What someone finds in it, while nobody changes it."""
        with self.lock:
            return look(self.now())


# Answers that are kept for those who ask the same of the same versions; those used last, as far as memory is allowed.

_MOST = 1_000


class KeptAnswers:
    """Not safe for threads: the front holds its lock around it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: OrderedDict[object, ResultRows] = OrderedDict()

    def has(self, asked: QueryTicket, reading: Reading) -> bool:
        return _key(asked, reading) in self._rows

    def get(self, asked: QueryTicket, reading: Reading) -> ResultRows | None:
        key = _key(asked, reading)
        found = self._rows.get(key)
        if found is not None:
            self._rows.move_to_end(key)
        return found

    def put(self, asked: QueryTicket, reading: Reading, rows: ResultRows) -> None:
        key = _key(asked, reading)
        if key is None or key in self._rows or rows.nbytes > self._most_bytes // 8:
            return
        self._rows[key] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._most_bytes or len(self._rows) > _MOST:
            _, oldest = self._rows.popitem(last=False)
            self._bytes -= oldest.nbytes


def _key(asked: QueryTicket, reading: Reading) -> object:
    """Answers with the same key are the same; None if this one is only itself."""
    return (asked.read.sql, asked.limit, reading.key) if asked.steady and not asked.as_files else None


# The ways in which a query could be answered now, with what each costs and gives: what the choice is made from.

_REMEMBERED = 2_000


class Sizes:
    """How many bytes a query reads of a version: asked of the catalogue once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: OrderedDict[object, int] = OrderedDict()

    def of(self, conn: Connection, reading: Reading, touched: Touched) -> int:
        total = 0
        for version in reading.versions:
            within = touched[version.table]
            key = (version.table, version.snapshot, within)
            if key not in self._known:
                some = None if within == EVERYTHING else within.intervals
                files = self._catalogue.files(conn, version.table, version.read_at, some)
                self._known[key] = sum(file.size_bytes for file in files)
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            total += self._known[key]
        return total


def of_reading(reading: Reading, asked_us: int, run: Estimate, ahead: Estimate) -> Option:
    way = Way.NOW if reading.newest else Way.OLDER
    return Option(way, run, reading.complete_us, reading.lag_at(asked_us), reading.consistent, wait=ahead)


def of_refresh(
    state: State, touched: Touched, run: Estimate, ahead: Estimate, now_us: int
) -> tuple[Option, tuple[RefreshStep, ...]] | None:
    """Waiting until what has arrived is in what the query touches; None if it is, or nobody would do it."""
    if state.owner is None:
        return None
    steps = to_refresh(state, touched)
    if not steps or any(state.tables[step.table].failed for step in steps):
        return None
    # What is refreshed would be updated anyway, only later, so the query is charged with none of it.
    wait = refresh_time(state, steps, now_us)
    way = Way.WAIT if are_running(state, steps) else Way.REFRESH
    option = Option(
        way,
        run,
        complete_after(state, steps, touched, now_us),
        0,
        True,
        max(wait, ahead),
        tables=tuple(step.table for step in steps),
    )
    return option, steps


_SHORTLY = Estimate(0.005)


class Weighing:
    """Hold the lock of what is known while using it."""

    def __init__(
        self, store: Store, catalogue: Catalogue, known: KnownState, predictor: Predictor, kept: KeptAnswers
    ) -> None:
        self.sizes = Sizes(catalogue)
        self._store = store
        self._catalogue = catalogue
        self._known = known
        self._predictor = predictor
        self._kept = kept
        self._seen: dict[object, list[Reading]] = {}

    def options(self, asked: QueryTicket, ahead_s: float, now_us: int) -> tuple[list[Option], tuple[RefreshStep, ...]]:
        """The ways to answer it, with so much work of queries ahead of it; and the steps of a refresh, if that is one of them."""
        state = self._known.now()
        ahead = Estimate(ahead_s, 0.3 * ahead_s)
        options: list[Option] = []
        run = asked.run
        with self._store.read() as conn:
            for reading in readings(self._store, self._catalogue, conn, state, asked.touched, now_us):
                run = self._predictor.predict(asked.shape, self.sizes.of(conn, reading, asked.touched))
                taking = (_SHORTLY, AT_ONCE) if self._kept.has(asked, reading) else (run, ahead)
                options.append(of_reading(reading, asked.arrived_us, *taking))
        refresh = of_refresh(state, asked.touched, run, ahead, now_us)
        if refresh is None:
            return options, ()
        return [*options, refresh[0]], refresh[1]

    def new_round(self) -> None:
        """What was seen may have changed."""
        self._seen.clear()

    def waits_in_vain(self, asked: QueryTicket, now_us: int) -> bool | None:
        """Whether what a query waits for will not come; False if it is there, None if it may come."""
        state = self._known.now()
        if asked.looked_at == state.applied:
            return None
        asked.looked_at = state.applied
        able = [one for one in self._readings(asked, state, now_us) if one.consistent or not asked.contract.consistent]
        if any(is_fresh(asked, one, now_us) for one in able):
            return False
        return True if state.owner is None or not to_refresh(state, asked.touched) else None

    def _readings(self, asked: QueryTicket, state: State, now_us: int) -> list[Reading]:
        """In one round the same for all that touch the same."""
        key = state.applied, tuple(asked.touched.items())
        if key not in self._seen:
            with self._store.read() as conn:
                state = self._known.at(conn)
                self._seen[key] = readings(self._store, self._catalogue, conn, state, asked.touched, now_us)
        return self._seen[key]


def is_fresh(asked: QueryTicket, reading: Reading, now_us: int) -> bool:
    """Whether a run that starts now gives an answer as fresh as needed."""
    ends_us = now_us + int(asked.run.mean_s * SECOND_US)
    age = None if reading.complete_us is None else max(0, ends_us - reading.complete_us)
    return asked.contract.freshness.met(age, reading.lag_at(asked.arrived_us))


def gain(asked: QueryTicket, success: float, in_time: float) -> float:
    """What running it promises, over letting its deadline pass."""
    weights = asked.contract.weights
    return success * (weights.success + weights.missed) + (in_time - success) * (weights.missed - weights.stale)


def price_per_s(
    asked: QueryTicket,
    options: Sequence[Option],
    others: Iterable[QueryTicket],
    free_in_s: Sequence[float],
    now_us: int,
) -> float:
    """What a second of its work costs the others, on lanes that are free in so many seconds. Who asks what somebody waits for costs nothing:
    one run answers both."""
    groups: dict[tuple[object, ...], list[QueryTicket]] = {}
    for one in others:
        if one is not asked and one.gain > 0:
            groups.setdefault(one.same, []).append(one)
    if asked.same in groups or not options:
        return 0.0
    run = options[-1].run
    waiting = [
        WaitingQuery(
            min(one.deadline_us - now_us for one in group) / SECOND_US, group[0].run, sum(one.gain for one in group)
        )
        for group in groups.values()
    ]
    new = WaitingQuery((asked.deadline_us - now_us) / SECOND_US, run, 0.0)
    return loss(waiting, new, free_in_s) / max(1e-3, run.mean_s)
