"""Many independent runs on all cores, with their results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def sweep(work: Callable[[T], R], points: Iterable[T], jobs: int | None = None) -> Iterator[R]:
    """The results as they come due. `work` and the points must be picklable; with one job all runs in this process."""
    todo = list(points)
    count = min(len(todo), jobs or os.cpu_count() or 1)
    if count <= 1:
        yield from map(work, todo)
        return
    with ProcessPoolExecutor(count) as pool:
        try:
            yield from pool.map(work, todo)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
