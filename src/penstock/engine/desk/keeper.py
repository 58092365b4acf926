"""The desk of a front door, the record of what came to it and what it decided, and what is kept of it over a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from penstock.control.events import DeskOpened, QueriesHandled
from penstock.engine.desk.feedback import Tallies
from penstock.engine.ports import Clock
from penstock.model.graph import Graph
from penstock.model.time import DAY_US
from penstock.queries.desk import Desk, DeskCommand, DeskEntry, DeskEvent, DeskSetup
from penstock.queries.outcome import Ending
from penstock.queries.policies import find_query_policy
from penstock.queries.policies.unit import UnitSettings
from penstock.queries.predict import Predictor
from penstock.store.store import Store

FACT = "queries learned"
_EVERY_S, _LEARNED_EVERY_S = 10.0, 60.0
_MOST = 500
# The record of queries is of no use to anyone after that.
_KEPT_US = 7 * DAY_US


class DeskKeeper:
    """The front holds its lock around all but `tell`."""

    def __init__(self, store: Store, clock: Clock, setup: DeskSetup, unit: UnitSettings, cold_s: float) -> None:
        self._store = store
        self._clock = clock
        self._setup = setup
        self._unit = unit
        self._entries: list[DeskEntry] = []
        self._told_at = self._learned_at = monotonic()
        self._changed = False
        self.desk: Desk | None = None
        self.predictor = Predictor()
        self.tallies = Tallies()
        # What the first query of a process takes longer.
        self.cold_s = cold_s
        self._learned: Any = None
        self._restore()

    def _restore(self) -> None:
        with self._store.read() as conn:
            found = self._store.fact(conn, FACT)
        if found is None:
            return
        known = json.loads(found)
        self.predictor = Predictor.of_plain(known["predictor"])
        self.tallies = Tallies.of_plain(known["tallies"])
        self.cold_s = known["cold_s"] if self.cold_s else 0.0
        self._learned = known["desk"]

    def open(self, graph: Graph, now_us: int) -> None:
        """With the first query: then there is a graph."""
        if self.desk is not None:
            return
        setup = DeskSetup(**{**asdict(self._setup), "at_us": now_us, "learned": self._learned})
        self.desk = Desk(find_query_policy(setup.policy, self._unit), graph, setup)
        with self._store.write() as conn:
            self._store.forget_events(conn, ("desk-opened", "queries-handled"), now_us - _KEPT_US)
            self._store.append(conn, [DeskOpened(now_us, setup)])

    def handle(self, event: DeskEvent) -> tuple[DeskCommand, ...]:
        if self.desk is None:
            return ()
        commands = self.desk.handle(event)
        self._entries.append(DeskEntry(event, commands))
        self._changed = True
        return commands

    def cold(self, lanes: int) -> tuple[float, ...]:
        """What a query takes longer on so many lanes that have answered nothing yet."""
        return (self.cold_s,) * lanes if self.cold_s else ()

    def was_cold(self, longer_s: float) -> None:
        self.cold_s += 0.3 * (max(0.0, longer_s) - self.cold_s)

    def take(self, force: bool) -> tuple[tuple[DeskEntry, ...], str | None]:
        """What is to be told now: entries, and what was learned."""
        now = monotonic()
        entries: tuple[DeskEntry, ...] = ()
        if self._entries and (force or now - self._told_at > _EVERY_S or len(self._entries) > _MOST):
            entries, self._entries, self._told_at = tuple(self._entries), [], now
        learned = None
        if self._changed and (force or now - self._learned_at > _LEARNED_EVERY_S):
            self._changed, self._learned_at = False, now
            plain = {
                "predictor": self.predictor.plain(),
                "tallies": self.tallies.plain(),
                "cold_s": self.cold_s,
                "policy": self._setup.policy,
                "figures": dict(self.desk.figures) if self.desk is not None else {},
                "desk": self.desk.plain() if self.desk is not None else None,
            }
            learned = json.dumps(plain)
        return entries, learned

    def tell(self, told: tuple[tuple[DeskEntry, ...], str | None]) -> None:
        entries, learned = told
        if not entries and learned is None:
            return
        with self._store.write() as conn:
            if entries:
                self._store.append(conn, [QueriesHandled(self._clock.now_us(), entries)])
            if learned is not None:
                self._store.set_fact(conn, FACT, learned)


@dataclass(frozen=True)
class QueryReport:
    """How queries fared so far, as the last front door told that there was."""

    policy: str
    tallies: Tallies
    figures: Mapping[str, float]

    def plain(self) -> dict[str, Any]:
        overall = self.tallies.satisfaction.overall
        count = max(1, overall.queries)
        return {
            "policy": self.policy,
            "queries": overall.queries,
            "usm": overall.usm,
            "S": overall.gained / count,
            "R": overall.cost_rejected / count,
            "F_m": overall.cost_missed / count,
            "F_s": overall.cost_stale / count,
            **self.figures,
            "endings": {kind.value: overall.ratio(kind) for kind in Ending},
            "profiles": {name: asdict(one) for name, one in self.tallies.satisfaction.items()},
            "reliability": [
                {"queries": queries, "predicted": predicted, "came": came}
                for queries, predicted, came in self.tallies.reliability.rows()
            ],
        }


def query_report(store: Store) -> QueryReport | None:
    """None if nobody asked yet."""
    with store.read() as conn:
        found = store.fact(conn, FACT)
    if found is None:
        return None
    known = json.loads(found)
    return QueryReport(known["policy"], Tallies.of_plain(known["tallies"]), known["figures"])
