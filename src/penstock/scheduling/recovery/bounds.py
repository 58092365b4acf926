"""What is proven before anything runs (Leontyev, Johnson, Anderson 2010, Sec. IV to VI, and what was added: docs/recovery-theory.md).

    tardiness  Y = e + (sum of the m longest jobs - the shortest) / (m - sum of the m - 1 largest shares W)      Theorem 1
    response   Theta = p + Y                                                                                      Lemma 1
    staleness  A = Theta + p + b + max(phase, p + J + kappa) of a base table,
               A = Theta + p + b + max of A over its sources                                                      Def. 13
    recovered  Q = the same, and a period more for every table on the way
    recovery   of everything that outages reached, after the last return: see `Model.recovery`

All of it holds while no job takes longer than its cost, files come as declared, all tracks run, and the tables together
need no more than there are tracks. A longest job is the longest that may ever hold a track: also one of best effort, or
one that merges files in the background. b is how long a job in the background of a derived table may have run already when
it becomes the released one: it looked at its sources that much earlier. Theorem 4 of the paper takes each table by itself; where
several recover it is not enough, and is used nowhere here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, fsum

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
    # While its feeds are healthy; and once it has recovered from an outage, until it was fresh again.
    staleness_us: int
    recovered_us: int
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
    # Whether tracks that idle catch up; and whether they do other things besides, for queries or backfills.
    background: bool = True
    besides: bool = False

    @cached_property
    def known(self) -> dict[str, RecoveryTask]:
        return {task.table: task for task in self.tasks}

    @property
    def utilisation(self) -> float:
        return total_utilisation(self.tasks)

    @property
    def fits(self) -> bool:
        return self.utilisation <= self.tracks + ROUNDING and all(
            t.cost_us <= t.period_us for t in self.tasks if t.reserved
        )

    @cached_property
    def longest_us(self) -> list[int]:
        """The longest job of each table, longest first."""
        return sorted((self.longest_of(task) for task in self.tasks), reverse=True)

    def longest_of(self, task: RecoveryTask) -> int:
        return max(task.cost_us, self.merged_us.get(task.table, 0))

    @property
    def outside_us(self) -> int:
        """How long a job may hold a track that is in no reservation (upkeep, a piece of a backfill) so that nobody waits longer
        for it than for the updates that there are anyway: as long as the m-th longest of them."""
        return self.longest_us[min(self.tracks, len(self.longest_us)) - 1] if self.tasks else 0

    @cached_property
    def delay_us(self) -> int:
        """The second term of Theorem 1, the same for all tables."""
        if not self.tasks:
            return 0
        m = self.tracks
        shortest = min(task.cost_us for task in self.tasks)
        shares = sorted((task.recovery_utilisation for task in self.tasks if task.reserved), reverse=True)
        left = m - sum(shares[: m - 1])
        return max(0, ceil((sum(self.longest_us[:m]) - shortest) / left))

    def bounds(self) -> dict[str, RecoveryBound]:
        """The bounds of every table with a reservation; none at all if they need more than there is. A table over one
        without a reservation has none either."""
        return self._bounds if self.fits else {}

    @cached_property
    def _bounds(self) -> dict[str, RecoveryBound]:
        found: dict[str, RecoveryBound] = {}
        tasks = {task.table: task for task in self.tasks if task.reserved}
        for table in [*(t for t in tasks if t not in self.sources), *self.sources]:
            if table not in tasks or any(source not in found for source in self.sources.get(table, ())):
                continue
            task = tasks[table]
            tardiness = task.cost_us + self.delay_us
            response = task.period_us + tardiness
            behind, recovered, way = self._behind(table, task, found)
            own = response + task.period_us + self.early_us(task)
            found[table] = RecoveryBound(
                table, tardiness, response, own + behind, own + task.period_us + recovered, (*way, table)
            )
        return found

    def early_us(self, task: RecoveryTask) -> int:
        """How long before its release an update may have looked at its sources: one that ran on an idle track, be it upkeep or a
        piece of a backfill."""
        early = self.begins_early and task.table in self.sources
        return max(self.longest_of(task), self.outside_us) if early else 0

    @property
    def begins_early(self) -> bool:
        return self.background or self.besides

    def _behind(
        self, table: str, task: RecoveryTask, found: Mapping[str, RecoveryBound]
    ) -> tuple[int, int, tuple[str, ...]]:
        held = self.held_us.get(table, 0)
        if table not in self.sources:
            behind = self.deliveries.get(table, Delivery(task.period_us)).behind_us
            return behind, behind, ()
        known = [found[source] for source in self.sources[table]]
        if not known:
            return held, held, ()
        worst = max(known, key=lambda bound: bound.staleness_us)
        return worst.staleness_us + held, max(bound.recovered_us for bound in known) + held, worst.because

    def least_us(self, table: str) -> int:
        """What the staleness bound would be if no update ever waited for another: no number of tracks makes it smaller."""
        task = self.known[table]
        own = 2 * task.period_us + task.cost_us + self.early_us(task)
        if table not in self.sources:
            return own + self.deliveries.get(table, Delivery(task.period_us)).behind_us
        above = max((self.least_us(source) for source in self.sources[table] if source in self.known), default=0)
        return own + above + self.held_us.get(table, 0)

    def with_thresholds(self) -> Model:
        """Tables enter recovery mode when they are further behind than a healthy one can be (Sec. V, end)."""
        bounds = self.bounds()
        tasks = tuple(
            replace(t, threshold_us=bounds[t.table].staleness_us if t.table in bounds else t.threshold_us)
            for t in self.tasks
        )
        return replace(self, tasks=tasks)

    @cached_property
    def above(self) -> dict[str, frozenset[str]]:
        """Of each table all that it is made from, as far as that is planned."""
        found: dict[str, frozenset[str]] = {}
        for table, sources in self.sources.items():
            found[table] = frozenset(sources).union(*(found.get(source, frozenset()) for source in sources))
        return found

    def reached(self, outages_us: Mapping[str, int]) -> dict[str, int]:
        """The tables that outages of these base tables reach, each with the longest."""
        found = {table: length for table, length in outages_us.items() if length > 0}
        for table in self.sources:
            longest = max((found.get(source, 0) for source in self.above[table]), default=0)
            if longest:
                found[table] = max(longest, found.get(table, 0))
        return found

    def recovery(self, reached_us: Mapping[str, int], *, times: int = 1) -> RecoveryTime:
        """`reached_us` are the tables that outages reached, each with the time from the begin of the first to the last return.
        `times` is 2 where feeds returned at different times: a recovery may be under way, and be owed again."""
        return RecoveryTime(self, {t: us for t, us in reached_us.items() if us > 0 and self.known[t].reserved}, times)


class RecoveryTime:
    """When everything that an outage reached has recovered, from the last return on, at the latest. From then on no table is
    staler than its `recovered_us`. Two arguments, each sound by itself; the smaller counts.

    Turns: each table is owed one recovery and has its turn after all that it is made from. One lasts at most x = Theta + n r, with
    as many jobs n as the backlog needs beyond what comes. While some are owed, one recovers. So the sum of all x is enough; and
    so is the sum along one chain, and what others may take while it waits.

    Work: while a table of the chain that ends last is behind, it runs, or all tracks are busy (Graham's argument). So the work of
    all tables bounds the time. That needs tracks that never idle while something is behind."""

    def __init__(self, model: Model, reached_us: Mapping[str, int], times: int) -> None:
        self.model, self.reached_us, self.times = model, reached_us, times
        self.bounds = model.bounds()
        self.order = [*(t for t in model.known if t not in model.sources), *model.sources]

    @cached_property
    def lasts_us(self) -> dict[str, int | None]:
        """x: how long one table stays in recovery mode at most; None if it would never catch up."""
        return {table: self._lasts_us(table) for table in self.order if table in self.reached_us}

    def _lasts_us(self, table: str) -> int | None:
        task, bound = self.model.known[table], self.bounds.get(table)
        if bound is None or not task.recovery_us < task.period_us:
            return None
        behind = self.reached_us[table] + bound.recovered_us + bound.response_us - task.period_us
        jobs = max(1, -(-behind // (task.period_us - task.recovery_us)))
        # The first job may have begun in the background, with less than a period to do.
        jobs += self.model.begins_early
        return bound.response_us + jobs * task.recovery_us

    def latest_us(self, table: str) -> int | None:
        """When one table has recovered. What is made from it comes later, and is not in its way."""
        if table not in self.reached_us:
            return 0
        others = [each for each in self.lasts_us if table not in self.model.above.get(each, frozenset())]
        found = [each for each in (self._turns_us(table, others), self._work_us(table)) if each is not None]
        return min(found, default=None)

    @property
    def all_us(self) -> int | None:
        every = [self.latest_us(table) for table in self.lasts_us]
        return None if None in every else max((each for each in every if each is not None), default=0)

    def _turns_us(self, table: str, others: Sequence[str]) -> int | None:
        lasts = {each: lasts for each in others if (lasts := self.lasts_us[each]) is not None}
        if len(lasts) < len(others):
            return None
        one_by_one = self.times * sum(lasts.values())
        tasks = self.model.known
        spare = self.model.tracks - self.model.utilisation
        increases = {each: tasks[each].increase for each in lasts}
        used = max(spare - max(increases.values()) - ROUNDING, min(increases.values()))
        if used <= 0 or self.times > 1:
            return one_by_one
        chain: dict[str, float] = {}
        for each in self.order:
            if each in lasts:
                before = max((chain[s] for s in self.model.sources.get(each, ()) if s in chain), default=0.0)
                chain[each] = lasts[each] * (1 - increases[each] / used) + max(0.0, before)
        listed = ceil(fsum(increases[each] * lasts[each] for each in lasts) / used + chain[table])
        return min(one_by_one, max(listed, lasts[table]))

    def _work_us(self, table: str) -> int | None:
        if not self.model.background or any(task.table not in self.bounds for task in self.model.tasks):
            return None
        m = self.model.tracks
        # Jobs with less than a period to do pay a whole start: how many there may be, once and for each microsecond.
        once: dict[str, float] = {}
        ever: dict[str, float] = {}
        own: dict[str, float] = {}
        work = rate = 0.0
        for each in self.order:
            task = self.model.known[each]
            data = self.reached_us.get(each, 0) + self.bounds[each].recovered_us
            sources = self.model.sources.get(each, ())
            partly = sum(once[s] for s in sources), sum(ever[s] for s in sources)
            once[each], ever[each] = data / task.period_us + 2 + partly[0], 1 / task.period_us + partly[1]
            own[each] = task.utilisation * data + 2 * self.model.longest_of(task)
            work += own[each] + task.cost_us * partly[0]
            rate += task.utilisation + task.cost_us * partly[1]
        chain, share = self._chain(table, own)
        left = m - rate - (m - 1) * share
        return ceil((work + m * self.model.outside_us + (m - 1) * chain) / left) if left > ROUNDING else None

    def _chain(self, table: str, own: Mapping[str, float]) -> tuple[float, float]:
        """The longest way to a table through what was reached: its work, and the largest share on it."""
        before = [self._chain(s, own) for s in self.model.sources.get(table, ()) if s in self.reached_us]
        return (
            own[table] + max((work for work, _ in before), default=0.0),
            max([self.model.known[table].utilisation, *(share for _, share in before)]),
        )


def tracks_needed(tasks: Iterable[RecoveryTask]) -> int:
    """The fewest tracks that hold all reservations."""
    return max(1, ceil(total_utilisation(tasks) - ROUNDING))
