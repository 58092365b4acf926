"""Planning flows: how long a staging plan takes by the number of activities, and what its order holds against strata."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, median
from time import process_time

from penstock.flows.composites import break_into_subflows
from penstock.flows.graph import FlowGraph, Node, NodeKind
from penstock.flows.staging import StagingPlan, plan_staging
from penstock.papers.flows.etl_staging import random_flow

FLOWS = 10


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for activities, limit_ms in ((100, 50.0), (500, None), (2_000, 2_000.0)):
        timed = [_timed(random_flow(activities, seed)) for seed in range(1, FLOWS + 1)]
        times = [spent * 1e3 for spent, _ in timed]
        what = f"plan a random flow of {activities:,} activities"
        limit = {} if limit_ms is None else {"limit": limit_ms}
        rows.append({"benchmark": f"{what}: median", "value": median(times), "unit": "ms", **limit})
        rows.append({"benchmark": f"{what}: slowest of {FLOWS}", "value": max(times), "unit": "ms", **limit})
        over = mean(plan.strata_peak_bytes / plan.peak_bytes for _, plan in timed if plan.peak_bytes)
        rows.append({"benchmark": "strata in turn hold, against the plan", "ratio": over})
    line = long_line(2_000)
    rows.append(
        {"benchmark": "plan a line of 2,000 activities", "value": _timed(line)[0] * 1e3, "unit": "ms", "limit": 2e3}
    )
    flow = random_flow(2_000, 1)
    began = process_time()
    _ = break_into_subflows(flow).strata
    rows.append({"benchmark": "subflows and strata of 2,000", "value": (process_time() - began) * 1e3, "unit": "ms"})
    return rows


def _timed(flow: FlowGraph) -> tuple[float, StagingPlan]:
    # Of the graph nothing is computed yet but its order: what a plan asks of it is part of the time.
    began = process_time()
    found = plan_staging(flow)
    return process_time() - began, found


def long_line(activities: int, *, every: int = 5, rows: float = 1_000_000) -> FlowGraph:
    """A line of so many activities, of which every `every`-th is blocking."""
    nodes = [Node("source", NodeKind.SOURCE, rows=rows)]
    nodes += [Node(f"activity_{n}", blocking=n % every == every - 1) for n in range(activities)]
    nodes.append(Node("target", NodeKind.TARGET))
    return FlowGraph(tuple(nodes), tuple(pairwise(node.name for node in nodes)), f"line of {activities}")
