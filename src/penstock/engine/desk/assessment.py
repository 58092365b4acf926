"""What a decision about a query is based on: the ways in which it could be answered now, what it would cost those who wait, and whether what it
waits for is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.control.query_inputs import to_refresh
from penstock.control.state import State
from penstock.engine.desk.cache import KeptAnswers
from penstock.engine.desk.known import KnownState
from penstock.engine.desk.options import Sizes, of_reading, of_refresh
from penstock.engine.desk.reads import Reading, readings
from penstock.engine.desk.ticket import Asked
from penstock.model.time import SECOND_US
from penstock.queries.chain import RefreshStep
from penstock.queries.choice import Option
from penstock.queries.crowding import Question, loss
from penstock.queries.estimate import AT_ONCE, Estimate
from penstock.queries.predict import Predictor
from penstock.store.store import Store
from penstock.tables import Catalogue

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

    def options(self, asked: Asked, ahead_s: float, now_us: int) -> tuple[list[Option], tuple[RefreshStep, ...]]:
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

    def waits_in_vain(self, asked: Asked, now_us: int) -> bool | None:
        """Whether what a query waits for will not come; False if it is there, None if it may come."""
        state = self._known.now()
        if asked.looked_at == state.applied:
            return None
        asked.looked_at = state.applied
        able = [one for one in self._readings(asked, state, now_us) if one.consistent or not asked.contract.consistent]
        if any(is_fresh(asked, one, now_us) for one in able):
            return False
        return True if state.owner is None or not to_refresh(state, asked.touched) else None

    def _readings(self, asked: Asked, state: State, now_us: int) -> list[Reading]:
        """In one round the same for all that touch the same."""
        key = state.applied, tuple(asked.touched.items())
        if key not in self._seen:
            with self._store.read() as conn:
                state = self._known.at(conn)
                self._seen[key] = readings(self._store, self._catalogue, conn, state, asked.touched, now_us)
        return self._seen[key]


def is_fresh(asked: Asked, reading: Reading, now_us: int) -> bool:
    """Whether a run that starts now gives an answer as fresh as needed."""
    ends_us = now_us + int(asked.run.mean_s * SECOND_US)
    age = None if reading.complete_us is None else max(0, ends_us - reading.complete_us)
    return asked.contract.freshness.met(age, reading.lag_at(asked.arrived_us))


def gain(asked: Asked, success: float, in_time: float) -> float:
    """What running it promises, over letting its deadline pass."""
    weights = asked.contract.weights
    return success * (weights.success + weights.missed) + (in_time - success) * (weights.missed - weights.stale)


def price_per_s(
    asked: Asked, options: Sequence[Option], others: Iterable[Asked], free_in_s: Sequence[float], now_us: int
) -> float:
    """What a second of its work costs the others, on lanes that are free in so many seconds. Who asks what somebody waits for costs nothing:
    one run answers both."""
    groups: dict[tuple[object, ...], list[Asked]] = {}
    for one in others:
        if one is not asked and one.gain > 0:
            groups.setdefault(one.same, []).append(one)
    if asked.same in groups or not options:
        return 0.0
    run = options[-1].run
    waiting = [
        Question(
            min(one.deadline_us - now_us for one in group) / SECOND_US, group[0].run, sum(one.gain for one in group)
        )
        for group in groups.values()
    ]
    new = Question((asked.deadline_us - now_us) / SECOND_US, run, 0.0)
    return loss(waiting, new, free_in_s) / max(1e-3, run.mean_s)
