"""What the engine needs of the world, each as a type. Another object store, engine or clock is a class with these methods; nobody else has to know.

| port | here | in tests also |
|---|---|---|
| `Clock` | `engine/clock.py` | clocks that stand still until they are moved |
| `FeedSource` | `engine/arrivals/folders.py` | a list in memory |
| `Storage` | `engine/storage.py` | a disk that forgets what was not made durable |
| `Compute` | `engine/spark/work.py` | one that only uses Arrow |

The store is a port of its own kind: `store/` writes SQL that SQLite and PostgreSQL understand, and the tests of the store run on both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.declare.api import FeedDeclaration
from penstock.flows.report import FlowReport
from penstock.model.partitions import Interval
from penstock.model.schema import Schema
from penstock.requests.job import FeedFile, Job
from penstock.tables import DataFile


class Clock(Protocol):
    # How many of its seconds pass in one of ours.
    speed: float

    def now_us(self) -> int: ...

    def wall_s(self, duration_us: int) -> float:
        """How long to wait for so much of its time to pass."""
        ...


# Where feeds deliver


@dataclass(frozen=True, slots=True)
class Seen:
    """How a file is when it is looked at."""

    size: int
    mtime_ns: int


class FeedSource(Protocol):
    """The files of one feed, or its markers. Says which there are; they are read by their paths."""

    # What is new or changed, until somebody takes it out.
    fresh: dict[str, Seen]

    def matches(self, path: str) -> bool:
        """Whether a file would be one of these."""
        ...

    @property
    def missed(self) -> bool:
        """Whether something may have happened that was not told, so that only a look at everything helps."""
        ...

    @property
    def has_news(self) -> bool: ...

    @property
    def all_told(self) -> bool:
        """Whether whatever happens is told."""
        ...

    def look(self) -> None:
        """At everything there is."""
        ...

    def glance(self) -> None:
        """At what was told."""
        ...

    def sweep(self) -> Iterator[None]:
        """At everything again, a little with each step."""
        ...

    def list_changed(self) -> None:
        """At what may have changed without being told."""
        ...

    def see_again(self, path: str) -> Seen | None:
        """A fresh file as it is now; None if it is gone, or new no more."""
        ...

    def look_again(self, path: str) -> None:
        """With the next glance: a file could not be loaded."""
        ...

    def forget(self, path: str) -> None:
        """Whatever it is, it is new when it is seen next."""
        ...


class FeedSources(Protocol):
    def __call__(self, feed: FeedDeclaration, pattern: str, watched: bool = True) -> FeedSource:
        """`watched`: it is kept and looked at all the time; else once."""
        ...


# Where data files are kept


class Storage(Protocol):
    def is_inside(self, path: str) -> bool:
        """Whether a file is kept here; others may hand over files that they keep elsewhere."""
        ...

    def written_by_a_job(self, path: str) -> bool:
        """Whether it lies where jobs of the project write, and nobody else."""
        ...

    def make_durable(self, paths: Collection[str]) -> None:
        """What is in these files survives a loss of power from now on."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Also those that are gone already; folders that get empty go, too."""
        ...

    def job_folders(self, table: str, job: str) -> list[Path]:
        """The folders into which a job wrote, below the folder of a table."""
        ...

    def clear(self, folder: Path, keep: Collection[str] = ()) -> None:
        """What jobs wrote into a folder but for some files."""
        ...


# Who computes


@dataclass(frozen=True)
class Made:
    """Files that a job wrote for one table."""

    table: str
    schema: Schema
    files: tuple[DataFile, ...]
    # Partitions whose files end: () none, None all of the table.
    replace: tuple[Interval, ...] | None = ()
    # Single files that end.
    drop: tuple[int, ...] = ()
    # The event times of rows that are gone with those; and whether the files hold nothing but rows that stay.
    lost: tuple[Interval, ...] = ()
    kept: bool = False


@dataclass(frozen=True)
class Computed:
    made: tuple[Made, ...]
    how: str
    # Of a flow: the rows of its activities, times, memory.
    report: FlowReport | None = None
    # Of a load: in which stretches of time each file has rows.
    spans: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict)
    # Of a load: its files, each with what orders it.
    files: tuple[FeedFile, ...] = ()
    # And how each was read.
    readings: Mapping[str, str] = field(default_factory=dict)
    # And how many rows of each were set aside as late.
    late: Mapping[str, int] = field(default_factory=dict)


class Compute(Protocol):
    """The data work of jobs. What is not written out here does nothing."""

    def run(self, job: Job, folder: str) -> Computed: ...

    def together(self, job: Job, folder: str) -> AbstractContextManager[None]:
        """While the tables of a group are made one after the other: what they share need be read only once. If one of
        them fails, what was made for the others goes too."""
        return nullcontext()

    def discard(self, job: Job, folder: str) -> None:
        """What was made for a job is not needed: it will not be published."""
        return

    def digest(self, table: str, files: Sequence[DataFile], schema: Schema) -> str | None:
        """The digest of the rows of some files, which who wrote them did not compute."""
        return None

    @property
    def is_alive(self) -> bool:
        """Else another one is made before the next job."""
        return True

    def begin(self, group: str, track: int, what: str) -> None:
        """What this thread does from now on goes by this name."""
        return

    def stop(self, group: str) -> None:
        """Give up what goes by this name; called from another thread."""
        return
