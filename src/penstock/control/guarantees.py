"""What is proven of the warehouse as it is: with declared costs, or with those that were learned from finished updates."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration
from penstock.scheduling.cost import CostModel
from penstock.scheduling.recovery.bounds import Model
from penstock.scheduling.recovery.guarantees import Report, Seen, Violation, judge, violations
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


def _seen(state: State, name: str, now_us: int) -> Seen:
    """Of a table, or of the worst of a group."""
    found = [_seen_of(state.tables[each], now_us) for each in state.graph.grouped_with(name)]
    return Seen(*(max(part) for part in zip(*((s.staleness_us, s.took_us, s.silent_us) for s in found), strict=True)))


def _seen_of(table: TableState, now_us: int) -> Seen:
    took = 0
    if table.last is not None and table.last_finished_us is not None and table.last.job.kind != "upkeep":
        took = table.last_finished_us - table.last.started_us
    arrivals = [file.arrived_us for file in table.files.values()]
    if table.last_arrival_us is not None:
        arrivals.append(table.last_arrival_us)
    silent = now_us - max(arrivals) if arrivals else 0
    return Seen(0 if table.edge_us is None else now_us - table.edge_us, took, silent)
