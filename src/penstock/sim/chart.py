"""Line charts as SVG, written by hand: lines with bands of one standard error, one panel beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from pathlib import Path

_COLOURS = ("#1f6fb4", "#d9541e", "#2b8a3e", "#8e44ad", "#b8860b", "#c2255c", "#0b7285", "#555555")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _BOTTOM = 400, 300, 56, 48, 40, 46


@dataclass(frozen=True)
class Line:
    name: str
    # x, mean, standard error
    points: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Line, ...]


def write_chart(path: Path, title: str, x: str, y: str, panels: Sequence[Panel]) -> None:
    path.write_text(chart(title, x, y, panels))


def chart(title: str, x: str, y: str, panels: Sequence[Panel]) -> str:
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colour = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    width = _LEFT + len(panels) * (_WIDTH + _GAP + _LEFT)
    height = _TOP + _HEIGHT + _BOTTOM + 18 * len(names) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _LEFT + number * (_WIDTH + _GAP + _LEFT), colour, x, y)
    for number, name in enumerate(names):
        at = _TOP + _HEIGHT + _BOTTOM + 18 * number
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{at}" y2="{at}" stroke="{colour[name]}" stroke-width="2.5"/>'
        )
        parts.append(f'<text x="{_LEFT + 32}" y="{at + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, left: int, colour: dict[str, str], x: str, y: str) -> list[str]:
    points = [point for line in panel.lines for point in line.points]
    if not points:
        return []
    x_ticks = _ticks(min(p[0] for p in points), max(p[0] for p in points))
    y_ticks = _ticks(min(p[1] - p[2] for p in points), max(p[1] + p[2] for p in points))

    def across(value: float) -> float:
        return round(left + _WIDTH * (value - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]), 1)

    def down(value: float) -> float:
        return round(_TOP + _HEIGHT * (1 - (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])), 1)

    parts = [f'<text x="{left + _WIDTH / 2}" y="{_TOP - 8}" text-anchor="middle">{escape(panel.title)}</text>']
    for tick in y_ticks:
        parts.append(f'<line x1="{left}" x2="{left + _WIDTH}" y1="{down(tick)}" y2="{down(tick)}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{down(tick) + 4}" text-anchor="end">{tick:g}</text>')
    for tick in x_ticks:
        parts.append(f'<text x="{across(tick)}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{left + _WIDTH / 2}" y="{_TOP + _HEIGHT + 32}" text-anchor="middle">{escape(x)}</text>')
    middle = _TOP + _HEIGHT / 2
    parts.append(
        f'<text x="{left - 40}" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 {left - 40} {middle})">{escape(y)}</text>'
    )
    for line in panel.lines:
        if any(error for _, _, error in line.points):
            band = [f"{across(px)},{down(py + error)}" for px, py, error in line.points]
            band += [f"{across(px)},{down(py - error)}" for px, py, error in reversed(line.points)]
            parts.append(f'<polygon points="{" ".join(band)}" fill="{colour[line.name]}" opacity="0.2"/>')
        path = " ".join(f"{across(px)},{down(py)}" for px, py, _ in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour[line.name]}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across(px)}" cy="{down(py)}" r="2.5" fill="{colour[line.name]}"/>'
            for px, py, _ in line.points
        ]
    return parts


def _ticks(low: float, high: float) -> list[float]:
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = 10.0 ** floor(log10((high - low) / 4))
    for times in (1, 2, 5, 10):
        if (high - low) / (step * times) <= 7:
            step *= times
            break
    first = floor(low / step)
    found = [round(first * step, 10)]
    while found[-1] < high - 1e-12:
        first += 1
        found.append(round(first * step, 10))
    return found
