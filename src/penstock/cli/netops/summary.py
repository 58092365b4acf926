"""How a run of the demo went: the numbers, and the numbers for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.model.time import format_duration, format_instant

# Below this share of time within the targets the machine was simply too slow.
_KEPT_UP = 0.5


@dataclass(frozen=True)
class TableSummary:
    table: str
    kind: str
    priority: float
    target_us: int | None
    mean_staleness_us: int | None
    peak_staleness_us: int | None
    # The share of time during which the target was met; None without a target.
    within_target: float | None
    requests: int
    updates: int
    folded: int
    failures: int
    busy_s: float
    rows: int
    error: str | None = None


@dataclass(frozen=True)
class DemoSummary:
    """What happened between the beginning of the feeds and the last update that followed from them."""

    folder: str
    speed: float
    tracks: int
    policy: str
    starting_s: float
    history_s: float
    live_s: float
    total_s: float
    begin_us: int
    end_us: int
    files: int
    updates: int
    requests: int
    merged: int
    folded: int
    failures: int
    busy_s: float
    late_files: int
    held_files: int
    repeated_files: int
    corrected_files: int
    quarantined_files: int
    quarantined_rows: int
    tables: tuple[TableSummary, ...] = field(default_factory=tuple)

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(table.table for table in self.tables if table.error is not None)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def render_summary(summary: DemoSummary) -> RenderableType:
    parts: list[RenderableType] = [
        Text(
            f"{format_duration(summary.end_us - summary.begin_us)} of a network, "
            f"{format_instant(summary.begin_us)} to {format_instant(summary.end_us)}, "
            f"followed in {summary.live_s:.0f} s on {summary.tracks} tracks by {summary.policy}.",
            style="bold",
        ),
        Text(),
        _staleness_table(summary.tables),
        Text(),
        *_sentences(summary),
    ]
    for table in summary.tables:
        if table.error is not None:
            parts.append(Text(f"{table.table} failed: {table.error.splitlines()[0]}", style="bold red"))
    parts.append(
        Text(
            f"\nSpark started in {summary.starting_s:.0f} s, the history was loaded in {summary.history_s:.0f} s; "
            f"{summary.total_s:.0f} s in all. The project stays in {summary.folder}:",
            style="dim",
        )
    )
    where = f"-p {shlex.quote(summary.folder)}"
    parts.append(Text(f"  penstock status {where}\n  penstock explain alert_context {where}", style="dim"))
    return Group(*parts)


def _staleness_table(tables: Iterable[TableSummary]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("table", "priority", "target", "mean", "peak", "in time", "requests", "updates", "folded"):
        shown.add_column(name, justify="left" if name == "table" else "right", no_wrap=True)
    for table in tables:
        within = table.within_target
        style = "" if within is None else "green" if within >= 0.9 else "yellow" if within >= 0.6 else "red"
        shown.add_row(
            Text(table.table, style="bold" if table.kind == "base" else ""),
            f"{table.priority:g}",
            _duration(table.target_us),
            Text(_duration(table.mean_staleness_us), style=style),
            _duration(table.peak_staleness_us),
            Text(f"{within:.0%}" if within is not None else "-", style=style),
            str(table.requests),
            str(table.updates),
            str(table.folded) if table.folded else "",
        )
    return shown


def _duration(duration_us: int | None) -> str:
    return "-" if duration_us is None else format_duration(duration_us)


def _sentences(summary: DemoSummary) -> list[Text]:
    per_s = summary.updates / summary.live_s if summary.live_s else 0.0
    lines = [
        f"{summary.updates} updates ({per_s:.1f} a second) answered {summary.requests} requests: "
        f"{summary.merged} were merged into another; {summary.folded} updates folded in only what was new.",
        f"{summary.files} files came: {summary.late_files} of them late, {summary.held_files} all at once after an outage, "
        f"{summary.repeated_files} twice (loaded once), {summary.corrected_files} corrected (its partitions made again).",
        f"Set aside: {summary.quarantined_files} malformed file{'s' * (summary.quarantined_files != 1)} and "
        f"{summary.quarantined_rows} bad row{'s' * (summary.quarantined_rows != 1)}, each with its reason.",
    ]
    if summary.failures:
        lines.append(f"{summary.failures} updates failed and were tried again.")
    within = [table.within_target for table in summary.tables if table.within_target is not None]
    if within and sum(within) / len(within) < _KEPT_UP:
        lines.append(
            f"This machine did not keep up with {summary.speed:g} times real time; "
            f"see it at half of that: penstock demo --speed {summary.speed / 2:g}"
        )
    return [Text(line) for line in lines]
