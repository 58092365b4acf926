"""What is proven before anything runs (Leontyev, Johnson, Anderson 2010, Sec. IV to VI).

    tardiness  Y = e + (sum of the m longest jobs - the shortest) / (m - sum of the m - 1 largest shares W)      Theorem 1
    response   Theta = p + Y                                                                                      Lemma 1
    staleness  A = Theta + p + max(phase, p + J + kappa) of a base table,
               A = Theta + p + max of A over its sources                                                          Def. 13
    recovery   x = (Theta p + (outage + J + p) p_r) / (p - p_r)                                                   Theorem 4

All of it holds while no job takes longer than its cost, files come as declared, all tracks run, and the tables together
need no more than there are tracks. A longest job is the longest that may ever hold a track: also one of best effort, or
one that merges files in the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from penstock.scheduling.recovery.tasks import ROUNDING, RecoveryTask, total_utilisation


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a feed delivers: a file every period, early by up to `jitter_us`, its newest record up to `stamp_us` old."""

    period_us: int
    jitter_us: int = 0
    stamp_us: int = 0
    phase_us: int = 0

    @property
    def behind_us(self) -> int:
        """How far the newest record that has come can lie back: Claim A1."""
        return max(self.phase_us, self.period_us + self.jitter_us + self.stamp_us)


@dataclass(frozen=True, slots=True)
class RecoveryBound:
    table: str
    tardiness_us: int
    response_us: int
    staleness_us: int
    # Of what staleness consists: the table on the way with the largest response, for those who want it smaller.
    because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """A set of tasks on tracks, and how their data come."""

    tasks: tuple[RecoveryTask, ...]
    tracks: int
    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    # Derived tables, each after what it reads.
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Longest jobs in the background, where they are longer than the cost.
    merged_us: Mapping[str, int] = field(default_factory=dict)
    # How much later than its sources a table can be even if nothing waits: those that are made by whole partitions.
    held_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def utilisation(self) -> float:
        return total_utilisation(self.tasks)

    @property
    def fits(self) -> bool:
        return self.utilisation <= self.tracks + ROUNDING and all(
            t.cost_us <= t.period_us for t in self.tasks if t.reserved
        )

    @property
    def delay_us(self) -> int:
        """The second term of Theorem 1, the same for all tables."""
        if not self.tasks:
            return 0
        m = self.tracks
        longest = sorted((max(t.cost_us, self.merged_us.get(t.table, 0)) for t in self.tasks), reverse=True)
        shortest = min(task.cost_us for task in self.tasks)
        shares = sorted((task.recovery_utilisation for task in self.tasks if task.reserved), reverse=True)
        left = m - sum(shares[: m - 1])
        return max(0, ceil((sum(longest[:m]) - shortest) / left))

    def bounds(self) -> dict[str, RecoveryBound]:
        """The bounds of every table with a reservation; none at all if they need more than there is. A table over one
        without a reservation has none either."""
        if not self.fits:
            return {}
        delay = self.delay_us
        found: dict[str, RecoveryBound] = {}
        tasks = {task.table: task for task in self.tasks if task.reserved}
        for table in [*(t for t in tasks if t not in self.sources), *self.sources]:
            if table not in tasks or any(source not in found for source in self.sources.get(table, ())):
                continue
            task = tasks[table]
            tardiness = task.cost_us + delay
            response = task.period_us + tardiness
            behind, way = self._behind(table, task, found)
            found[table] = RecoveryBound(table, tardiness, response, response + task.period_us + behind, (*way, table))
        return found

    def _behind(
        self, table: str, task: RecoveryTask, found: Mapping[str, RecoveryBound]
    ) -> tuple[int, tuple[str, ...]]:
        if table not in self.sources:
            return self.deliveries.get(table, Delivery(task.period_us)).behind_us, ()
        held = self.held_us.get(table, 0)
        known = [found[source] for source in self.sources[table] if source in found]
        if not known:
            return held, ()
        worst = max(known, key=lambda bound: bound.staleness_us)
        return worst.staleness_us + held, worst.because

    def least_us(self, table: str) -> int:
        """What the staleness bound would be if no update ever waited for another: no number of tracks makes it smaller."""
        task = next(task for task in self.tasks if task.table == table)
        own = 2 * task.period_us + task.cost_us
        if table not in self.sources:
            return own + self.deliveries.get(table, Delivery(task.period_us)).behind_us
        known = {task.table for task in self.tasks}
        above = max((self.least_us(source) for source in self.sources[table] if source in known), default=0)
        return own + above + self.held_us.get(table, 0)

    def with_thresholds(self) -> Model:
        """Tables enter recovery mode when they are further behind than a healthy one can be (Sec. V, end)."""
        bounds = self.bounds()
        tasks = tuple(
            replace(t, threshold_us=bounds[t.table].staleness_us if t.table in bounds else t.threshold_us)
            for t in self.tasks
        )
        return replace(self, tasks=tasks)

    def recovery_us(self, table: str, outage_us: int) -> int | None:
        """Theorem 4: the longest time from entering recovery mode until the backlog of an outage is gone. None if the table
        cannot catch up, because its period would not shrink. A derived table follows when its sources have recovered."""
        bounds = self.bounds()
        if table not in bounds:
            return None
        return self._recovery_us(table, outage_us, bounds)

    def _recovery_us(self, table: str, outage_us: int, bounds: Mapping[str, RecoveryBound]) -> int | None:
        task = next(t for t in self.tasks if t.table == table)
        before = 0
        for source in self.sources.get(table, ()):
            if source in bounds:
                needs = self._recovery_us(source, outage_us, bounds)
                if needs is None:
                    return None
                before = max(before, needs)
        if before:
            outage_us += before + bounds[table].staleness_us
        cleared = clearing_us(task, bounds[table].response_us, outage_us, self._jitter_us(table))
        return None if cleared is None else before + cleared

    def _jitter_us(self, table: str) -> int:
        return self.deliveries[table].jitter_us if table in self.deliveries else 0

    def all_recovered_us(self, outages_us: Mapping[str, int]) -> int | None:
        """The latest time after outages of these base tables by which all have recovered, whoever goes first.

        As long as one waits, another recovers. One that waits keeps up in normal mode, so that its backlog grows by no more
        than a response, a jitter and two periods."""
        bounds = self.bounds()
        total = 0
        for table, outage_us in outages_us.items():
            if table not in bounds:
                return None
            task = next(t for t in self.tasks if t.table == table)
            jitter, response = self._jitter_us(table), bounds[table].response_us
            waiting = jitter + response + 2 * task.period_us if len(outages_us) > 1 else 0
            needs = clearing_us(task, response, outage_us + waiting, jitter)
            if needs is None:
                return None
            total += needs + task.recovery_us
        return total


def clearing_us(task: RecoveryTask, response_us: int, outage_us: int, jitter_us: int = 0) -> int | None:
    """x_k of Theorem 4."""
    p, short = task.period_us, task.recovery_us
    if short >= p:
        return None
    return ceil((response_us * p + (outage_us + jitter_us + p) * short) / (p - short))


def tracks_needed(tasks: Iterable[RecoveryTask]) -> int:
    """The fewest tracks that hold all reservations."""
    return max(1, ceil(total_utilisation(tasks) - ROUNDING))
