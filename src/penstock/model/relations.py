"""Which partitions of a source a partition of a table is made from.

A `Window(low, high)` says it in partitions of the table itself: partition n reads what its source holds from the start
of partition n + low to the start of partition n + high. `(0, 1)` is the same stretch of time (the same partition, the
hours of the day, the weeks that overlap the month), `(-1, 0)` the previous one, `(-3, 0)` the last three before it.
Where the source's partitions do not fit, every partition that overlaps counts. A window may be counted in another grain: an
hour that reads the day before its day, a month and the seven days before it. `Windows` are several, with holes between.

Both directions are exact and never enumerate: for sets S of source and P of table partitions
`required(P)` meets S if and only if P meets `affected(S)`.

>>> from penstock.model.grain import parse_grain
>>> hour, day = parse_grain("hour"), parse_grain("day")
>>> same = PartitionMap(Window(0, 1), hour, day)
>>> same.affected(PartitionSet.of((3_600_000_000, 7_200_000_000))) == PartitionSet.of((0, 86_400_000_000))
True
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.model.grain import WHOLE, Calendar, Grain, nested, parse_grain
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet


@dataclass(frozen=True, slots=True)
class Window:
    """From partition `low` to before partition `high`, counted from the table's own partition; with `unit` from that which is
    around it, or as many of those as it has."""

    low: int
    high: int
    unit: Grain | None = None

    def __str__(self) -> str:
        word = "PARTITION" if self.unit is None else self.unit.name.upper()
        first, last = _point(word, self.low), _point(word, self.high - 1)
        return first if first == last else f"{first} .. {last}"


def _point(word: str, offset: int) -> str:
    return word if not offset else f"{word} {'-' if offset < 0 else '+'} {abs(offset)}"


@dataclass(frozen=True, slots=True)
class Windows:
    """Several windows of one source, which need not touch."""

    parts: tuple[Window, ...]

    @property
    def high(self) -> int:
        return max(part.high for part in self.parts)

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Everything:
    """All partitions of the source: singleton dimensions, and tables that are not partitioned."""

    def __str__(self) -> str:
        return "everything"


Relation = Window | Windows | Everything
SAME = Window(0, 1)


def fits(source: Grain, table: Grain) -> bool:
    """Whether the boundaries of the table are boundaries of its source, so that a window reads whole partitions only."""
    return source == table or nested(source, table)


@dataclass(frozen=True, slots=True)
class PartitionMap:
    relation: Relation
    source: Grain
    table: Grain

    def _each(self, relation: Windows) -> Iterator[PartitionMap]:
        return (PartitionMap(part, self.source, self.table) for part in relation.parts)

    def required(self, partitions: PartitionSet) -> PartitionSet:
        """Backward: the source partitions that these partitions of the table read."""
        if not partitions:
            return EMPTY
        relation = self.relation
        if isinstance(relation, Everything) or self.source is WHOLE or self.table is WHOLE:
            return EVERYTHING
        if isinstance(relation, Windows):
            return PartitionSet.of(*(run for each in self._each(relation) for run in each.required(partitions)))
        unit, hull = relation.unit or self.table, self.source.hull
        # A run of partitions reads one run: windows of neighbours touch or overlap because low < high.
        return PartitionSet.of(
            *(
                hull(unit.shift(unit.floor(start), relation.low), unit.shift(unit.ceil(end), relation.high - 1))
                for start, end in partitions
            )
        )

    def affected(self, partitions: PartitionSet) -> PartitionSet:
        """Forward: the partitions of the table that read any of these source partitions."""
        if not partitions:
            return EMPTY
        relation, table = self.relation, self.table
        if isinstance(relation, Everything) or self.source is WHOLE or table is WHOLE:
            return EVERYTHING
        if isinstance(relation, Windows):
            return PartitionSet.of(*(run for each in self._each(relation) for run in each.affected(partitions)))
        unit = relation.unit or table
        found = []
        for start, end in partitions:
            start, end = self.source.hull(start, end)
            # n is affected if start(n + low) < end and start(n + high) > start; counted in units, those around n.
            first, last = unit.shift(unit.floor(start), 1 - relation.high), unit.shift(unit.ceil(end), -relation.low)
            found.append((table.floor(first), table.ceil(last)))
        return PartitionSet.of(*found)

    def cut(self, edge_us: int) -> int:
        """Up to which time rows of the source are used in a table that is complete up to `edge_us`: the edge itself,
        except where a window looks ahead."""
        relation = self.relation
        if isinstance(relation, Everything) or relation.high <= 1 or self.source is WHOLE or self.table is WHOLE:
            return edge_us
        if isinstance(relation, Windows):
            return max(each.cut(edge_us) for each in self._each(relation))
        unit = relation.unit or self.table
        return unit.shift(unit.ceil(self.table.ceil(edge_us)), relation.high - 1)

    def carried(self, source_edge_us: int) -> int:
        """How far the table can go, as far as this source alone is concerned, when the source is complete up to there."""
        relation = self.relation
        if isinstance(relation, Windows):
            return min(each.carried(source_edge_us) for each in self._each(relation))
        if isinstance(relation, Everything) or relation.high == 1 or self.source is WHOLE or self.table is WHOLE:
            return source_edge_us
        unit = relation.unit or self.table
        if relation.high < 1 and not fits(self.source, unit):
            return source_edge_us  # the last partition that it reads may reach past its own
        # Partition n needs the source up to the start of partition n + high.
        return self.table.floor(unit.shift(unit.floor(source_edge_us), 1 - relation.high))

    @property
    def confined(self) -> bool:
        """Whether a partition is final once the table is complete past it. One that reads a whole source, or source
        partitions longer than its own, changes as long as rows come for those."""
        relation = self.relation
        if isinstance(relation, Windows):
            return all(each.confined for each in self._each(relation))
        if isinstance(relation, Everything) or self.source is WHOLE:
            return False
        unit = relation.unit or self.table
        if unit is self.table or nested(unit, self.table):
            return fits(self.source, unit)
        # It reads longer partitions than its own: they are over if they lie before it.
        return relation.high < 1 and nested(self.table, unit) and fits(self.source, unit)


_POINT = re.compile(r"(?P<word>[A-Z]+|\d+M)\s*(?:(?P<sign>[-+])\s*(?P<count>\d+))?", re.ASCII)
_METHOD = re.compile(r"(?P<word>[A-Z]+)\s*\.\s*(?P<unit>MINUTES|HOURS|DAYS|WEEKS|MONTHS|QUARTERS)\s*\(\s*\)", re.ASCII)
_LAST = re.compile(r"LAST\s+(\d+)", re.ASCII)
_UNITS = {
    "MINUTES": "minutes",
    "HOURS": "hour",
    "DAYS": "day",
    "WEEKS": "week",
    "MONTHS": "month",
    "QUARTERS": "quarter",
}
_FORMS = "same, previous, last N, containing, everything, DAY - 1, DAY - 3 .. DAY - 1, DAY.hours() or SELF - 1"
_UNIT_WORDS = ("HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def default_relation(source: Grain, table: Grain) -> Relation:
    """What a table reads of a source when its author does not say: the same stretch of time."""
    if source is WHOLE or table is WHOLE:
        return Everything()
    if fits(source, table):
        return SAME
    unit = {name: word.lower() for word, name in _UNITS.items()}.get(source.name, "minutes")
    some = (
        f"'containing' (the {source} around each {table})"
        if nested(table, source)
        else f"'{table.name.upper() if table.name.isalpha() else 'PARTITION'}.{unit}()' (those that touch each {table})"
    )
    raise ValueError(
        f"the source is partitioned by {_said(source)}, the table by {_said(table)}: say which of its partitions are "
        f"read, for example {some} or 'everything'"
    )


def parse_relation(text: str, source: Grain, table: Grain, *, itself: bool = False, zone: str = "UTC") -> Relation:
    """What the user wrote, checked against both grains; days of others are those of `zone`."""
    words = " ".join(text.upper().split()).split(",")
    found = [_parsed(word.strip(), text, source, table, itself, zone) for word in words]
    relation = found[0] if len(found) == 1 else _together(found, text)
    if itself and (isinstance(relation, Everything) or relation.high > 0):
        raise ValueError(f"{text!r}: a table can only read its own earlier partitions, for example SELF - 1")
    return relation


def _together(found: Sequence[Relation], text: str) -> Relation:
    """Several parts; those of one unit that touch are one."""
    units: dict[Grain | None, list[Window]] = {}
    for part in found:
        if not isinstance(part, Window):
            raise ValueError(f"{text!r}: 'everything' leaves nothing to say beside it")
        units.setdefault(part.unit, []).append(part)
    parts: list[Window] = []
    for unit, some in units.items():
        parts.append(min(some, key=lambda part: part.low))
        for part in sorted(some, key=lambda part: part.low):
            if part.low <= parts[-1].high:
                parts[-1] = Window(parts[-1].low, max(parts[-1].high, part.high), unit)
            else:
                parts.append(part)
    return parts[0] if len(parts) == 1 else Windows(tuple(parts))


def _parsed(word: str, text: str, source: Grain, table: Grain, itself: bool, zone: str) -> Relation:
    if word == "EVERYTHING":
        return Everything()
    if table is WHOLE:
        raise ValueError(f"{text!r}: the table is not partitioned, so it can only read 'everything'")
    if source is WHOLE:
        raise ValueError(f"{text!r}: the source is not partitioned, so only 'everything' can be read of it")
    if word == "SAME":
        if source != table:
            raise ValueError(
                f"'same' needs equal partitioning, but the source has {_said(source)} and the table {_said(table)}"
            )
        return SAME
    if word == "CONTAINING":
        if not nested(table, source):
            raise ValueError(
                f"'containing' needs a coarser source, but it has {_said(source)} and the table {_said(table)}"
            )
        return SAME
    if word == "PREVIOUS":
        return Window(-1, 0)
    if last := _LAST.fullmatch(word):
        if int(last[1]) < 1:
            raise ValueError(f"{text!r}: 'last N' needs N of at least 1")
        return Window(1 - int(last[1]), 1)
    if method := _METHOD.fullmatch(word):
        _own(method["word"], table, text, itself)
        unit = _UNITS[method["unit"]]
        if not (source.name.endswith("m") if unit == "minutes" else source.name == unit):
            raise ValueError(f"{text!r} needs a source partitioned by {unit}, but it is partitioned by {_said(source)}")
        return SAME
    return _window(word, text, source, table, itself, zone)


def _window(word: str, text: str, source: Grain, table: Grain, itself: bool, zone: str) -> Window:
    ends = [match for end in word.split("..") if (match := _POINT.fullmatch(end.strip()))]
    if len(ends) not in (1, 2) or len(ends) != len(word.split("..")):
        raise ValueError(f"{text!r} is not a partition relation; expected {_FORMS}")
    units = [_unit(end["word"], table, text, itself, zone) for end in ends]
    if units[0] != units[-1]:
        raise ValueError(f"{text!r} counts in two units; write both ends in one")
    offsets = [int(end["count"] or 0) * (-1 if end["sign"] == "-" else 1) for end in ends]
    if offsets[0] > offsets[-1]:
        raise ValueError(f"{text!r} is an empty range; write the earlier end first")
    window = Window(offsets[0], offsets[-1] + 1, units[0])
    if units[0] is not None and (window.low, window.high) == (0, 1) and nested(units[0], table):
        return SAME  # the hours of the day are the day
    if window == SAME and not fits(source, table) and not nested(table, source):
        raise ValueError(
            f"{text!r}: partitions by {_said(source)} do not fit into partitions by {_said(table)}; "
            "name them, as MONTH.weeks()"
        )
    return window


def _unit(word: str, table: Grain, text: str, itself: bool, zone: str) -> Grain | None:
    """In what is counted; None for the table's own partitions."""
    if word not in _UNIT_WORDS or word == table.name.upper() or itself:
        _own(word, table, text, itself)
        return None
    return parse_grain(word.lower(), zone)


def _own(word: str, table: Grain, text: str, itself: bool) -> None:
    allowed = {table.name.upper(), "PARTITION"} | ({"SELF"} if itself else set())
    if word not in allowed:
        raise ValueError(
            f"{text!r} counts in {word}, but the table is partitioned by {_said(table)}: "
            f"write {' or '.join(sorted(allowed))}"
        )


def _said(grain: Grain) -> str:
    """The grain in words: two kinds of days are told apart by their zones."""
    return f"{grain} of {grain.zone}" if isinstance(grain, Calendar) and grain.zone != "UTC" else str(grain)
