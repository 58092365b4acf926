"""A staging plan as a picture: the graph with its steps and what is staged, above when the steps run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.flows.graph import FlowGraph, NodeKind
from penstock.flows.staging import StagingPlace, StagingPlan
from penstock.flows.walk import timetable
from penstock.sim.figure import COLOURS, new_figure, write_figure

_HALF = 0.38  # of a box's width, in columns
_PLACES = {StagingPlace.MEMORY: "#c2255c", StagingPlace.DISK: "#b8860b", StagingPlace.TARGET: "#2b8a3e"}


def draw_plan(path: Path, graph: FlowGraph, plan: StagingPlan, slots: int) -> None:
    places = layout(graph)
    rows = [y for _, y in places.values()]
    wide, high = 1 + max(x for x, _ in places.values()), 1 + max(rows) - min(rows)
    figure, ((above,), (below,)) = new_figure(
        max(7.0, 1.9 * wide),
        max(4.0, 0.75 * high + 0.32 * len(plan.steps) + 2),
        rows=2,
        height_ratios=[high + 1, 0.45 * len(plan.steps) + 1],
    )
    colour = {step.name: COLOURS[number % len(COLOURS)] for number, step in enumerate(plan.steps)}
    _graph(above, graph, plan, places, colour)
    _times(below, plan, colour, slots)
    write_figure(figure, path)


def layout(graph: FlowGraph) -> dict[str, tuple[int, float]]:
    """Every node one column behind the last that it reads; in a column near those that it reads."""
    column: dict[str, int] = {}
    for name in graph.order:
        column[name] = 1 + max((column[provider] for provider in graph.providers[name]), default=-1)
    for name in graph.sources:  # beside the first reader, so that no long arrows cross
        column[name] = min(column[consumer] for consumer in graph.consumers[name]) - 1
    row: dict[str, float] = {}
    for number in range(1 + max(column.values())):
        names = [name for name in graph.order if column[name] == number]
        wanted = {
            name: sum(row[p] for p in graph.providers[name] if p in row) / len(graph.providers[name])
            if graph.providers[name]
            else 1 + max(row.values(), default=-1.0)
            for name in names
        }
        names.sort(key=wanted.__getitem__)
        placed: list[float] = []
        for name in names:
            placed.append(max(placed[-1] + 1, wanted[name]) if placed else wanted[name])
        shift = (sum(wanted.values()) - sum(placed)) / len(names)
        row |= {name: at + shift for name, at in zip(names, placed, strict=True)}
    return {name: (column[name], row[name]) for name in graph.order}


def _graph(
    axes: Any, graph: FlowGraph, plan: StagingPlan, places: dict[str, tuple[int, float]], colour: dict[str, str]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    made_by: dict[str, str] = {}
    for step in plan.steps:
        for node in step.nodes:
            made_by.setdefault(node, step.name)
    for provider, consumer in graph.edges:
        (x, y), (to_x, to_y) = places[provider], places[consumer]
        staged = plan.staged.get(provider)
        if staged is not None and consumer != staged.step:
            line, shade = "--", _PLACES[staged.place]
        else:
            line, shade = "-", "#888888"
        arrow = {"arrowstyle": "->", "color": shade, "linestyle": line, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=(to_x - _HALF, to_y), xytext=(x + _HALF, y), arrowprops=arrow)
    for name, (x, y) in places.items():
        kind = graph[name].kind
        axes.add_patch(
            FancyBboxPatch(
                (x - _HALF, y - 0.22),
                2 * _HALF,
                0.44,
                boxstyle="square,pad=0" if kind is NodeKind.ACTIVITY else "round,pad=0,rounding_size=0.15",
                facecolor="white" if kind is NodeKind.ACTIVITY else "#eef3f8",
                edgecolor=colour[made_by[name]],
                linewidth=2.5 if graph[name].blocking else 1.2,
            )
        )
        axes.text(x, y, name, ha="center", va="center", fontsize=min(8.0, 144 / len(name)))
        kept = plan.staged.get(name)
        if kept is not None:
            size = f" {kept.bytes_ / 1e6:.3g} MB" if kept.bytes_ else ""
            where = "read back" if kept.place is StagingPlace.TARGET else f"in {kept.place.value},"
            axes.text(x, y + 0.42, where + size, ha="center", fontsize=7, color=_PLACES[kept.place])
    axes.set_xlim(-0.6, max(x for x, _ in places.values()) + 0.6)
    axes.set_ylim(max(y for _, y in places.values()) + 0.8, min(y for _, y in places.values()) - 0.8)
    axes.set_title(
        f"{plan.flow}: boxes of one colour are one step; thick: blocking; dashed: read from what is staged", fontsize=9
    )
    axes.axis("off")


def _times(axes: Any, plan: StagingPlan, colour: dict[str, str], slots: int) -> None:
    turns = timetable(plan, slots)
    unit, per = ("s", 1e6) if turns[-1].end_us >= 1e6 else ("ms", 1e3)
    for number, turn in enumerate(turns):
        axes.barh(number, (turn.end_us - turn.start_us) / per, left=turn.start_us / per, color=colour[turn.step.name])
        if turn.held_bytes:
            axes.text(turn.end_us / per, number, f" holds {turn.held_bytes / 1e6:.3g} MB", va="center", fontsize=7)
    axes.set_yticks(range(len(turns)), [turn.step.name for turn in turns], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(f"estimated work ({unit}), {slots} steps at once")
