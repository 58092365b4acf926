"""How many rows wait for other sources, from the statistics of the catalogue: no file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from penstock.control.state import State
from penstock.control.views.inputs import Ahead, WaitingRows, ahead
from penstock.declare.definition import Definition
from penstock.engine.updates.times import time_range
from penstock.model.grain import WHOLE, zone_of
from penstock.model.time import BEGIN_US, END_US
from penstock.tables import Catalogue


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
    within = None if grain is WHOLE or one.from_us <= BEGIN_US else [(grain.floor(one.from_us), END_US)]
    files = catalogue.files(conn, one.source, catalogue.snapshot(conn), within)
    whole, part = 0, 0.0
    for file in catalogue.described(conn, one.source, files, time) if time is not None else files:
        low, high = next(iter(time_range([file], time or "", zone_of(definition.table.zone))), (BEGIN_US, END_US))
        if low >= one.from_us:
            whole += file.records
        elif high > one.from_us:
            part += file.records * (high - one.from_us) / (high - low)
    return WaitingRows(one.table, one.source, whole + round(part), not part, one.waits_for, one.upto_us)
