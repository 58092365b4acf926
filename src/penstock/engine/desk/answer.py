"""The answer to a query: rows, the versions that they come from, up to when they are complete, and how the query ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.control.views.inputs import WaitingRows
from penstock.engine.desk.question import ResultRows
from penstock.engine.desk.reads import Reading
from penstock.engine.desk.versions import Version
from penstock.model.grain import zone_of
from penstock.queries.outcome import Ending, QueryOutcome, Stale, Way, ending


@dataclass(frozen=True)
class Answer:
    outcome: QueryOutcome
    # What was done to answer it, and why that.
    way: Way
    why: str = ""
    reading: Reading | None = None
    found: ResultRows | None = field(default=None, repr=False)
    # An earlier query had the same answer from the same versions.
    shared: bool = False
    # It had rows, which are not kept any more.
    dropped: bool = False

    @property
    def ending(self) -> Ending:
        return ending(self.outcome)

    @property
    def is_answered(self) -> bool:
        """Whether there are rows: a success, or a stale answer that is not withheld."""
        return self.found is not None and not (isinstance(self.outcome, Stale) and self.outcome.withheld)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.found.table.column_names) if self.found is not None else ()

    @property
    def types(self) -> tuple[str, ...]:
        return self.found.types if self.found is not None else ()

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """As Python values; times are in the project's zone."""
        return python_rows(self.found.table, self.found.zone) if self.found is not None else []

    @property
    def truncated(self) -> bool:
        return self.found is not None and self.found.truncated

    @property
    def complete_us(self) -> int | None:
        return self.reading.complete_us if self.reading is not None else None

    @property
    def final(self) -> bool:
        """Whether `complete_us` is about all rows of its tables; else about what they are made from."""
        return self.reading is None or self.reading.final

    @property
    def lag(self) -> int | None:
        return self.reading.lag if self.reading is not None else None

    @property
    def consistent(self) -> bool:
        return self.reading is None or self.reading.consistent

    @property
    def versions(self) -> tuple[Version, ...]:
        return self.reading.versions if self.reading is not None else ()

    @property
    def waiting(self) -> tuple[WaitingRows, ...]:
        """ResultRows that are not in it, as they wait for other sources."""
        return self.reading.waiting if self.reading is not None else ()

    def plain(self) -> dict[str, Any]:
        """For machines, without the rows."""
        outcome = {name: getattr(self.outcome, name) for name in self.outcome.__dataclass_fields__}
        if outcome.get("acceptable_freshness") is not None:
            need = outcome["acceptable_freshness"]
            outcome["acceptable_freshness"] = {"age_us": need.age_us, "lag": need.lag}
        return {
            "outcome": self.ending.value,
            **outcome,
            "way": self.way.value,
            "because": self.why,
            "complete_us": self.reading.claimed_us if self.reading is not None else None,
            "lag": self.lag,
            "lag_when_asked": outcome.get("lag"),
            "as_of_us": self.reading.as_of_us if self.reading is not None else None,
            "consistent": self.consistent,
            "waiting": [asdict(rows) for rows in self.waiting],
            "versions": [
                {
                    "table": one.table,
                    "snapshot": one.snapshot,
                    "complete_us": one.complete_us if self.final else None,
                    "at_us": one.at_us,
                }
                for one in self.versions
            ],
        }


def python_rows(table: pa.Table, zone: str) -> list[tuple[Any, ...]]:
    columns = [_values(column, zone_of(zone)) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _values(column: pa.ChunkedArray, zone: tzinfo) -> list[Any]:
    """An instant is given in the zone, within other values, too; a time without offset stays so."""
    change = _in_zone(column.type, zone)
    try:
        found = column.to_pylist()
    except (OverflowError, ValueError):  # a year that Python does not have
        change = _in_zone(column.type, zone, by_number=True)
        numbers = _numbers(column.type)
        found = [value for chunk in column.chunks for value in chunk.view(numbers).to_pylist()]
    return found if change is None else [None if value is None else change(value) for value in found]


def _in_zone(kind: pa.DataType, zone: tzinfo, by_number: bool = False) -> Callable[[Any], Any] | None:
    """What gives the instants in a value in the zone; None if values of the type have none. `by_number`: times come as days and microseconds."""

    def each(kind: pa.DataType) -> Callable[[Any], Any]:
        change = _in_zone(kind, zone, by_number)
        return lambda value: value if value is None or change is None else change(value)

    if not pa.types.is_nested(kind):
        if pa.types.is_date32(kind):
            return _date if by_number else None
        if not pa.types.is_timestamp(kind):
            return None
        if by_number:
            return lambda us: _moment(us, zone if kind.tz else None)
        return (lambda at: _at(at, zone)) if kind.tz else None
    if pa.types.is_struct(kind):
        fields = {field.name: each(field.type) for field in kind}
        return lambda value: {name: fields[name](one) for name, one in value.items()}
    if pa.types.is_map(kind):
        key, item = each(kind.key_type), each(kind.item_type)
        return lambda value: [(key(name), item(one)) for name, one in value]
    element = each(kind.value_type)
    return lambda value: [element(one) for one in value]


def _at(at: datetime, zone: tzinfo) -> datetime:
    try:
        return at.astimezone(zone)
    except OverflowError:  # in the zone it is another year, which Python does not have
        return at


def _numbers(kind: pa.DataType) -> pa.DataType:
    """The type with days and microseconds in the place of times."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbers(kind.key_type), _numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _numbers(kind.value_type)))
    return kind


def _date(days: int) -> date | str:
    try:
        return date(1970, 1, 1) + timedelta(days)
    except OverflowError:
        return _text(np.datetime64(days, "D"))


def _moment(us: int, zone: tzinfo | None) -> datetime | str:
    """What Python has no year for is a text, as Spark writes it; of an instant in UTC."""
    try:
        found = datetime(1970, 1, 1) + timedelta(microseconds=us)
    except OverflowError:
        return _text(np.datetime64(us, "us")) + ("Z" if zone is not None else "")
    return found if zone is None else _at(found.replace(tzinfo=UTC), zone)


def _text(at: np.datetime64) -> str:
    written = str(at)
    return written if written.startswith("-") or written[4] == "-" else f"+{written}"
