"""Many independent runs on all cores, with their results in order."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from penstock.control.controller import PolicyError
from penstock.errors import PenstockError

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
        at = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise PolicyError(f"{policy}: it failed with {what} ({Path(at.filename).name}:{at.lineno})") from error
