"""What people see while the demo runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.control.views.status import TableStatus
from penstock.model.time import format_duration, format_instant, moment


@dataclass(frozen=True, slots=True)
class Frame:
    """The demo at one instant."""

    phase: str
    now_us: int
    share: float
    rows: tuple[TableStatus, ...]
    running: tuple[str, ...]
    tracks: int
    files: int
    happening: tuple[str, ...] = ()

    @property
    def updates(self) -> int:
        return sum(row.updates for row in self.rows)

    @property
    def late(self) -> int:
        return sum(row.met is False for row in self.rows)


class Screen(Protocol):
    def working(self, what: str) -> AbstractContextManager[object]:
        """Shown while something takes long that cannot be asked how far it is."""

    def due(self) -> bool:
        """Whether a new frame is wanted, so that nobody makes frames for nothing."""

    def show(self, frame: Frame) -> None: ...


@contextmanager
def screen_for(console: Console | None) -> Iterator[Screen]:
    if console is None:
        yield _Dark()
    elif console.is_terminal:
        with _LiveTable(console) as screen:
            yield screen
    else:
        yield _Lines(console)


class _Dark:
    def working(self, what: str) -> AbstractContextManager[object]:
        return nullcontext()

    def due(self) -> bool:
        return False

    def show(self, frame: Frame) -> None:
        return None


class _Every:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class _Lines(_Every):
    def __init__(self, console: Console) -> None:
        super().__init__(5.0)
        self._console = console

    def working(self, what: str) -> AbstractContextManager[object]:
        self._console.print(f"{what} …")
        return nullcontext()

    def show(self, frame: Frame) -> None:
        self._console.print(one_line(frame), soft_wrap=True)


class _LiveTable(_Every):
    def __init__(self, console: Console) -> None:
        super().__init__(0.25)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> _LiveTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def working(self, what: str) -> AbstractContextManager[object]:
        return self._console.status(what)

    def show(self, frame: Frame) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(_picture(frame), refresh=True)


_PHASES = {
    "history": "loading some hours of history",
    "live": "feeds deliver",
    "settling": "feeds have stopped, the rest follows",
}


def one_line(frame: Frame) -> Text:
    files = sum(row.pending_files for row in frame.rows)
    late = [row.table for row in frame.rows if row.met is False]
    parts = [
        moment(frame.now_us).strftime("%a %H:%M"),
        _PHASES[frame.phase],
        f"{frame.files} files came, {files} wait",
        f"{frame.updates} updates",
        f"running: {', '.join(frame.running) or 'nothing'}",
    ]
    if late and frame.phase == "live":
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        parts.append(f"past their target: {', '.join(late[:3])}{more}")
    parts += frame.happening
    return Text(" | ".join(parts))


def _picture(frame: Frame) -> Group:
    head = Text.assemble(
        (moment(frame.now_us).strftime(" %a %H:%M:%S "), "bold reverse"),
        f"  {_PHASES[frame.phase]}  ",
        (f"{len(frame.running)} of {frame.tracks} tracks busy, {frame.updates} updates, {frame.files} files", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    news = Text("; ".join(frame.happening) or " ", style="bold yellow", no_wrap=True, overflow="ellipsis")
    return Group(head, Padding(ProgressBar(1.0, frame.share), 0), news, live_table(frame.rows))


def live_table(rows: Sequence[TableStatus]) -> Table:
    """Narrower than `penstock status`: it must fit an ordinary terminal, in both directions."""
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for name, width in (
        ("table", 15), ("complete", 9), ("stale", 8), ("target", 7), ("", 10), ("now", 8), ("waiting", 14), ("updates", 7)
    ):  # fmt: skip
        right = name in ("stale", "target", "updates")
        table.add_column(name, justify="right" if right else "left", no_wrap=True, min_width=min(width, 8))
    for row in rows:
        table.add_row(
            Text(row.table, style="bold" if row.kind == "base" else ""),
            moment(row.complete_us).strftime("%H:%M:%S") if row.complete_us is not None else "-",
            Text(_minutes(row.staleness_us), style=_style(row)),
            _minutes(row.target_us),
            _bar(row),
            Text(row.doing, style=_DOING[row.doing]),
            _waiting(row),
            str(row.updates),
        )
    return table


_DOING = {
    "idle": "dim",
    "empty": "dim",
    "pending": "yellow",
    "running": "cyan",
    "ordered": "cyan",
    "retrying": "magenta",
    "failed": "bold red",
}


def _style(row: TableStatus) -> str:
    return "" if row.met is None else "green" if row.met else "bold red"


def _minutes(duration_us: int | None) -> str:
    """Seconds are noise at this speed."""
    if duration_us is None:
        return "-"
    return format_duration(max(0, duration_us) // 60_000_000 * 60_000_000).replace("0s", "0m")


def _bar(row: TableStatus) -> Text:
    """How much of the target is used up; what is over it is red."""
    if row.target_us is None or row.staleness_us is None:
        return Text("")
    width = 8
    used = min(2.0, max(0.0, row.staleness_us / row.target_us))
    filled = round(used / 2 * width)
    half = width // 2
    return Text.assemble(
        ("━" * min(filled, half), "green" if row.met else "red"),
        ("─" * max(0, half - filled), "dim"),
        ("┃", "dim"),
        ("━" * max(0, filled - half), "bold red"),
    )


def _waiting(row: TableStatus) -> str:
    parts = []
    if row.pending_files:
        parts.append(f"{row.pending_files} file{'s' * (row.pending_files > 1)}")
    if row.pending_partitions:
        parts.append(f"{row.pending_partitions} part{'s' * (row.pending_partitions > 1)}")
    return ", ".join(parts)


# How a run of the demo went: the numbers, and the numbers for people.

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
            f"{format_instant(summary.begin_us)} to {format_instant(summary.end_us)} UTC, "
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
