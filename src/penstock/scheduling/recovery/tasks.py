"""Update tasks as the adaptive scheduler knows them (Leontyev, Johnson, Anderson 2010, Sec. II and III).

A table is updated by a task: jobs of at most `cost_us`, at least `period_us` apart in normal mode and `recovery_us` apart in
recovery mode. Two printed formulas are corrected here: (7) needs min(1, ...), else a recovery period would be shorter than
a job; and the alternative that lets all tables recover at once is max(e, p * U / m).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum
from typing import Literal

PeriodRule = Literal["single", "shared"]
# Loads are sums of quotients: what differs by less is equal.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RecoveryTask:
    table: str
    # The longest time that a job takes, e.
    cost_us: int
    period_us: int
    # p^[r], between the cost and the period.
    recovery_us: int
    # A table further behind its trailing edge than this may enter recovery mode.
    threshold_us: int = 0
    priority: float = 1.0
    # Files that one job loads; of a derived table, periods of data.
    batch: int = 1
    # Files that a job outside of the reservation may load, on a track that idles.
    most: int = 1
    # Whether the table has a reservation. If not, it only ever uses tracks that idle.
    reserved: bool = True

    @property
    def utilisation(self) -> float:
        return self.cost_us / self.period_us

    @property
    def recovery_utilisation(self) -> float:
        """u * p / p^[r]: what the table may use while it recovers."""
        return self.cost_us / self.recovery_us

    @property
    def increase(self) -> float:
        return self.recovery_utilisation - self.utilisation


def total_utilisation(tasks: Iterable[RecoveryTask]) -> float:
    return fsum(task.utilisation for task in tasks if task.reserved)


def recovery_period_us(cost_us: int, period_us: int, total: float, tracks: int, periods: PeriodRule = "single") -> int:
    """The recovery period of a table. `single`: the shortest with which it can recover while no other does, (7).
    `shared`: so that all tables could recover at the same time.

    >>> recovery_period_us(39_600_000, 300_000_000, 1.848, 2) / 300_000_000
    0.464788...
    """
    if periods == "single":
        share = min(1.0, tracks - total + cost_us / period_us)
        wanted = cost_us / share if share > 0 else period_us
    else:
        wanted = max(cost_us, period_us * total / tracks)
    # Rounded up: a period shorter by a part of a microsecond would be more than its share.
    return min(period_us, max(cost_us, ceil(wanted - 1e-6)))


def provisioned(tasks: Sequence[RecoveryTask], tracks: int, periods: PeriodRule = "single") -> list[RecoveryTask]:
    """The same tasks with recovery periods for so many tracks."""
    total = total_utilisation(tasks)
    return [
        replace(task, recovery_us=recovery_period_us(task.cost_us, task.period_us, total, tracks, periods))
        for task in tasks
    ]
