"""Pictures as SVG, PNG or PDF, drawn with matplotlib (the extra `plot`). The same data give the same file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.flows.frontier import FrontierPoint
from penstock.flows.graph import FlowGraph, NodeKind
from penstock.flows.report import FlowReport
from penstock.flows.staging import StagingPlace, StagingPlan, plan_staging, timetable
from penstock.model.time import SECOND_US, format_duration

KINDS = (".svg", ".png", ".pdf")
COLOURS = ("#1f6fb4", "#d9541e", "#2b8a3e", "#8e44ad", "#b8860b", "#c2255c", "#0b7285", "#555555")
# What a clock calls round, in seconds; each two or three times the one before.
_TENS = (1, 2, 5)
_ROUND = (
    *(digit / 10**power for power in range(6, 0, -1) for digit in _TENS),
    *(number * unit for unit in (1, 60) for number in (1, 2, 5, 10, 30)),
    *(number * 3_600 for number in (1, 2, 6, 12)),
    *(digit * 10**power * 86_400 for power in range(4) for digit in _TENS),
)
_MOST_TICKS = 12


class PictureError(PenstockError):
    """A picture that cannot be drawn."""


def check_picture(path: Path) -> None:
    """Say before long work that its picture could not be written."""
    if path.suffix.lower() not in KINDS:
        raise PictureError(f"{path}: expected a name that ends in {', '.join(KINDS)}; try {path.stem}.svg")
    if not path.resolve().parent.is_dir():
        raise PictureError(f"{path}: there is no folder {path.resolve().parent}; type: mkdir -p {path.parent}")
    _matplotlib()


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Any, Any]:
    """A figure and its axes, always as a grid of `rows` times `columns`."""
    _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **settings)


def mark_durations(axis: Any, log: bool = False) -> None:
    """Ticks at round durations of an axis in seconds: 30m, not 2000. To be called when the axis has its limits."""
    low, high = sorted(axis.get_view_interval())
    ticks = [float(seconds) for seconds in _ROUND if low <= seconds <= high] if log else []
    if len(ticks) < 3:
        for step in (step for step in _ROUND if (high - low) / step <= 8 or step == _ROUND[-1]):
            ticks = [step * number for number in range(ceil(low / step), floor(high / step) + 1)]
            if len(set(_said(ticks))) == len(ticks):  # days are told without minutes
                break
    ticks = ticks[:: ceil(len(ticks) / _MOST_TICKS) or 1]
    axis.set_ticks(ticks, _said(ticks))
    axis.set_ticks([], minor=True)


def _said(seconds: list[float]) -> list[str]:
    return [format_duration(round(each * SECOND_US)) for each in seconds]


def mark_powers(axis: Any) -> None:
    """Ticks of a log axis at 1, 2, 5, 10: all nine of a decade would be printed over each other."""
    from matplotlib.ticker import AutoLocator, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    locator = LogLocator(subs=_TENS)
    few = sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 3
    axis.set_major_locator(AutoLocator() if few else locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def write_figure(figure: Any, path: Path) -> None:
    check_picture(path)
    import matplotlib

    # Texts stay texts, and nothing of the day of drawing is in the file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=150, metadata=metadata)


def _matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PictureError("pictures need matplotlib; type: pip install 'penstock[plot]'") from None


# Line charts: lines with bands of one standard error, or points with bars, one panel beside the other.

# When there are more lines than colours, the marks tell them apart.
MARKS = ("o", "s", "^", "D")
# Panels beside each other; more go below.
_ACROSS = 4
# The part of the place of a name that its points take; the inches of a point, as long as the picture is not too wide.
_GROUP = 0.7
_POINT = 0.075
_WIDEST = 24.0


@dataclass(frozen=True)
class Line:
    name: str
    # x, mean, standard error
    points: tuple[tuple[float, float, float], ...]
    # How its points are marked; what has a mark of its own is black.
    mark: str | None = None
    # One level for all points of a name, such as a target: drawn across them.
    across: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Line, ...]


def write_chart(
    path: Path,
    title: str,
    x: str,
    y: str,
    panels: Sequence[Panel],
    *,
    log: bool = False,
    durations: bool = False,
    labels: Sequence[str] | None = None,
) -> None:
    """`labels` name the whole numbers of the x axis, for values that have no order; `log` and `durations` (in seconds)
    are for the y axis."""
    lines = [line for panel in panels for line in panel.lines]
    names = list(dict.fromkeys(line.name for line in lines if line.mark is None and not line.across))
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    marks = {name: MARKS[number // len(COLOURS) % len(MARKS)] for number, name in enumerate(names)}
    beside = max((sum(not line.across for line in panel.lines) for panel in panels), default=0)
    columns = min(_ACROSS, max(1, len(panels)))
    width = 5.5
    if labels:
        wanted = _POINT / _GROUP * (beside + 1) * len(labels)
        width = max(6.0, 0.32 * len(labels), min(wanted, _WIDEST / columns))
    rows = ceil(len(panels) / columns) or 1
    figure, grid = new_figure(width * columns, 4.2 * rows + 0.22 * len({line.name for line in lines}), rows, columns)
    axes = list(grid.flat)
    for unused in axes[max(1, len(panels)) :]:
        unused.set_visible(False)
    for panel, axis in zip(panels, axes, strict=False):
        number = 0
        for line in panel.lines:
            shade, mark = colour.get(line.name, "black"), line.mark or marks.get(line.name)
            xs, means, errors = zip(*line.points, strict=True) if line.points else ((), (), ())
            if line.across:
                left, right = ([x + side * _GROUP / 2 for x in xs] for side in (-1, 1))
                axis.hlines(means, left, right, color=shade, linewidth=1.2, label=line.name)
                continue
            number += 1
            if labels or len(xs) == 1:
                # Nothing lies between names, nor beside a single point: points beside each other, not lines.
                aside = _GROUP * (number / (beside + 1) - 0.5) if labels else 0.0
                axis.errorbar(
                    [x + aside for x in xs],
                    means,
                    errors,
                    fmt=mark,
                    markersize=4,
                    capsize=2,
                    color=shade,
                    label=line.name,
                )
                continue
            axis.plot(xs, means, marker=mark, markersize=3.5, color=shade, label=line.name)
            low = [mean - error for mean, error in zip(means, errors, strict=True)]
            high = [mean + error for mean, error in zip(means, errors, strict=True)]
            axis.fill_between(xs, low, high, color=shade, alpha=0.2, linewidth=0)
        axis.set(title=panel.title, xlabel=x, ylabel=y)
        axis.grid(True, color="#dddddd", linewidth=0.6)
        if log:
            axis.set_yscale("log")
        if durations:
            mark_durations(axis.yaxis, log)
        elif log:
            mark_powers(axis.yaxis)
        if labels:
            level = {"rotation": 60, "ha": "right"} if len(labels) > 1 else {}
            axis.set_xticks(range(len(labels)), labels, fontsize=8, **level)
            axis.set_xlim(-0.6, len(labels) - 0.4)
    handles = {name: handle for axis in axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.suptitle(textwrap.fill(title, round(10 * width * max(1, len(panels)))))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower left", fontsize=8)
    write_figure(figure, path)


# A staging plan as a picture: the graph with its steps and what is staged, above when the steps run.

_HALF = 0.38  # of a box's width, in columns
_PLACES = {StagingPlace.MEMORY: "#c2255c", StagingPlace.DISK: "#b8860b", StagingPlace.TARGET: "#2b8a3e"}


def draw_plan(
    path: Path,
    graph: FlowGraph,
    plan: StagingPlan,
    slots: int,
    ways: Sequence[FrontierPoint] = (),
    taken: FrontierPoint | None = None,
) -> None:
    """The graph with its steps, when they run, and what time costs in memory."""
    places = layout(graph)
    rows = [y for _, y in places.values()]
    wide, high = 1 + max(x for x, _ in places.values()), 1 + max(rows) - min(rows)
    heights = [high + 1, 0.45 * len(plan.steps) + 1, *([3.0] if ways else [])]
    figure, ((above,), (below,), *rest) = new_figure(
        max(7.0, 1.9 * wide),
        max(4.0, 0.75 * high + 0.32 * len(plan.steps) + 2) + (2.2 if ways else 0.0),
        rows=len(heights),
        height_ratios=heights,
    )
    colour = {step.name: COLOURS[number % len(COLOURS)] for number, step in enumerate(plan.steps)}
    _graph(above, graph, plan, places, colour)
    _times(below, plan, colour, slots)
    for (axes,) in rest:
        axes.step([way.time_us / 1e6 for way in ways], [way.peak_bytes / 1e6 for way in ways], where="pre", marker="o")
        if taken is not None:
            axes.plot(taken.time_us / 1e6, taken.peak_bytes / 1e6, "o", markersize=10, fillstyle="none")
        axes.set_xlabel(f"estimated seconds, in {slots} slots")
        axes.set_ylabel("MB held at the most")
    write_figure(figure, path)


def draw_run(path: Path, graph: FlowGraph, report: FlowReport) -> None:
    """The graph with what its last run measured: rows on the edges, rejected rows at the activities."""
    plan = plan_staging(graph)
    places = layout(graph)
    rows = [y for _, y in places.values()]
    wide, high = 1 + max(x for x, _ in places.values()), 1 + max(rows) - min(rows)
    figure, ((axes,),) = new_figure(max(7.0, 2.1 * wide), max(3.0, 0.9 * high + 1))
    _graph(axes, graph, plan, places, dict.fromkeys((step.name for step in plan.steps), "#555555"))
    runs = {run.name: run for run in report.activities}
    for provider, consumer in graph.edges:
        (x, y), (to_x, to_y) = places[provider], places[consumer]
        if provider in runs:
            count: int | None = runs[provider].rows_out
        else:  # of a source, what who alone reads it took
            taken = runs.get(consumer)
            count = taken.rows_in if taken is not None and graph.providers[consumer][0] == provider else None
            count = (
                None
                if taken is not None and len(graph.providers[consumer]) > 1 and not graph[consumer].looks_up
                else count
            )
        if count is not None:
            axes.text((x + to_x) / 2, (y + to_y) / 2 - 0.08, f"{count:,}", ha="center", fontsize=7)
    for name, run in runs.items():
        if run.rejected and name in places:
            x, y = places[name]
            axes.text(x, y + 0.42, f"{run.rejected:,} bad ({run.bad})", ha="center", fontsize=7, color="#b3261e")
    axes.set_title(f"{report.flow}, {report.job}, on {report.extent}: {report.seconds:.2f} s", fontsize=9)
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
