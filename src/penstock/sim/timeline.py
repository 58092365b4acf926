"""A run as a picture: which table was updated on which track when, and how stale the tables were. From a log of events,
so that simulated and live runs are drawn alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.control.events import Event, RunStarted, UpdateFailed, UpdateFinished, UpdateStarted
from penstock.model.time import SECOND_US
from penstock.sim.figure import COLOURS, PictureError, mark_durations, new_figure, write_figure

_MOST_CURVES = len(COLOURS)
# As many bars or points of a curve as can be told apart; and the stretches of time that are drawn of a finer curve.
_MANY = 300
_STRETCHES = 200


@dataclass(frozen=True, slots=True)
class Bar:
    """One update."""

    table: str
    job: str
    track: int
    start_us: int
    end_us: int | None
    failed: bool
    why: str
    how: str = ""


@dataclass(frozen=True)
class Timeline:
    start_us: int
    end_us: int
    bars: tuple[Bar, ...]
    # By table: from when on it was complete up to where.
    edges: dict[str, tuple[tuple[int, int], ...]]
    targets_us: dict[str, int]
    priorities: dict[str, float]


def timeline(events: Iterable[Event], since_us: int | None = None) -> Timeline:
    """What happened in a log, from a time on."""
    bars: list[Bar] = []
    running: dict[str, tuple[UpdateStarted, int]] = {}
    edges: dict[str, list[tuple[int, int]]] = {}
    targets: dict[str, int] = {}
    priorities: dict[str, float] = {}
    first = last = None
    for event in events:
        first = event.at_us if first is None else first
        last = event.at_us if last is None else max(last, event.at_us)
        if event.kind == "warehouse-declared":
            targets = {table.name: table.target_us for table in event.tables if table.target_us is not None}
            priorities = {table.name: table.priority for table in event.tables}
        elif isinstance(event, UpdateStarted):
            running[event.job.id] = (event, event.at_us)
        elif isinstance(event, UpdateFinished | UpdateFailed):
            begun = running.pop(event.job, None)
            if begun is not None:
                bars.append(
                    _bar(
                        begun[0],
                        event.at_us,
                        isinstance(event, UpdateFailed),
                        event.how if isinstance(event, UpdateFinished) else "",
                    )
                )
            for publication in event.publications if isinstance(event, UpdateFinished) else ():
                known = edges.setdefault(publication.table, [])
                if publication.complete_us is not None and (not known or publication.complete_us > known[-1][1]):
                    known.append((event.at_us, publication.complete_us))
        elif isinstance(event, RunStarted):
            running.clear()  # what an earlier process was doing is void
    bars += [_bar(start, None, False, "") for start, _ in running.values()]
    since = max(first or 0, since_us or 0)
    return Timeline(
        since,
        last or since,
        tuple(bar for bar in bars if bar.end_us is None or bar.end_us >= since),
        {name: tuple(moves) for name, moves in edges.items() if moves},
        targets,
        priorities,
    )


def _bar(start: UpdateStarted, end_us: int | None, failed: bool, how: str) -> Bar:
    return Bar(start.job.table, start.job.id, start.track, start.at_us, end_us, failed, start.why, how)


def write_timeline(path: Path, title: str, found: Timeline, tables: tuple[str, ...] = ()) -> None:
    """Tracks above, staleness below: of the tables named, or of those with the highest priorities."""
    if not found.bars:
        raise PictureError("there is no update to draw")
    busiest = sorted({bar.table for bar in found.bars}, key=lambda name: (-found.priorities.get(name, 0.0), name))
    shown = [name for name in (tables or busiest) if name in found.edges][:_MOST_CURVES]
    colour = dict(zip(shown, COLOURS, strict=False))
    tracks = 1 + max(bar.track for bar in found.bars)
    scale, unit = _scale(found.end_us - found.start_us)
    figure, axes = new_figure(11, 4.6 + 0.35 * tracks, 2, 1, sharex=True, height_ratios=[0.6 + 0.35 * tracks, 3.2])
    upper, lower = axes[0][0], axes[1][0]

    def at(time_us: int) -> float:
        return (max(time_us, found.start_us) - found.start_us) / scale

    def draw(bars: Iterable[Bar], track: int, top: float, height: float, **style: Any) -> None:
        spans = [(at(bar.start_us), at(found.end_us if bar.end_us is None else bar.end_us)) for bar in bars]
        upper.broken_barh([(start, end - start) for start, end in spans], (track + top, height), **style)

    def edge(bar: Bar) -> float:
        """White between bars, but not over those that are hardly wider."""
        wide = bar.end_us is None or (bar.end_us - bar.start_us) * _MANY > found.end_us - found.start_us
        return 0.3 if wide else 0.0

    for track in range(tracks):
        bars = [bar for bar in found.bars if bar.track == track]
        colours, edges = [colour.get(bar.table, "#bbbbbb") for bar in bars], [edge(bar) for bar in bars]
        draw(bars, track, -0.4, 0.8, facecolor=colours, edgecolor="white", linewidth=edges)
        running = (bar for bar in bars if bar.end_us is None)
        draw(running, track, -0.4, 0.8, facecolor="none", edgecolor="white", linewidth=0.3, hatch="//")
        # Below the bar, whose colour stays to be seen; the edge is for those that are too short to be seen otherwise.
        draw((bar for bar in bars if bar.failed), track, 0.42, 0.07, facecolor="red", edgecolor="red", linewidth=0.5)
    upper.set_yticks(range(tracks), [f"track {number}" for number in range(tracks)])
    upper.set_ylim(tracks - 0.4, -0.6)
    upper.set_title(title)
    curves = {name: _curve(found, name) for name in shown}
    highest = max((max(ys, default=0) for _, ys in curves.values()), default=0)
    # Others are far away and would only press the curves down.
    near = {name for name in shown if found.targets_us.get(name, highest + 1) <= highest}
    bands = False
    for name, (xs, ys) in curves.items():
        if len(xs) >= _MANY:  # teeth that are too fine to be seen would only cover each other
            bands = True
            xs, lows, ys = _envelope(found, xs, ys)
            between = ([y / SECOND_US for y in border] for border in (lows, ys))
            lower.fill_between([at(x) for x in xs], *between, color=colour[name], alpha=0.25, linewidth=0)
        lower.plot([at(x) for x in xs], [y / SECOND_US for y in ys], color=colour[name], linewidth=1.2, label=name)
        if name in near:
            lower.axhline(found.targets_us[name] / SECOND_US, color=colour[name], linewidth=0.7, linestyle=":")
    notes = {
        "red: failed": any(bar.failed for bar in found.bars),
        "dotted: target": bool(near),
        "band: from lowest to highest, the line is the highest": bands,
    }
    legend = "; ".join(note for note, needed in notes.items() if needed)
    lower.set(xlabel=f"{unit} since the beginning\n{legend}".strip(), ylabel="staleness")
    lower.set_ylim(bottom=0)
    lower.set_xlim(0, at(found.end_us) or None)
    mark_durations(lower.yaxis)
    lower.grid(True, color="#dddddd", linewidth=0.6)
    if shown:
        figure.legend(loc="outside right upper", fontsize=8)
    write_figure(figure, path)


def _curve(found: Timeline, name: str) -> tuple[list[int], list[int]]:
    """A saw: staleness grows with the clock and falls when the edge moves."""
    xs: list[int] = []
    ys: list[int] = []
    edge: int | None = None
    for at_us, complete_us in (*found.edges[name], (found.end_us, None)):
        if at_us >= found.start_us:
            if edge is not None:
                # Up to its first update, if there is any, it is as stale as it was before.
                known = [at_us] if xs else [found.start_us, at_us]
                xs += known
                ys += [at - edge for at in known]
            if complete_us is not None:
                xs.append(at_us)
                ys.append(at_us - complete_us)
        edge = complete_us
    return xs, ys


def _envelope(found: Timeline, xs: list[int], ys: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The middle of many short stretches of time, and the lowest and the highest of a saw in each of them."""
    width = max(1, (found.end_us - found.start_us) // _STRETCHES)
    lows: dict[int, int] = {}
    highs: dict[int, int] = {}
    for (x, y), (end, _) in pairwise(zip(xs, ys, strict=True)):
        # A tooth may be longer than a stretch: it grows with the clock through all of them.
        for stretch in range((x - found.start_us) // width, (end - found.start_us) // width + 1):
            begin = found.start_us + width * stretch
            low, high = y + max(0, begin - x), y + min(end, begin + width) - x
            lows[stretch] = min(low, lows.get(stretch, low))
            highs[stretch] = max(high, highs.get(stretch, high))
    return (
        [found.start_us + width * stretch + width // 2 for stretch in lows],
        list(lows.values()),
        list(highs.values()),
    )


def _scale(width_us: int) -> tuple[float, str]:
    seconds = width_us / SECOND_US
    if seconds > 3 * 86_400:
        return 86_400.0 * SECOND_US, "days"
    if seconds > 3 * 3_600:
        return 3_600.0 * SECOND_US, "hours"
    if seconds > 300:
        return 60.0 * SECOND_US, "minutes"
    return float(SECOND_US), "seconds"
