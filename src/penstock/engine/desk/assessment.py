"""What a decision about a query is based on: what it could read now, how long it would run, and which updates it waits for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from penstock.control.query_inputs import Touched, busy_until, chain_of, complete_after, made_by, outlook, to_refresh
from penstock.control.state import State
from penstock.engine.declarations import restored_state
from penstock.engine.desk.question import ResultRows
from penstock.engine.desk.reads import Reading, readings
from penstock.engine.desk.ticket import QueryTicket
from penstock.model.partitions import EVERYTHING
from penstock.model.time import SECOND_US
from penstock.queries.desk import Chain, UpdatesSeen
from penstock.queries.estimate import Estimate, RefreshStep
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
    return (asked.text, asked.limit, reading.key) if asked.steady and not asked.as_files else None


# What the desk is told of a query: how long it runs, and which updates it waits for.

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


_SHORTLY = Estimate(0.005)


class Prospect(NamedTuple):
    """What a query would read now, and what it waits for."""

    run: Estimate
    steps: tuple[RefreshStep, ...]
    chain: Chain
    # The freshest that it could read now.
    reading: Reading | None


class Assessment:
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

    def new_round(self) -> None:
        """What was seen may have changed."""
        self._seen.clear()

    def of(self, asked: QueryTicket, now_us: int) -> Prospect:
        state = self._known.now()
        found = self._readings(asked, state, now_us)
        able = [one for one in found if one.consistent or not asked.contract.consistent]
        run = asked.run
        if able:
            with self._store.read() as conn:
                run = self._predictor.predict(asked.shape, self.sizes.of(conn, able[0], asked.touched))
            if self._kept.has(asked, able[0]):
                run = _SHORTLY
        if any(is_fresh(asked, one, run, now_us) for one in able):
            return Prospect(run, (), (), able[0])
        steps = () if state.owner is None else to_refresh(state, asked.touched)
        reading = able[0] if able else None
        if not steps or any(made_by(state, step.table).failed for step in steps):
            return Prospect(run, (), None, reading)
        need = asked.contract.freshness
        complete = complete_after(state, steps, asked.touched, now_us)
        age = None if complete is None else max(0, now_us - complete)
        return Prospect(run, steps, chain_of(state, steps) if need.met(age, 0) else None, reading)

    def outlook(self, prospects: Mapping[int, Prospect], every: bool, now_us: int) -> UpdatesSeen:
        """What is known of the updates that these queries wait for, or of all."""
        state = self._known.now()
        names = {name for one in prospects.values() for name, _ in one.chain or ()}
        if every:
            names |= {name for name, table in state.tables.items() if table.table.leader is None}
        busy = busy_until(state, now_us)
        before = sum(until - now_us for until in busy) / SECOND_US / max(1, state.tracks)
        return UpdatesSeen(
            now_us,
            {name: outlook(state, name, now_us) for name in sorted(names)},
            {number: one.chain for number, one in prospects.items()},
            busy,
            state.tracks,
            before,
        )

    def _readings(self, asked: QueryTicket, state: State, now_us: int) -> list[Reading]:
        """In one round the same for all that touch the same."""
        key = state.applied, tuple(asked.touched.items())
        if key not in self._seen:
            with self._store.read() as conn:
                state = self._known.at(conn)
                self._seen[key] = readings(self._store, self._catalogue, conn, state, asked.touched, now_us)
        return self._seen[key]


def is_fresh(asked: QueryTicket, reading: Reading, run: Estimate, now_us: int) -> bool:
    """Whether a run that starts now gives an answer as fresh as needed."""
    ends_us = now_us + int(run.mean_s * SECOND_US)
    age = None if reading.complete_us is None else max(0, ends_us - reading.complete_us)
    return asked.contract.freshness.met(age, reading.lag_at(asked.arrived_us))
