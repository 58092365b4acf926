"""Windows in which reasons to update a table are collected (Xu, Gao, Davidson 2023, Sec. 4.1): when the one that is open closes.

The first reason opens a window. It closes after the declared length, or where the freshness targets below leave no more time.

If its length is to be chosen, a window is as long as these targets allow, and it is opened where a change first comes by: an
update that is saved there is saved at all tables below, too. Tables that are read together by a table with the same tightest
target go together: when one of them has to start, so do the others, for else what they bring would be made separately below.
So nothing of the time that a target leaves is spent twice.
"""

from __future__ import annotations

from penstock.model.tables import AUTO
from penstock.model.time import END_US, SECOND_US
from penstock.requests.budget import below, deadline_us, latest_start_us, share_us
from penstock.requests.needs import Piece
from penstock.requests.tablestate import Running, TableState
from penstock.requests.waits import RequestView

# As many deviations more than usual are reckoned with where a window takes all the time that a target leaves.
SURE = 2.0


def closes_us(state: RequestView, table: TableState) -> int | None:
    """When the window closes that is open now; None if there is none."""
    name = table.table.name
    length = _length(table)
    if not length or not table.exists or name in state.awaited or name in state.kept:
        return None
    late = [Piece(*piece) for piece in table.needs.pieces() if piece[2].late]
    if length == AUTO and name in state.graph.collected:
        late = [piece for piece in late if _asked_of(state, name, piece)]
    arrived = table.since_us(table.first_files)
    times = [piece.need.known_us for piece in late] + ([arrived] if arrived is not None else [])
    if not times:
        return None
    opened = min(times)
    oldest = min([piece.need.oldest_us for piece in late] + ([arrived] if arrived is not None else []))
    chain = below(state, name)
    limits = [deadline_us(state, piece, chain) for piece in late]
    if length == AUTO:
        left = _time_left_us(state, name)
        if left is None or (not table.table.queue_us and not _expected(state, table, left)):
            return None  # no target says how long, or nothing more is likely to come
        if not table.table.queue_us:
            limits.append(opened + (table.table.patience_us or 0))
        limits += [oldest + left, _others_start_us(state, name, opened)]
    else:
        limits.append(opened + length)
        limits += [latest_start_us(state, piece, chain) for piece in late]
        share = share_us(state, chain) if chain is not None and arrived is not None else None
        if share is not None:
            limits.append(oldest + share)
    return min(limits)


def is_open(state: RequestView, table: TableState) -> bool:
    """Whether a base table collects for as long as targets allow: nobody waits for what it has got by then."""
    return table.table.is_base and _length(table) == AUTO and (closes_us(state, table) or 0) > state.now_us


def _length(table: TableState) -> int:
    """That of the table's windows; 0 if it has none. Who is patient and has targets below collects what is only asked for."""
    spec = table.table
    if spec.queue_us or not (spec.is_base and spec.patience_us) or table.files or table.withdrawn:
        return spec.queue_us
    return 0 if any(need.changed for _, _, need in table.needs.pieces()) else AUTO


def _asked_of(state: RequestView, name: str, piece: Piece) -> bool:
    """Whether somebody asked for a piece of this table, and not of one above."""
    asked = (state.requests.get(number) for number in piece.need.requests)
    return any(request is not None and request.table == name for request in asked)


def _time_left_us(state: RequestView, name: str) -> int | None:
    """How long after a change a table may start so that all targets below are met, though each table on the way may be busy
    first; None if there are none."""
    chain = below(state, name)
    if chain is None:
        return None
    tables = state.graph.tables
    left = (
        target - int(2 * takes.at_most_s(SURE) * SECOND_US)
        for each, takes in chain.takes.items()
        if (target := tables[each].target_us) is not None
    )
    return min(left, default=None)


def _expected(state: RequestView, table: TableState, left_us: int) -> bool:
    """Whether another change is likely to come in that time, to it or to one that is collected with it."""
    together = (state.tables[name] for name in (table.table.name, *state.graph.together.get(table.table.name, ())))
    return left_us * sum(each.restated.rate_per_s for each in together) > SECOND_US


def _others_start_us(state: RequestView, name: str, opened_us: int) -> int:
    """When one of the tables with which it is collected started while its window was open: not one that had to follow another."""
    others = [state.tables[other] for other in state.graph.together.get(name, ())]
    runs = [run for other in (state.tables[name], *others) if (run := _last_run(other)) is not None]
    times = [
        run.started_us
        for run in runs
        if run.started_us >= opened_us
        and not any(_opened_us(run) <= other.started_us < run.started_us for other in runs)
    ]
    return min(times, default=END_US)


def _last_run(table: TableState) -> Running | None:
    run = table.running or table.last
    return run if run is not None and run.job.kind != "upkeep" else None


def _opened_us(run: Running) -> int:
    """When the first reason for a job came."""
    times = [file.arrived_us for file in run.job.files] + [p.need.known_us for p in run.job.pieces if p.need.late]
    return min(times, default=run.started_us)
