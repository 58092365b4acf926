"""What queries want of updates goes into the log; and how queries ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.control.events import RefreshRequested
from penstock.control.query_inputs import made_by
from penstock.engine.desk.assessment import KnownState
from penstock.engine.desk.ticket import QueryTicket
from penstock.queries.estimate import RefreshStep
from penstock.queries.outcome import Ending, QueryOutcome, Reliability, Satisfaction, ending
from penstock.store.store import Store


class Refreshing:
    """What queries want refreshed goes into the log: which partitions, and until when."""

    def __init__(self, store: Store, known: KnownState, wake: Callable[[], None]) -> None:
        self._store = store
        self._known = known
        # Tells the process that keeps the tables fresh that the log has something for it.
        self._wake = wake

    def request(self, asked: QueryTicket, steps: tuple[RefreshStep, ...], until_us: int, now_us: int) -> None:
        """Unless somebody needs them as soon already."""
        with self._known.lock:
            state = self._known.now()
            awaited = state.awaited
            if not any(
                step.table not in awaited
                or not step.partitions <= awaited.partitions(step.table)
                or (awaited.until(step.table, step.partitions) or until_us + 1) > until_us
                for step in steps
            ):
                return
            wanted = tuple((made_by(state, step.table).table.name, step.partitions.intervals) for step in steps)
            with self._store.write() as conn:
                self._store.append(conn, [RefreshRequested(now_us, asked.id, wanted, until_us)])
            self._known.now(0.0)
        self._wake()


# How queries ended: satisfaction, counts and latencies, overall and by profile.

BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass
class Histogram:
    """Latencies in buckets, as Prometheus counts them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds


@dataclass
class Tallies:
    satisfaction: Satisfaction = field(default_factory=Satisfaction)
    latencies: dict[str, Histogram] = field(default_factory=dict)
    # Neither is one of the four outcomes: the query was wrong, or not wanted any more.
    failed: int = 0
    withdrawn: int = 0
    reliability: Reliability = field(default_factory=Reliability)

    def add(self, asked: QueryTicket, outcome: QueryOutcome, seconds: float) -> None:
        self.satisfaction.add(asked.profile, outcome, asked.contract.weights)
        self.latencies.setdefault(ending(outcome).value, Histogram()).add(seconds)
        if asked.chance is not None:
            self.reliability.add(asked.chance, ending(outcome) is Ending.SUCCESS)

    def plain(self) -> dict[str, Any]:
        return {
            "satisfaction": self.satisfaction.plain(),
            "latencies": {name: asdict(one) for name, one in self.latencies.items()},
            "failed": self.failed,
            "withdrawn": self.withdrawn,
            "reliability": self.reliability.plain(),
        }

    @classmethod
    def of_plain(cls, found: Mapping[str, Any]) -> Tallies:
        latencies = {name: Histogram(**one) for name, one in found["latencies"].items()}
        satisfaction = Satisfaction.of_plain(found["satisfaction"])
        reliability = Reliability.of_plain(found["reliability"])
        return cls(satisfaction, latencies, found["failed"], found["withdrawn"], reliability)
