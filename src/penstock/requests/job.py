"""A job in full, the files that it loads, and what it publishes: what the core tells a runtime, and is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model.partitions import Interval
from penstock.requests.needs import Piece

Anew = Literal["", "rows", "files"]


@dataclass(frozen=True, slots=True)
class FeedFile:
    """One delivered file. The name with the checksum is its identity; `id` is the number of this content of it, which rows of
    base tables carry."""

    uri: str
    checksum: str
    size_bytes: int
    arrived_us: int
    id: int = 0
    # What orders it among files that state the same partitions; the later arrival where that is equal.
    order: str = ""
    # What the base table was complete up to when it came: rows before that are late.
    late_us: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One update of one table, with everything that it may read: it can be carried out from this alone."""

    id: str
    table: str
    # An `order` is done by an outside job.
    kind: Literal["load", "derive", "upkeep", "order"]
    # The snapshot at which all sources are read.
    pin: int
    files: tuple[FeedFile, ...] = ()
    pieces: tuple[Piece, ...] = ()
    # Rows of the sources are used up to here.
    edge_us: int | None = None
    # The table is complete up to here when the job is done.
    complete_us: int | None = None
    # Base tables and the publication of each that the table fully reflects when the job is done; None if some work
    # of the table is left for later, so that the result is between two states of its sources.
    reflects: tuple[tuple[str, int], ...] | None = None
    # What it reads, in bytes: what came since the last update, and what partitions that it makes again are made from.
    amount: float = 0.0
    expected_s: float = 0.0
    attempt: int = 1
    # Of the amount, what came since the last update; None: all of it.
    fresh: float | None = None
    # Of a base table: files whose rows go, as they were withdrawn.
    withdrawn: tuple[str, ...] = ()
    # The table is declared anew: what it held before ends with this job, whatever partitions that was in. A base table takes
    # its `rows` along, or its `files` are read again.
    anew: Anew = ""
    # Sources that are not there, and without which it is made: what they held before does not count.
    without: tuple[str, ...] = ()
    # Of an order: each source with its newest version at the pin, which the result must contain.
    inputs: tuple[tuple[str, int], ...] = ()
    # Of a group: the jobs of the other tables, which are done with this one and published with it.
    beside: tuple[Job, ...] = ()

    @property
    def news(self) -> float:
        return self.amount if self.fresh is None else self.fresh

    @property
    def each(self) -> tuple[Job, ...]:
        """The jobs of all tables that it makes."""
        return (self, *self.beside)

    @property
    def version(self) -> int:
        """Which state of its inputs it is made from: the newest version among them."""
        return max((version for _, version in self.inputs), default=self.pin)

    @property
    def makes_anew(self) -> bool:
        """Whether it makes partitions from what its sources hold."""
        return self.kind in ("derive", "order")


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """What one job changed in one table."""

    table: str
    snapshot: int
    append: bool
    changed: tuple[Interval, ...] = ()
    complete_us: int | None = None
    leading_us: int | None = None
    begin_us: int | None = None
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    # So many rows of it are in quarantine now; None if that is as before.
    quarantined_rows: int | None = None
    # And of these so many were set aside because they came late.
    late_rows: int = 0
    # It was made from inputs that are of no one state: no consistent read uses it.
    mixed: bool = False
    # Of a base table that lost rows: the newest event time that it has left, as an interval that is empty if it has none.
    left: Interval | None = None
    # Of what was made again: where the rows are the same as before, so that readers need not follow. Of a table without times
    # all of it or nothing.
    same: tuple[Interval, ...] = ()
