"""Time or memory: what the frontier offers, and what is learned for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.flows.archetypes import butterfly, fork
from penstock.flows.frontier import OBJECTIVES, RunPreferences, chosen, frontier
from penstock.flows.gathering import learned
from penstock.flows.graph import FlowGraph, Node, source, target
from penstock.flows.report import ActivityRun, FlowReport, StepRun
from penstock.flows.staging import plan_staging, timetable


def forks(count: int) -> FlowGraph:
    """Flows side by side that have nothing to do with each other."""
    nodes, edges = [], []
    for number in range(count):
        one = fork(scale=0.1)
        nodes += [replace(node, name=f"{node.name} {number}") for node in one.nodes]
        edges += [(f"{left} {number}", f"{right} {number}") for left, right in one.edges]
    return FlowGraph(tuple(nodes), tuple(edges), "forks")


def test_memory_buys_time() -> None:
    points = frontier(forks(4), slots=8)
    assert all(a.peak_bytes < b.peak_bytes and a.time_us > b.time_us for a, b in pairwise(points))
    fast, small = chosen(points, "time"), chosen(points, "memory")
    # Four side by side take far less than in turn, and hold four times as much.
    in_turn = plan_staging(forks(4))
    assert fast.time_us < 0.5 * max(turn.end_us for turn in timetable(in_turn, 8))
    assert fast.peak_bytes == pytest.approx(4 * in_turn.peak_bytes)
    assert small.peak_bytes <= chosen(points, "balanced").peak_bytes <= fast.peak_bytes


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_taken_fits_the_memory(objective) -> None:
    for share in (1.0, 0.5, 0.1, 0.0):
        most = chosen(frontier(forks(3), 4), "time").peak_bytes * share
        assert chosen(frontier(forks(3), 4, most), objective).peak_bytes <= most * (1 + 1e-9)


def test_a_flow_that_stages_nothing_has_one_way_to_run() -> None:
    assert [point.peak_bytes for point in frontier(butterfly(scale=0.01), 1)] == [0.0]


def test_what_a_flow_says_goes_before_what_the_project_says() -> None:
    project = RunPreferences("memory", 1000, 2, "round-robin")
    assert RunPreferences("time").else_(project) == RunPreferences("time", 1000, 2, "round-robin")
    assert RunPreferences(memory_bytes=0).else_(project).memory_bytes == 0


def look_up() -> FlowGraph:
    nodes = (
        source("orders", rows=1000),
        source("customers", rows=1_000_000),
        Node("look_up", selectivity=0.99, looks_up=True),
        target("sold"),
    )
    return FlowGraph(nodes, (("orders", "look_up"), ("customers", "look_up"), ("look_up", "sold")))


def test_what_is_looked_at_gives_no_rows() -> None:
    assert look_up().rows_out["look_up"] == 990
    run = ActivityRun("look_up", "look_up", "sold", 1000, 500)
    assert learned(look_up(), FlowReport("x", "j", 1, (run,), ())).rows_out["sold"] == 500


def test_cpu_and_staged_bytes_are_learned_where_there_were_rows_enough() -> None:
    graph = fork(scale=1)
    name = next(name for name in graph.order if len(graph.consumers[name]) > 1)
    columns = tuple(sorted(graph.needed_columns[name]))
    runs = (ActivityRun(name, "x", name, 50_000, 40_000, cpu_s=0.5),)
    step = StepRun(name, 1, 1, 0, "memory", 4_000_000, staged_rows=40_000, staged_columns=columns)
    better = learned(graph, FlowReport("fork", "j", 1, runs, (step,)))
    assert better[name].cost_per_row_us == pytest.approx(10)
    assert better[name].width(columns) == pytest.approx(100)
    few = replace(step, staged_rows=40, staged_bytes=4000)
    assert learned(graph, FlowReport("fork", "j", 1, (), (few,)))[name] == graph[name]
