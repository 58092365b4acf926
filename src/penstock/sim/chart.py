"""Line charts: lines with bands of one standard error, one panel beside the other."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from penstock.sim.figure import COLOURS, new_figure, write_figure

# When there are more lines than colours, the marks tell them apart.
MARKS = ("o", "s", "^", "D")
# Panels beside each other; more go below.
_ACROSS = 4


@dataclass(frozen=True)
class Line:
    name: str
    # x, mean, standard error
    points: tuple[tuple[float, float, float], ...]
    # How its points are marked; what has a mark of its own is black.
    mark: str | None = None


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
    labels: Sequence[str] | None = None,
) -> None:
    """`labels` name the whole numbers of the x axis, for values that have no order; `log` is for the y axis."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    marks = {name: MARKS[number // len(COLOURS) % len(MARKS)] for number, name in enumerate(names)}
    for line in (line for panel in panels for line in panel.lines if line.mark is not None):
        colour[line.name], marks[line.name] = "black", line.mark or ""
    width = max(6.0, 0.32 * len(labels)) if labels else 5.5
    columns = min(_ACROSS, max(1, len(panels)))
    rows = ceil(len(panels) / columns) or 1
    figure, grid = new_figure(width * columns, 4.2 * rows + 0.22 * len(names), rows, columns)
    axes = list(grid.flat)
    for unused in axes[max(1, len(panels)) :]:
        unused.set_visible(False)
    for panel, axis in zip(panels, axes, strict=False):
        for number, line in enumerate(panel.lines):
            xs, means, errors = zip(*line.points, strict=True) if line.points else ((), (), ())
            if labels:
                # Nothing lies between names: points beside each other, not lines.
                aside = 0.5 * ((number + 1) / (len(panel.lines) + 1) - 0.5)
                axis.errorbar(
                    [x + aside for x in xs],
                    means,
                    errors,
                    fmt=marks[line.name],
                    markersize=4 if line.mark is None else 9,
                    capsize=2,
                    color=colour[line.name],
                    label=line.name,
                )
                continue
            axis.plot(xs, means, marker=marks[line.name], markersize=3.5, color=colour[line.name], label=line.name)
            low = [mean - error for mean, error in zip(means, errors, strict=True)]
            high = [mean + error for mean, error in zip(means, errors, strict=True)]
            axis.fill_between(xs, low, high, color=colour[line.name], alpha=0.2, linewidth=0)
        axis.set(title=panel.title, xlabel=x, ylabel=y)
        axis.grid(True, color="#dddddd", linewidth=0.6)
        if log:
            axis.set_yscale("log")
            for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
                which(lambda value, _: f"{value:g}")
        if labels:
            axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=8)
    handles = {name: handle for axis in axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.suptitle(textwrap.fill(title, round(10 * width * max(1, len(panels)))))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower left", fontsize=8)
    write_figure(figure, path)
