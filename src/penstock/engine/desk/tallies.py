"""How queries ended: satisfaction, counts and latencies, overall and by profile."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from penstock.engine.desk.ticket import Asked
from penstock.queries.outcome import Outcome, ending
from penstock.queries.satisfaction import Satisfaction

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

    def add(self, asked: Asked, outcome: Outcome, seconds: float) -> None:
        self.satisfaction.add(asked.profile, outcome, asked.contract.weights)
        self.latencies.setdefault(ending(outcome).value, Histogram()).add(seconds)
