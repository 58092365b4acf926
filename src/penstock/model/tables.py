"""What users declare, as far as deciding needs it: feeds, tables, and what tables read."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, NamedTuple

from penstock.model.grain import Fixed, Grain, nested, parse_grain
from penstock.model.relations import Everything, PartitionMap, Relation, Window, Windows
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US
from penstock.model.timetable import Timetable, parse_timetable

Mode = Literal["append", "snapshot"]
When = Literal["continuous", "closed"]
Overrun = Literal["queue", "preempt", "skip"]
# Which changes of its sources a table takes up: all, or those with one of these reasons; new rows have the reason `new`.
ALL = ("all",)
AUTO = -1
NEW = "new"


@dataclass(frozen=True, slots=True)
class Feed:
    """A source of files outside the warehouse."""

    name: str
    period_us: int = MINUTE_US
    # How much older than the newest record a record may still be. Data older than the newest minus this are complete.
    lateness_us: int = 0
    # Completeness comes from marker files alone ("nothing older than t will come").
    punctuated: bool = False
    mode: Mode = "append"
    timed: bool = True
    # By how much the time between two files may differ from the period; None: as it is learned.
    jitter_us: int | None = None
    # Whether nobody said what the period is, so that the one that is learned is better.
    guessed: bool = False
    # Where marker files lie, as a pattern; empty where nobody wrote it down.
    markers: str = ""
    # What files are a reason for, by patterns of their names: the first that matches counts.
    reasons: tuple[tuple[str, str], ...] = ()

    def reason_of(self, uri: str) -> str:
        """The name that its user gave to the changes which a file brings; empty if there is none."""
        name = uri.rpartition("/")[2]
        fits = (reason for pattern, reason in self.reasons if fnmatchcase(uri, pattern) or fnmatchcase(name, pattern))
        return next(fits, "")


class Part(NamedTuple):
    """A window that is one of several, or counted in another grain than the reader's own (if there is a name of one)."""

    low: int
    high: int
    grain: str = ""
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Source:
    """One table that another reads, and which of its partitions: a window in partitions of the reader, or all."""

    table: str
    window: tuple[int, int] | None = None
    # Whether its time holds the reader back: if not, it is read as it is, as one without time.
    waits: bool = True
    # What is read exactly, if a single window of the reader's partitions is only around it.
    parts: tuple[Part, ...] = ()

    @property
    def relation(self) -> Relation:
        if self.window is None:
            return Everything()
        found = [
            Window(part.low, part.high, _grain(part.grain, part.zone) if part.grain else None) for part in self.parts
        ]
        return Windows(tuple(found)) if len(found) > 1 else found[0] if found else Window(*self.window)

    def reads(self, low: int, high: int) -> bool:
        """Whether it certainly reads all of these partitions, counted from the reader's own."""
        if self.window is None:
            return True
        own = [(part.low, part.high) for part in self.parts if not part.grain] if self.parts else [self.window]
        # Whatever lies around the partition has all of it.
        around = (low, high) == (0, 1) and any(part.low <= 0 < part.high for part in self.parts if part.grain)
        return around or any(first <= low and high <= last for first, last in own)


def source_of(table: str, relation: Relation | None, grain: Grain, waits: bool = True) -> Source:
    """A source that is read so by a table of some partitioning."""
    if relation is None or isinstance(relation, Everything):
        return Source(table, None, waits)
    windows = relation.parts if isinstance(relation, Windows) else (relation,)
    around = [_around(window, grain) for window in windows]
    hull = min(low for low, _ in around), max(high for _, high in around)
    if len(windows) == 1 and windows[0].unit is None:
        return Source(table, hull, waits)
    parts = [
        Part(each.low, each.high)
        if each.unit is None
        else Part(each.low, each.high, each.unit.name, getattr(each.unit, "zone", "UTC"))
        for each in windows
    ]
    return Source(table, hull, waits, tuple(parts))


# How long partitions by the calendar are, in days; each may have an hour or two more or less.
_DAYS = {"day": (1, 1), "week": (7, 7), "month": (28, 31), "quarter": (90, 92), "year": (365, 366)}


def lengths_us(grain: Grain) -> tuple[int, int]:
    """The shortest and the longest partition."""
    if isinstance(grain, Fixed):
        return grain.width_us, grain.width_us
    shortest, longest = _DAYS[grain.name]
    return shortest * DAY_US - 2 * HOUR_US, longest * DAY_US + 2 * HOUR_US


