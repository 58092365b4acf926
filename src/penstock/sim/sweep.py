"""Many independent runs on all cores, with their results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.scheduling.guard import failure
from penstock.scheduling.jobs import PolicyError

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
