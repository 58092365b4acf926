"""Why did this run, what waits, and for what: the answers to the questions that users ask of a table."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.readiness import blocked, held_by_group, ready_work
from penstock.control.state import State
from penstock.control.views.health import FeedHealth, feed_health
from penstock.control.views.inputs import WaitingRows, absence, absent_inputs, never_made
from penstock.model.grain import WHOLE, zone_of
from penstock.model.tables import ALL
from penstock.model.time import BEGIN_US, END_US, SECOND_US, format_duration, format_instant
from penstock.requests.deferral import Deferral
from penstock.requests.tablestate import TableState


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """One source of a table, as far as it is complete."""

    table: str
    relation: str
    complete_us: int | None
    # Whether it is the one that holds the table back.
    holds_back: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    table: str
    how: str
    lines: tuple[str, ...]
    complete_us: int | None
    staleness_us: int | None
    target_us: int | None
    last_why: str | None
    last_how: str | None
    last_job: str | None
    last_finished_us: int | None
    pending_files: int
    pending: tuple[tuple[int, int], ...]
    oldest_change_us: int | None
    # Why nothing of it runs now; None if nothing is pending or something runs.
    waits: str | None
    waits_for: tuple[str, ...]
    sources: tuple[SourceSeen, ...]
    error: str | None
    # What the demand of queries does to it.
    demand: str | None = None
    # Feeds that it is made from and that are not well: late, out, or paused.
    feeds: tuple[FeedHealth, ...] = ()
    # Rows of its sources, and of theirs, that wait for other sources.
    waiting: tuple[WaitingRows, ...] = ()


def explain(
    state: State, name: str, now_us: int | None = None, how: str = "", waiting: tuple[WaitingRows, ...] = ()
) -> Explanation:
    table = state.tables.get(name)
    now = max(state.now_us, now_us or 0)
    if table is None:
        text = "it is declared, but no run has taken it up yet: type `penstock run`"
        return Explanation(
            name, how, (text,), None, None, None, None, None, None, None, 0, (), None, text, (), (), None
        )
    sources = _sources(state, name)
    pending = table.needs.domain().intervals
    changes = [file.arrived_us for file in table.files.values()] + [need.at_us for _, _, need in table.needs.pieces()]
    oldest = min(changes, default=None)
    waits, waits_for = _waits(state, table, sources)
    unmade = never_made(state, name)
    staleness = now - table.edge_us if table.edge_us is not None else None
    last = table.last
    demanded = state.reading.modulation(table).why
    feeds = _unwell(state, table, now)
    lines = [
        *_freshness(table, staleness, state.graph.final[name]),
        *([f"it is computed {how}"] if how else []),
        *_last(table, now),
        *([f"it waits: {unmade}"] if unmade else _pending(table, oldest, now)),
        *([f"nothing of it runs now: {waits}"] if waits else []),
        *(
            rows.said(zone_of(table.table.zone)) + ("" if rows.table == name else f", in {rows.table}")
            for rows in waiting
        ),
        *_not_followed(table),
        *_void(state, name),
        *(f"its feed {feed.said}" if feed.feed == table.table.feed else f"made from {feed.said}" for feed in feeds),
        *(
            [f"it is made together with {table.table.leader}: `penstock explain {table.table.leader}`"]
            if table.table.leader
            else []
        ),
        *([f"queries: {demanded}"] if demanded else []),
        *_group(state, table),
        *_from(table, sources),
        *([f"it failed {table.attempt} times, last with: {table.error}"] if table.error else []),
    ]
    return Explanation(
        name,
        how,
        tuple(lines),
        table.edge_us if state.graph.final[name] else None,
        staleness,
        table.table.target_us,
        last.why if last else None,
        table.last_how or None,
        last.job.id if last else None,
        table.last_finished_us,
        len(table.files),
        pending,
        oldest,
        waits or unmade,
        waits_for,
        sources,
        table.error,
        demanded or None,
        feeds,
        waiting,
    )


def _void(state: State, name: str) -> list[str]:
    """That nothing is promised of a table now."""
    found = state.void.get(state.graph.updated_as[name])
    if found is None:
        return []
    since = _there(state.tables[name], found.since_us // SECOND_US * SECOND_US)
    return [f"its guarantee is void since {since}, because {found.because}"]


def _unwell(state: State, table: TableState, now_us: int) -> tuple[FeedHealth, ...]:
    """The feeds above a table from which nothing comes."""
    name = table.table.name
    above = {state.graph.tables[base].feed for base in (*state.graph.ancestors[name], name)}
    found = (feed_health(state, feed, now_us) for feed in sorted(feed for feed in above if feed is not None))
    return tuple(feed for feed in found if feed.health in ("late", "out", "paused"))


def _group(state: State, table: TableState) -> list[str]:
    others = [name for name in state.graph.grouped_with(table.table.name) if name != table.table.name]
    return [f"it is updated together with {', '.join(others)}: group `{table.table.group}`"] if others else []


def _sources(state: State, name: str) -> tuple[SourceSeen, ...]:
    edges = state.graph.into[name]
    flowing = [
        edge.map.carried(source.edge_us)
        for edge in edges
        if edge.source != name
        and (edge.source, name) not in state.graph.optional
        and state.graph.holds(edge)
        and (source := state.tables[edge.source]).edge_us is not None
    ]
    slowest = min(flowing, default=None)
    found = []
    for edge in edges:
        source = state.tables[edge.source]
        waited = edge.source != name and (edge.source, name) not in state.graph.optional
        flows = state.graph.holds(edge) and waited
        holds = not source.exists and waited
        if flows and source.edge_us is not None and len(flowing) > 1:
            holds = edge.map.carried(source.edge_us) == slowest
        found.append(SourceSeen(edge.source, str(edge.map.relation), source.edge_us, holds))
    return tuple(found)


def waits(state: State, name: str) -> str | None:
    """Why nothing of a table runs now; None if something does, or nothing is pending."""
    return _waits(state, state.tables[name], _sources(state, name))[0]


def _waits(state: State, table: TableState, sources: tuple[SourceSeen, ...]) -> tuple[str | None, tuple[str, ...]]:
    if table.running is not None or not (table.files or table.needs):
        return None, ()
    reason = blocked(state, table)
    if reason is not None:
        return reason, ()
    holding_back = held_by_group(state, table)
    if holding_back is not None:
        return f"it is made together with {holding_back}, which cannot run now", (holding_back,)
    work = None if table.table.is_base else ready_work(state, table)
    if work is not None and work.deferred is not None and not work.pieces:
        return _held(table, work.deferred), tuple(sorted(work.deferred.waits_for))
    if work is None or work.pieces:
        if state.owner is None:
            return "no process runs the project: type `penstock run`", ()
        return ("all tracks are busy" if len(state.on_tracks) >= state.tracks else "it is its turn next"), ()
    if work.collects_us is not None:
        return f"further changes are collected until {_second(table, work.collects_us)}, so that it is made once", ()
    if work.unsettled:
        names = tuple(sorted(work.waits_for))
        return f"an old change is still on its way to it through {', '.join(names)}", names
    if gone := absent_inputs(state, table.table.name):
        names = tuple(gone)
        return "; ".join(absence(source, where, zone_of(table.table.zone)) for source, where in gone.items()), names
    holding = tuple(source.table for source in sources if source.holds_back)
    if holding:
        return f"{', '.join(holding)} has not come far enough", holding
    return "its sources have not come far enough", ()


def _held(table: TableState, found: Deferral) -> str:
    known = [f"{name}, restated {when}" for name, when in found.restated]
    moving = sorted(found.waits_for - {name for name, _ in found.restated})
    what = " and for ".join(known + ([f"a newer change that comes through {', '.join(moving)}"] if moving else []))
    saved = f"saves {found.updates} update{'s' * (found.updates != 1)}, no target at risk"
    return f"it waits until {_second(table, found.until_us)} for {what}: {saved}"


def _freshness(table: TableState, staleness_us: int | None, final: bool) -> list[str]:
    if staleness_us is None:
        return ["it has not been made yet" if not table.exists else "it has no event times: it is as its sources are"]
    what = "complete up to" if final else "as of"
    text = f"{what} {_second(table, table.edge_us)}, {format_duration(max(0, staleness_us))} ago"
    if not final:
        text += " (all that came before is in it; but what comes later may change any of its partitions)"
    target = table.table.target_us
    if target is not None:
        text += f"; target {format_duration(target)} " + ("met" if staleness_us <= target else "missed")
    return [text]


def _last(table: TableState, now_us: int) -> list[str]:
    if table.running is not None:
        since = format_duration(max(0, now_us - table.running.started_us))
        if (job := table.running.job).kind == "order":
            asks = ", ".join(f"{name}={version}" for name, version in job.inputs)
            left = format_duration(max(0, table.running.started_us + table.table.order_within_us - now_us))
            text = f"the work order {job.id} is open since {since}, because it {table.running.why}: made from {asks}, to be reported within {left}"
            return [text]
        return [f"{table.running.job.id} runs since {since}, because it {table.running.why}"]
    if table.last is None or table.last_finished_us is None:
        return []
    ago = format_duration(max(0, now_us - table.last_finished_us))
    return [f"last update: {table.last.job.id}, {ago} ago ({table.last_how}), because it {table.last.why}"]


def _pending(table: TableState, oldest_us: int | None, now_us: int) -> list[str]:
    if oldest_us is None:
        return ["nothing is pending"]
    parts = []
    if table.files:
        parts.append(f"{len(table.files)} files to load")
    if table.needs:
        parts.append(_partitions(table))
    return [f"pending: {' and '.join(parts)}; the oldest change is {format_duration(max(0, now_us - oldest_us))} old"]


def _not_followed(table: TableState) -> list[str]:
    """What it does not follow, and why."""
    pieces = list(table.held.pieces())
    if not pieces:
        return []
    count = table.held.domain().count(table.table.grain)
    parked = {number for _, _, need in pieces if need.parked for number in need.requests}
    skipped = table.table.overrun == "skip" and table.table.propagate == ALL
    why = (
        f"request {', '.join(map(str, sorted(parked)))} was about other tables only"
        if parked
        else 'a change met a running update, and overrun = "skip"'
        if skipped
        else f"propagate = {_said(table.table.propagate)}"
    )
    what = "1 partition does" if count == 1 else f"{count:,} partitions do"
    return [f"{what} not reflect all changes: {why}; the next change that it follows takes them along"]


def _said(propagate: tuple[str, ...]) -> str:
    return '"none"' if not propagate else f"[{', '.join(repr(reason) for reason in propagate)}]".replace("'", '"')


def _there(table: TableState, instant_us: int | None) -> str:
    """A time as the clocks of the warehouse show it."""
    return format_instant(instant_us, zone_of(table.table.zone))


def _second(table: TableState, edge_us: int | None) -> str:
    """An edge lies just behind the last record; people want the second."""
    return _there(table, edge_us if edge_us is None else edge_us // SECOND_US * SECOND_US)


def _partitions(table: TableState) -> str:
    grain = table.table.grain
    domain = table.needs.domain()
    if grain is WHOLE or domain.intervals[0][0] <= BEGIN_US:
        return "the whole table"
    count = domain.count(grain)
    first, last = domain.intervals[0][0], domain.intervals[-1][1]
    span = f"from {_there(table, first)}" + (f" to {_there(table, last)}" if last < END_US else " on")
    return f"{count:,} partition{'s' * (count > 1)} {span}"


def _from(table: TableState, sources: tuple[SourceSeen, ...]) -> list[str]:
    return [
        f"reads {source.table} ({source.relation})"
        + (f", complete up to {_second(table, source.complete_us)}" if source.complete_us is not None else "")
        + (", which holds it back" if source.holds_back else "")
        for source in sources
    ]