def _around(window: Window, grain: Grain) -> tuple[int, int]:
    """A window of a table's own partitions around one that may be counted in another grain."""
    unit = window.unit
    if unit is None:
        return window.low, window.high
    shortest, longest = lengths_us(grain)[0], lengths_us(unit)[1]
    inside = longest // shortest  # so many more, as it begins and ends with a whole unit
    before, after = -min(0, window.low) * longest, max(0, window.high - 1) * longest
    last = 0 if window.high <= 0 and nested(grain, unit) else 1 + inside - (-after // shortest)
    return -(inside - (-before // shortest)), last


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    partition: str = "none"
    zone: str = "UTC"
    feed: str | None = None
    sources: tuple[Source, ...] = ()
    priority: float = 1.0
    period_us: int | None = None
    target_us: int | None = None
    # "continuous": the partition in progress is kept up to date as data come; "closed": only whole partitions are made.
    when: When = "continuous"
    # What a second of staleness of a changed old partition weighs against one at the leading edge.
    history_weight: float = 0.1
    # Whether rows carry their own time (base tables, row-wise views) or that of their partition (roll-ups).
    exact_time: bool = False
    # Whether what it makes of a row is in the partition of that row's time, and of rows of one partition only: then it does
    # not matter that it reads a source as a whole.
    aligned: bool = False
    # By how many partitions its rows may lie after those that they are made from; and whether they may lie anywhere, as it
    # reads all of its sources whatever partition is made. Then it is always made as a whole.
    ahead: int = 0
    anywhere: bool = False
    # Whether appended rows of the source can be folded in instead of computing the partition again.
    foldable: bool = False
    # Sources of which that is not so: what is looked up there may be looked up by any row.
    looked_up: tuple[str, ...] = ()
    # How many partitions one job may take (views that must be computed partition by partition are costly to plan).
    chop: int | None = None
    # Fingerprint of what computes it: a changed one is a reason to recompute.
    logic: str = ""
    # The column that says in which partition a row is; empty if none does, None if nobody wrote it down.
    time: str | None = None
    # Its columns, as far as they are known: a line each, with the type.
    shape: str = ""
    # How often a failing update is tried before the table is marked failed.
    attempts: int = 4
    # Whether the adaptive policy keeps a part of the tracks for it, so that its staleness is bounded.
    guarantee: bool = False
    # The longest time that an update with one period of data takes, as its owner knows it.
    cost_us: int | None = None
    # How often it is updated while it recovers, if not as often as there is room for.
    recovery_us: int | None = None
    # Tables of one group are updated by one job and become visible together.
    group: str | None = None
    propagate: tuple[str, ...] = ALL
    # What becomes of a running update when a change of the partitions that it makes comes.
    overrun: Overrun = "queue"
    # The table whose jobs make this one too, in the same transaction; it has no updates of its own. Both have the same
    # partitioning and read the same sources.
    leader: str | None = None
    # Sources without which it is made if they have not come (and again when they have), and sources whose absence, when
    # all others are there, is a failure.
    optional: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    # Whether its user wrote the priority down: then demand does not change it.
    fixed: bool = False
    # How long late work of it may wait for a newer change, so that one update brings both; None: not at all for one that
    # is on its way, and a while for one that is known to come (`restated`).
    patience_us: int | None = None
    # What an hour costs by which late work of it comes later, in seconds of updates.
    late_cost: float = 0.0
    # When its old partitions are stated anew, as a timetable; empty if nobody knows.
    restated: str = ""
    # How long reasons to update are collected after the first of them: files and requests of a base table, late changes
    # of a view. `AUTO`: as long as the freshness targets below leave time for.
    queue_us: int = 0
    # Why what computes it was changed the last time.
    reason: str = ""
    # Of a table that an outside job makes: where its rows are, as its declaration says it; empty for one of ours.
    external: str = ""
    # How long an outside job may take for one work order.
    order_within_us: int = DAY_US

    @property
    def grain(self) -> Grain:
        return _grain(self.partition, self.zone)

    @property
    def is_base(self) -> bool:
        return self.feed is not None

    @property
    def is_origin(self) -> bool:
        """Whether it is made from no table of ours: it has a feed, or others make it from something of their own."""
        return self.feed is not None or (bool(self.external) and not self.sources)

    @property
    def timetable(self) -> Timetable | None:
        return parse_timetable(self.restated, self.zone) if self.restated else None


@lru_cache(maxsize=4096)
def _grain(partition: str, zone: str) -> Grain:
    return parse_grain(partition, zone)


@dataclass(frozen=True, slots=True)
class Edge:
    """A way along which changes travel: from a source to a table that reads it."""

    source: str
    table: str
    map: PartitionMap
    waits: bool = True


DEFAULT_PERIOD_US = DAY_US
