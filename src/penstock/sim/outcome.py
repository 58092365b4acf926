"""What is measured: how stale every table was on average, weighted by its priority, and how busy the tracks were."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import mean, stdev
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.model.time import SECOND_US
from penstock.scheduling.guard import failure
from penstock.scheduling.jobs import PolicyError


class FreshnessSum:
    """The integral of staleness, exact: of (t - F) over time, with F changing in steps. All whole microseconds."""

    __slots__ = ("fresh_us", "since_us", "total")

    def __init__(self, fresh_us: int) -> None:
        self.fresh_us = fresh_us
        self.since_us = 0
        self.total = 0

    def moved(self, now_us: int, fresh_us: int) -> None:
        self.total += self.fresh_us * (now_us - self.since_us)
        self.since_us, self.fresh_us = now_us, fresh_us

    def mean_s(self, horizon_us: int) -> float:
        fresh = self.total + self.fresh_us * (horizon_us - self.since_us)
        return (horizon_us * horizon_us / 2 - fresh) / horizon_us / SECOND_US


class BusySum:
    """How long the tracks were busy: jobs in full, but of those that outlast the run only what is in it."""

    __slots__ = ("_ends", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._ends: list[int] = []

    def add(self, end_us: int, took_us: int) -> None:
        self._total += took_us
        heappush(self._ends, end_us)
        # No job begins before all that ended earlier have: those are settled.
        while self._ends[0] <= end_us - took_us:
            heappop(self._ends)

    def until(self, horizon_us: int) -> int:
        return self._total - sum(max(0, end - horizon_us) for end in self._ends)


@dataclass(frozen=True)
class Outcome:
    # Mean staleness in seconds by table.
    staleness_s: dict[str, float]
    # The same, summed with priorities.
    weighted_s: float
    # Busy time of all tracks as a part of all there is.
    utilisation: float
    events: int
    updates: int
    failures: int = 0
    # Each start: time, table, track, duration; only if asked for.
    trace: list[tuple[int, str, int, int]] = field(default_factory=list)
    # Which loop ran; the schedule is the same.
    loop: str = field(default="controller", compare=False)


# What many runs measured, as flat rows.

Row = dict[str, Any]


def grouped(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Rows with the same values of some keys, in the order of their first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    yield from found.items()


def average(rows: Sequence[Row], key: str) -> tuple[float, float]:
    """The mean over seeds and its standard error."""
    values = [float(row[key]) for row in rows]
    return mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def averages(rows: Sequence[Row], key: str, *by: str) -> dict[tuple[Any, ...], float]:
    return {group: average(found, key)[0] for group, found in grouped(rows, *by)}


# Many independent runs on all cores, with their results in order.

T = TypeVar("T")
R = TypeVar("R")


def sweep(work: Callable[[T], R], points: Iterable[T], jobs: int | None = None) -> Iterator[R]:
    """The results as they come due. `work` and the points must be picklable; with one job all runs in this process."""
    todo = list(points)
    count = min(len(todo), jobs or os.cpu_count() or 1)
    if count <= 1:
        for point in todo:  # not `map`, which would take a StopIteration for the end of the points
            yield work(point)
        return
    with ProcessPoolExecutor(count) as pool:
        try:
            yield from pool.map(work, todo)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def told_of(policy: str) -> Iterator[None]:
    """Whatever goes wrong in a run is told with the name of its policy: it may be one of the user's own."""
    try:
        yield
    except PolicyError as error:
        raise PolicyError(f"{policy}: {error}") from None
    except PenstockError:
        raise
    except Exception as error:
        raise PolicyError(f"{policy}: {failure(error)}") from error
