"""The ways in which a query could be answered now, with what each costs and gives: what the choice is made from."""

from __future__ import annotations

from collections import OrderedDict

from sqlalchemy import Connection

from penstock.control.query_inputs import Touched, are_running, complete_after, refresh_time, to_refresh
from penstock.control.state import State
from penstock.engine.desk.reads import Reading
from penstock.model.partitions import EVERYTHING
from penstock.queries.chain import RefreshStep
from penstock.queries.choice import Option, Way
from penstock.queries.estimate import Estimate
from penstock.tables import Catalogue

_REMEMBERED = 2_000


class Sizes:
    """How many bytes a query reads of a version: asked of the catalogue once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: OrderedDict[object, int] = OrderedDict()

    def of(self, conn: Connection, reading: Reading, touched: Touched) -> int:
        total = 0
        for version in reading.versions:
            within = touched[version.table]
            key = (version.table, version.snapshot, within)
            if key not in self._known:
                some = None if within == EVERYTHING else within.intervals
                files = self._catalogue.files(conn, version.table, version.read_at, some)
                self._known[key] = sum(file.size_bytes for file in files)
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            total += self._known[key]
        return total


def of_reading(reading: Reading, asked_us: int, run: Estimate, ahead: Estimate) -> Option:
    way = Way.NOW if reading.newest else Way.OLDER
    return Option(way, run, reading.complete_us, reading.lag_at(asked_us), reading.consistent, wait=ahead)


def of_refresh(
    state: State, touched: Touched, run: Estimate, ahead: Estimate, now_us: int
) -> tuple[Option, tuple[RefreshStep, ...]] | None:
    """Waiting until what has arrived is in what the query touches; None if it is, or nobody would do it."""
    if state.owner is None:
        return None
    steps = to_refresh(state, touched)
    if not steps or any(state.tables[step.table].failed for step in steps):
        return None
    # What is refreshed would be updated anyway, only later, so the query is charged with none of it.
    wait = refresh_time(state, steps, now_us)
    way = Way.WAIT if are_running(state, steps) else Way.REFRESH
    option = Option(
        way,
        run,
        complete_after(state, steps, touched, now_us),
        0,
        True,
        max(wait, ahead),
        tables=tuple(step.table for step in steps),
    )
    return option, steps
