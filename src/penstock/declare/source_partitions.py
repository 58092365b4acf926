"""Which partitions of its sources the rows of a partition come from, as its time column tells.

A partition keeps the rows whose time lies in it. So it must read every source partition that can give such a row: the default
relation is widened where the time is moved by a constant, and what cannot be known must be said with `sources`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from penstock.declare.sql.facts import (
    Chosen,
    ColumnTerm,
    Local,
    Origin,
    PartitionBounds,
    Rounded,
    Shifted,
    Step,
    Unknown,
    Within,
)
from penstock.model.grain import WHOLE, Calendar, Fixed, Grain, nested, parse_grain
from penstock.model.relations import Window
from penstock.model.tables import Source
from penstock.model.time import DAY_US, END_US, HOUR_US, MINUTE_US

# A day of a calendar may be an hour or two longer or shorter than others.
_SLACK_US = 2 * HOUR_US
_NOTHING = (0, 0)


@dataclass(frozen=True, slots=True)
class Placing:
    """What is known of the time of a view's rows."""

    # By how many partitions the time of a row may differ from the time of the source's row, for each source of it.
    moved: Mapping[str, tuple[int, int]]
    # Whether the time is that of the source's row as it is.
    as_it_is: bool = False
    # What cannot be known, in words; with the source that it belongs to, if it is one.
    unknown: tuple[tuple[str | None, str], ...] = ()
    # A time that is coarser than the partition: all rows of the day would be in its first hour.
    coarse: str = ""
    # A time that is made of the partition's own bounds and does not lie in it.
    outside: bool = False

    @property
    def stays(self) -> bool:
        """Whether each row is in the partition of the source's rows that it was made from."""
        return not self.unknown and all(moved == _NOTHING for moved in self.moved.values())

    def needs(self, source: str) -> Window:
        low, high = self.moved.get(source, _NOTHING)
        return Window(-high, 1 - low)

    def ahead(self, sources: Iterable[Source], by_partition: bool) -> int:
        """By how many partitions rows may lie after those of the sources. Where that is not known, as far as they are read,
        unless rows are made of the partition itself."""
        found = [0]
        for source in sources:
            if source.table in self.moved:
                found.append(self.moved[source.table][1])
            elif source.window is not None and self.unknown and not by_partition:
                found.append(-source.window[0])
        return max(found)

    def covered_by(self, source: Source) -> bool:
        """Whether a partition reads all partitions of a source that its rows can come from, as far as that is known."""
        if source.window is None or source.table not in self.moved:
            return True
        needs = self.needs(source.table)
        return source.reads(needs.low, needs.high)

    def doubt(self, source: Source) -> str:
        """Why it is not known which partitions of a source the rows come from; empty if it is."""
        if source.window is None:
            return ""
        return next((why for table, why in self.unknown if table in (None, source.table)), "")


def place(origins: Iterable[Origin], times: Mapping[str, str | None], grain: Grain, zone: str) -> Placing:
    """`times`: the time column of each source."""
    moved: dict[str, tuple[int, int]] = {}
    unknown: list[tuple[str | None, str]] = []
    coarse, plain, outside = "", True, False
    for origin in origins:
        for each in _pinned(origin, times, grain, zone):
            plain = plain and isinstance(each, ColumnTerm) and not each.steps
            match each:
                case ColumnTerm() if _is_time(each, times):
                    found = by_partitions(each.steps, grain, zone)
                    before = moved.get(each.table, found)
                    moved[each.table] = (min(before[0], found[0]), max(before[1], found[1]))
                    coarse = coarse or _coarser(each.steps, grain, zone)
                case ColumnTerm():
                    time = times.get(each.table)
                    unknown.append(
                        (each.table, f"`{each.column}` is not the time of `{each.table}` (that is `{time}`)")
                    )
                case PartitionBounds():
                    outside = outside or not _lies_inside(each, grain, zone)
                case Chosen():
                    unknown.append((None, f"{each.text} is taken from rows that may lie in several partitions"))
                case Unknown():
                    unknown.append((None, f"what {each.text} is for rows of a given time is not known"))
    return Placing(moved, plain and not unknown, tuple(sorted(unknown, key=str)), coarse, outside)


def _is_time(column: ColumnTerm, times: Mapping[str, str | None]) -> bool:
    return column.column.lower() == (times.get(column.table) or "").lower()


