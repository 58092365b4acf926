"""A recovery as it goes on: which tables catch up after an outage or a pause, when that should be over, and by when it is
proven to be.

What is expected comes from learned costs: the backlog of a table, and what comes meanwhile, on the tracks that normal work
leaves. What is proven is Theorem 4 of Leontyev, Johnson, Anderson (2010) under the adaptive policy with worst-case costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from penstock.control.feedstate import Recovering
from penstock.control.guarantees import assumed, costs_of
from penstock.control.lag import lag_us
from penstock.control.state import State
from penstock.scheduling.recovery.bounds import Model


@dataclass(frozen=True, slots=True)
class Recovery:
    table: str
    feed: str
    cause: str
    # How long nothing came, or was loaded, and when that was over.
    outage_us: int
    since_us: int
    lag_us: int
    pending_files: int
    # None: costs are not known yet, or it will not catch up by itself.
    expected_end_us: int | None
    # None: nothing is proven.
    latest_end_us: int | None


def recoveries(state: State, now_us: int | None = None) -> list[Recovery]:
    """Tables that catch up, in the order in which changes travel. Not those that wait for a feed that someone paused."""
    if not state.recovering:
        return []
    now = max(state.now_us, now_us or 0)
    paused = {name for name, table in state.tables.items() if state.paused(table) is not None}
    shown = [
        name
        for name in state.graph.order
        if name in state.recovering and not paused & (state.graph.ancestors[name] | {name})
    ]
    if not shown:
        return []
    lags = _lags(state, shown)
    ends = _expected_ends(state, lags, now)
    latest = _latest_ends(state, shown)
    return [
        _recovery(state, name, state.recovering[name], lags[name], ends.get(name), latest.get(name)) for name in shown
    ]


def _recovery(
    state: State, name: str, cause: Recovering, lag: int, expected_us: int | None, latest_us: int | None
) -> Recovery:
    files = len(state.tables[name].files)
    return Recovery(name, cause.feed, cause.cause, cause.outage_us, cause.since_us, lag, files, expected_us, latest_us)


def _lags(state: State, names: list[str]) -> dict[str, int]:
    """A table is also behind by what its sources have not loaded yet."""
    found: dict[str, int] = {}
    for name in names:
        above = [found[edge.source] for edge in state.graph.into[name] if edge.source in found]
        found[name] = max([lag_us(state.graph, state.tables[name]), *above])
    return found


def _expected_ends(state: State, lags: dict[str, int], now_us: int) -> dict[str, int]:
    """Each table after those that it reads, and none before the tracks have done all that is left. What one job makes is
    counted once, and done together."""
    learned = {name: table.cost for name, table in state.tables.items()}
    costs = costs_of(state.graph, learned, "average")
    graph, known = state.graph, state.graph.updated_as
    behind: dict[str, list[str]] = {}
    for name in lags:
        behind.setdefault(known[name], []).append(name)
    if costs.unknown & behind.keys():
        return {}
    shares = {name: costs.cost_us[name] / period for name, period in graph.updated_every_us.items()}
    spare = state.tracks - sum(shares.values())
    if spare <= 0:
        return {}
    one_by_one = state.policy.startswith("adaptive")
    ends: dict[str, int] = {}
    total = 0.0
    for name, together in behind.items():
        periods = max(max(1, lags[each] // graph.periods_us[each]) for each in together)
        cost, start_up = costs.cost_us[name], costs.start_up_us.get(name, 0)
        # Other policies take all that has come with one update.
        work = periods * cost if one_by_one else start_up + periods * max(0, cost - start_up)
        total += work
        above = (known[edge.source] for each in together for edge in graph.into[each])
        before = max((ends[source] for source in above if source in ends), default=now_us)
        ends[name] = before + ceil(work / max(1e-6, 1 - min(shares[name], 0.999)))
        ends[name] = max(ends[name], now_us + ceil(total / spare))
    return {name: ends[known[name]] for name in lags}


def _latest_ends(state: State, names: list[str]) -> dict[str, int]:
    """By when recovery is proven to be over, from when its cause was over; only for tables of which that is proven."""
    if not state.policy.startswith("adaptive") or "average" in state.policy:
        return {}
    learned = {name: table.cost for name, table in state.tables.items()}
    costs, model = assumed(state.graph, learned, state.tracks)
    if costs.unknown:
        return {}
    proven = model.bounds()
    bases = [name for name in names if state.graph.tables[name].is_base]
    return {
        name: state.recovering[name].since_us + length
        for name in names
        if state.graph.updated_as[name] in proven and (length := _longest(state, model, name, bases)) is not None
    }


def _longest(state: State, model: Model, name: str, bases: list[str]) -> int | None:
    if len(bases) < 2:
        return model.recovery_us(state.graph.updated_as[name], state.recovering[name].outage_us)
    if name not in bases:
        return None  # proven only where one feed was out
    # Whoever goes first: from the first return on, as if they had come back together at the last.
    first = min(state.recovering[base].since_us for base in bases)
    last = max(state.recovering[base].since_us for base in bases)
    together = model.all_recovered_us({base: state.recovering[base].outage_us + last - first for base in bases})
    return None if together is None else last - state.recovering[name].since_us + together
