"""Feeds: pause, resume, and how `penstock status` shows their health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json
from penstock.control.views.health import FeedHealth
from penstock.control.views.recovery import Recovery
from penstock.model.time import SECOND_US, format_duration, format_instant, moment

_COLOUR = {"healthy": "green", "late": "yellow", "out": "bold red", "paused": "cyan"}


def register(app: typer.Typer) -> None:
    app.command()(pause)
    app.command()(resume)
    app.command()(withdraw)


def pause(
    feed: Annotated[str, typer.Argument(help="The feed.")],
    project: ProjectOption = Path(),
    reason: Annotated[str, typer.Option(help="Why; `penstock status` shows it.")] = "",
    json: JsonOption = False,
) -> None:
    """Stop loading a feed. Its files are noticed and wait; that it is silent is no outage."""
    with errors_told(), open_warehouse(project) as warehouse:
        found = warehouse.pause(feed, reason=reason)
    if json:
        print_json(found)
        return
    out.print(f"{feed} {'is' if found.changed else 'was already'} paused; what runs ends")
    out.print(f"not loaded until `penstock resume {feed}`: {', '.join(found.tables)}")


def resume(
    feed: Annotated[str, typer.Argument(help="The feed.")],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Load a paused feed again, with all that has come meanwhile."""
    with errors_told(), open_warehouse(project) as warehouse:
        found = warehouse.resume(feed)
    if json:
        print_json(found)
        return
    if not found.changed:
        out.print(f"{feed} was not paused")
        return
    out.print(f"{feed} is resumed, {found.waiting} file{'s' * (found.waiting != 1)} to catch up on")
    if not found.running:
        out.print("it is done with the next `penstock run`")


def withdraw(
    files: Annotated[list[str], typer.Argument(help="Delivered files, named from the project's folder.")],
    project: ProjectOption = Path(),
    reason: Annotated[str, typer.Option(help="Why; it is kept in the log.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Load files that were withdrawn after all.")] = False,
    json: JsonOption = False,
) -> None:
    """Take delivered files back: their rows go, with everything that was made from them. No other file is needed for it."""
    with errors_told(), open_warehouse(project) as warehouse:
        found = warehouse.give_back(files) if undo else warehouse.withdraw(files, reason=reason)
    if json:
        print_json(found)
        return
    for each in found:
        if undo:
            out.print(f"{each.uri} {'is loaded again' if each.changed else 'was not withdrawn'}")
        elif each.tables:
            out.print(f"{each.uri} is withdrawn; its rows go from {', '.join(each.tables)}")
        else:
            out.print(
                f"{each.uri} is withdrawn; no table holds rows of it"
                if each.changed
                else f"{each.uri} was withdrawn before"
            )
    if found and any(each.changed for each in found) and not found[0].running:
        out.print("it is done with the next `penstock run`")


def feed_lines(found: Sequence[FeedHealth]) -> list[Text]:
    """One line of all, and one of each that is not well."""
    if not any(feed.health in _COLOUR for feed in found):
        return []
    counts = Counter(feed.health for feed in found)
    lines = [Text("feeds: " + ", ".join(f"{count} {health}" for health, count in counts.items()), style="dim")]
    for feed in found:
        if feed.health in ("late", "out", "paused"):
            lines.append(Text(f"  {feed.said}", style=_COLOUR[feed.health]))
    return lines


def recovery_lines(found: Sequence[Recovery], now_us: int, zone: tzinfo) -> list[Text]:
    """Tables that catch up, and until when."""
    lines = []
    for each in found:
        after = f"after {format_duration(_whole(each.outage_us))} of {each.cause} of {each.feed}"
        expected = "no end in sight (costs are not known yet, or normal work alone fills the tracks)"
        if each.expected_end_us is not None:
            expected = f"expected to end at {_time(each.expected_end_us, now_us, zone)}"
        proven = ""
        if each.latest_end_us is not None:
            proven = f", proven: {_time(each.latest_end_us, now_us, zone)} at the latest"
        behind = format_duration(_whole(each.lag_us))
        lines.append(Text(f"{each.table}: recovers {after}, {behind} behind, {expected}{proven}", style="yellow"))
    return lines


def feed_table(found: Sequence[FeedHealth], zone: tzinfo) -> Table:
    """How each feed delivers."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name, side in (("feed", "left"), ("now", "left"), ("every", "right"), ("jitter", "right")):
        shown.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name, side in (("comes", "right"), ("records old", "right"), ("last file", "left"), ("next due", "left")):
        shown.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for feed in found:
        shown.add_row(
            feed.feed,
            Text(feed.health, style=_COLOUR.get(feed.health, "dim")),
            _duration(feed.period_us),
            _duration(feed.jitter_us),
            _duration(feed.learned_period_us),
            _duration(feed.stamp_us),
            _second(feed.last_us, zone),
            _second(feed.next_us, zone),
        )
    return shown


def _duration(duration_us: int | None) -> str:
    return "-" if duration_us is None else format_duration(duration_us)


def _whole(duration_us: int) -> int:
    return duration_us // SECOND_US * SECOND_US


def _time(at_us: int, now_us: int, zone: tzinfo) -> str:
    """The time of day, with the day if that is another."""
    then = moment(at_us, zone)
    return then.strftime("%H:%M:%S" if then.date() == moment(now_us, zone).date() else "%Y-%m-%d %H:%M:%S")


def _second(at_us: int | None, zone: tzinfo) -> str:
    return format_instant(at_us if at_us is None else at_us // SECOND_US * SECOND_US, zone)
