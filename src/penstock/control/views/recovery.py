"""What is proven of the warehouse as it is: with declared costs, or with those that were learned from finished updates."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from penstock.control.feeds import Recovering
from penstock.control.state import State
from penstock.model.cost import CostModel
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration
from penstock.requests.tablestate import TableState, lag_us
from penstock.scheduling.recovery.bounds import Model
from penstock.scheduling.recovery.guarantees import Observed, Report, Violation, judge, violations
from penstock.scheduling.recovery.policy import declared_cost_us, model_of

Provision = Literal["worst", "average"]
# An update that takes so many times its longest time hangs: its track is lost.
_LOST_AFTER = 5


@dataclass(frozen=True, slots=True)
class Costs:
    """By table, or group by the name of its first: the longest time of an update with the data of one period, and how that is known."""

    cost_us: dict[str, int]
    start_up_us: dict[str, int]
    known: dict[str, str]

    @property
    def unknown(self) -> frozenset[str]:
        return frozenset(table for table, how in self.known.items() if how == "not known")


def costs_of(graph: Graph, learned: dict[str, CostModel], provision: Provision) -> Costs:
    found = Costs({}, {}, {})
    for name in graph.updated_with:
        cost = learned.get(name)
        declared = declared_cost_us(graph, name)
        if declared is not None:
            found.cost_us[name], found.known[name] = declared, "declared"
        elif cost is not None and cost.weight > 0:
            expected = cost.usual_s
            seconds = cost.longest_s if provision == "worst" else expected
            found.cost_us[name], found.known[name] = max(1, ceil(seconds * SECOND_US)), "learned"
            # Of the longest time the same part as of the usual one.
            found.start_up_us[name] = int(cost.alpha_s * seconds / expected * SECOND_US)
        else:
            found.cost_us[name], found.known[name] = 1, "not known"
    return found


def assumed(
    graph: Graph, learned: dict[str, CostModel], tracks: int, provision: Provision = "worst"
) -> tuple[Costs, Model]:
    """What the bounds are computed from."""
    costs = costs_of(graph, learned, provision)
    return costs, model_of(graph, costs.cost_us, tracks, startups_us=costs.start_up_us, fit=False)


def guarantees(
    graph: Graph,
    learned: dict[str, CostModel],
    tracks: int,
    *,
    provision: Provision = "worst",
    outage_us: int | None = None,
) -> tuple[Report, Model]:
    costs, model = assumed(graph, learned, tracks, provision)
    targets = {name: table.target_us for name, table in graph.tables.items() if table.target_us is not None}
    report = judge(
        model,
        targets,
        costs.known,
        provision=provision,
        outage_us=outage_us,
        unknown=costs.unknown,
        followers=graph.updated_with,
    )
    return report, model


def broken(state: State, model: Model, now_us: int) -> list[Violation]:
    """Bounds of the adaptive policy that do not hold while it runs, with the assumption that failed. What someone paused is
    expected to be behind."""
    if state.owner is None or not state.policy.startswith("adaptive"):
        return []
    if any(task.cost_us <= 1 for task in model.tasks):
        return []
    seen = {name: _seen(state, name, now_us) for name in state.graph.updated_with}
    paused = {name for name, table in state.tables.items() if state.paused(table) is not None}
    return [
        each
        for each in violations(model, seen, state.tracks, hanging(state, model, now_us))
        if not any(paused & (state.graph.ancestors[one] | {one}) for one in state.graph.grouped_with(each.table))
    ]


def violated(state: State, now_us: int) -> list[Violation]:
    """The same for the costs that are known now."""
    if state.owner is None or not state.policy.startswith("adaptive"):
        return []
    learned = {name: table.cost for name, table in state.tables.items()}
    return broken(state, assumed(state.graph, learned, state.tracks)[1], now_us)


def hanging(state: State, model: Model, now_us: int) -> dict[int, str]:
    """Tracks that do not come back from an update: each with what it is at."""
    costs = {task.table: max(task.cost_us, model.merged_us.get(task.table, 0)) for task in model.tasks}
    found = {}
    for track, running in state.busy.items():
        table = state.graph.updated_as.get(running.job.table, running.job.table)
        assumed = costs.get(table, max(costs.values(), default=0))
        lasts = now_us - running.started_us
        if lasts > _LOST_AFTER * assumed:
            found[track] = (
                f"track {track} has been at `{running.job.table}` for {format_duration(lasts)}, "
                f"at most {format_duration(assumed)} was assumed"
            )
    return found


def _seen(state: State, name: str, now_us: int) -> Observed:
    """Of a table, or of the worst of a group."""
    found = [_seen_of(state.tables[each], now_us) for each in state.graph.grouped_with(name)]
    return Observed(
        *(max(part) for part in zip(*((s.staleness_us, s.took_us, s.silent_us) for s in found), strict=True))
    )


def _seen_of(table: TableState, now_us: int) -> Observed:
    took = 0
    if table.last is not None and table.last_finished_us is not None and table.last.job.kind != "upkeep":
        took = table.last_finished_us - table.last.started_us
    arrivals = [file.arrived_us for file in table.files.values()]
    if table.last_arrival_us is not None:
        arrivals.append(table.last_arrival_us)
    silent = now_us - max(arrivals) if arrivals else 0
    return Observed(0 if table.edge_us is None else now_us - table.edge_us, took, silent)


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