def _lies_inside(bounds: PartitionBounds, grain: Grain, zone: str) -> bool:
    if grain is WHOLE:
        return True
    least = most = 0
    for step in bounds.steps:
        if not isinstance(step, Within) or not keeps(step.unit, grain, zone):
            low, high = _micros(step, zone)
            least, most = least + low, most + high
    shortest, _ = _widths(grain)
    return -shortest <= least <= most < 0 if bounds.name == "partition_end" else 0 <= least <= most < shortest


def _pinned(origin: Origin, times: Mapping[str, str | None], grain: Grain, zone: str) -> Iterable[Origin]:
    """What is chosen among rows that all lie in one partition is like a value of one row."""
    if not isinstance(origin, Chosen):
        return (origin,)
    for key in origin.keys:
        if key and all(
            isinstance(each, ColumnTerm)
            and _is_time(each, times)
            and by_partitions(each.steps, grain, zone) == _NOTHING
            for each in key
        ):
            return [each for value in origin.values for each in _pinned(value, times, grain, zone)]
    return (origin,)


def by_partitions(steps: Iterable[Step], grain: Grain, zone: str) -> tuple[int, int]:
    """By how many partitions these steps may move a time: the least and the most.

    >>> hour = parse_grain("hour")
    >>> by_partitions([Within("minute"), Moved(micros=(300_000_000, 300_000_000))], hour, "UTC")
    (0, 1)
    >>> by_partitions([Within("day")], hour, "UTC")
    (-24, 0)
    """
    if grain is WHOLE:
        return _NOTHING
    low = high = 0
    shortest, longest = _widths(grain)
    for step in steps:
        if isinstance(step, Within) and keeps(step.unit, grain, zone):
            continue
        if isinstance(step, Rounded):
            steady = Fixed("", step.micros)
            if nested(steady, grain) or (isinstance(grain, Fixed) and replace(grain, name="") == steady):
                continue
        least, most = _micros(step, zone)
        low += least // longest if least >= 0 else -_up(-least, shortest)
        high += _up(most, shortest) if most >= 0 else -((-most) // longest)
    return low, high


def _up(micros: int, width: int) -> int:
    return -(-micros // width)


def _coarser(steps: Iterable[Step], grain: Grain, zone: str) -> str:
    for step in steps:
        longer = isinstance(step, Within) and step.back and _LENGTHS.get(step.unit, 0) > _widths(grain)[1]
        if isinstance(step, Within) and longer and not keeps(step.unit, grain, zone):
            return step.unit
    return ""


def _widths(grain: Grain) -> tuple[int, int]:
    if grain is WHOLE:
        return END_US, END_US
    if isinstance(grain, Fixed):
        return grain.width_us, grain.width_us
    assert isinstance(grain, Calendar)
    days = {"day": (1, 1), "week": (7, 7), "month": (28, 31), "quarter": (90, 92), "year": (365, 366)}[grain.name]
    slack = 0 if grain.zone == "UTC" else _SLACK_US
    return days[0] * DAY_US - slack, days[1] * DAY_US + slack


_LENGTHS = {"minute": MINUTE_US, "hour": HOUR_US, "day": DAY_US, "week": 7 * DAY_US, "month": 31 * DAY_US,
            "quarter": 92 * DAY_US, "year": 366 * DAY_US}  # fmt: skip


def _micros(step: Step, zone: str) -> tuple[int, int]:
    """By how much a step may move a time."""
    slack = 0 if zone == "UTC" else _SLACK_US
    match step:
        case Local():
            return (0, 0) if zone == "UTC" else (-slack, slack)
        case Rounded():
            return -step.micros, 0
        case Within():
            length = _LENGTHS.get(step.unit, 10**6) + (slack if step.unit not in ("second", "minute") else 0)
            return (-length, 0) if step.back else (0, length)
        case Shifted():
            calendar = step.days != _NOTHING or step.months != _NOTHING
            slack = slack if calendar else 0
            months = [count * days for count in step.months for days in (28, 31)]
            return (
                (min(months) + step.days[0]) * DAY_US + step.micros[0] - slack,
                (max(months) + step.days[1]) * DAY_US + step.micros[1] + slack,
            )


@lru_cache(maxsize=1024)
def keeps(unit: str, grain: Grain, zone: str) -> bool:
    """Whether two times of one minute (hour, day …) of the project's zone always lie in one partition. (Where clocks are
    set back over midnight they do not; such views are refused.)"""
    if grain is WHOLE or unit == "second":
        return True
    own = parse_grain(unit, zone)
    return own == grain or nested(own, grain)
