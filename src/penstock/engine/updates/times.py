"""The times of rows: as values of a time column, as the statistics of files tell them, and of rows that wait for other sources. No file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, tzinfo

from sqlalchemy import Connection

from penstock.control.state import State
from penstock.control.views.inputs import Ahead, WaitingRows, ahead
from penstock.declare.definition import Definition
from penstock.model.grain import WHOLE, zone_of
from penstock.model.time import BEGIN_US, END_US, first_instant_of, instant, local_instant
from penstock.tables import Catalogue, DataFile


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


def waiting_rows(
    catalogue: Catalogue, conn: Connection, definitions: Mapping[str, Definition], state: State, names: Iterable[str]
) -> tuple[WaitingRows, ...]:
    """The rows that wait, of the sources of these tables and of all that they are made from."""
    lineage = {above for name in names if name in state.tables for above in (*state.graph.ancestors[name], name)}
    found = (
        _counted(catalogue, conn, definitions, one)
        for one in ahead(state, sorted(lineage))
        if one.source in definitions
    )
    return tuple(one for one in found if one.rows)


def _counted(catalogue: Catalogue, conn: Connection, definitions: Mapping[str, Definition], one: Ahead) -> WaitingRows:
    definition = definitions[one.source]
    grain, time = definition.table.grain, definition.time
    if one.to_us <= one.from_us:
        return WaitingRows(one.table, one.source, 0, True, one.waits_for, one.upto_us)
    first = BEGIN_US if one.from_us <= BEGIN_US else grain.floor(one.from_us)
    within = None if grain is WHOLE else [(first, one.to_us)]
    files = catalogue.files(conn, one.source, catalogue.snapshot(conn), within)
    whole, part = 0, 0.0
    for file in catalogue.described(conn, one.source, files, time) if time is not None else files:
        low, high = next(iter(time_range([file], time or "", zone_of(definition.table.zone))), (BEGIN_US, END_US))
        if low >= one.from_us and high <= one.to_us:
            whole += file.records
        elif high > one.from_us and low < one.to_us:
            share = file.records * (min(high, one.to_us) - max(low, one.from_us)) / (high - low)
            # Its first row or its last is among them.
            part += max(share, 1.0) if low >= one.from_us or high <= one.to_us else share
    return WaitingRows(one.table, one.source, whole + round(part), not part, one.waits_for, one.upto_us)
