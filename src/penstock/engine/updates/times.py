"""The times of rows, as values of a time column and as the statistics of files tell them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, tzinfo

from penstock.model.time import instant
from penstock.model.zones import first_instant_of, local_instant
from penstock.tables import DataFile


def time_range(files: Sequence[DataFile], time: str, zone: tzinfo) -> list[tuple[int, int]]:
    """For each file the half-open range of its rows' times, from the statistics."""
    found = []
    for file in files:
        stats = next((s for name, s in file.stats.items() if name.lower() == time.lower()), None)
        if stats is not None and stats.min is not None and stats.max is not None:
            found.append((parse_stat(stats.min, zone), parse_stat(stats.max, zone) + 1))
    return found


def instant_of(value: date | datetime, zone: tzinfo) -> int:
    """The instant of a value of a time column."""
    return parse_stat(str(value), zone)


def parse_stat(text: str, zone: tzinfo) -> int:
    """A time as the catalogue writes it: `2024-03-01`, `2024-03-01 10:00:00.5`, `… 10:00:00+00`. A date begins at midnight of
    the zone, a time without offset is what its clocks show."""
    written = datetime.fromisoformat(text)
    if len(text) == 10:
        return first_instant_of(written, zone)
    return instant(written) if written.tzinfo else local_instant(written, zone)
