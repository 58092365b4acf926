"""What users ask for: backfill, plan, requests, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json, tell_zone
from penstock.cli.render import format_size
from penstock.control.views.requests import RequestStatus
from penstock.control.views.savings import Kinship, Savings, in_hindsight
from penstock.control.views.savings import savings as savings_of
from penstock.declare.effects import told
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.partitions import Interval
from penstock.model.span import parse_deadline
from penstock.model.time import (
    BEGIN_US,
    END_US,
    SECOND_US,
    format_duration,
    format_instant,
)

_STAGES = {"running": "cyan", "queued": "yellow", "waiting": "yellow", "done": "green", "cancelled": "dim"}


def register(app: typer.Typer) -> None:
    app.command()(backfill)
    app.command()(plan)
    app.command()(requests)
    app.command()(cancel)


def backfill(
    table: Annotated[str, typer.Argument(help="The table.")],
    span: Annotated[
        str | None, typer.Argument(metavar="FROM..TO", help="As 2024-03-01..2024-03-07, 2024-03, or all.")
    ] = None,
    project: ProjectOption = Path(),
    reason: Annotated[str, typer.Option(help="Why; tables may follow some reasons only.")] = "",
    only_this: Annotated[
        bool, typer.Option("--only-this/--downstream", help="Leave what reads the table as it is, or bring it along.")
    ] = False,
    deadline: Annotated[
        str | None, typer.Option(help="When it should be done: as 2h (from now), or 2024-03-08T06:00.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make partitions of a table again, and with them what is made from them."""
    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.declarations.config.zone)
        until = parse_deadline(deadline, warehouse.clock.now_us(), zone)
        asked = warehouse.backfill(table, span, reason=reason, downstream=not only_this, deadline_us=until)
        if json:
            print_json(asked)
            return
        found = asked.request
        where = _where(found.ranges, zone)
        what = f"{_partitions(found.partitions)}{where}{f' {zone}' if where else ''}"
        out.print(f"request [bold]{found.request}[/]: {table}, {what}")
        if found.table != table:
            out.print(f"{table} is made together with {found.table}: their partitions are made again by the same jobs")
        if found.merged_with:
            out.print(f"merged with request {_numbers(found.merged_with)}: what they share is made once")
        if not asked.running:
            out.print("it is done with the next `penstock run`")


def plan(
    wishes: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE FROM..TO]...", help="Backfills that you think of.")
    ] = None,
    project: ProjectOption = Path(),
    only_this: Annotated[bool, typer.Option("--only-this/--downstream", help="As with backfill.")] = False,
    json: JsonOption = False,
) -> None:
    """What will run: pending work, what changed declarations recompute, and backfills that you think of."""
    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.declarations.config.zone)
        pairs = _pairs(wishes or [], set(warehouse.declared.definitions))
        found = warehouse.plan(*((name, span, not only_this) for name, span in pairs))
        if json:
            print_json(found)
            return
        for each in found.changed:
            out.print(told(each), markup=False, highlight=False, soft_wrap=True)
        if found.files_to_load:
            out.print(f"{found.files_to_load} files to load, and what follows from them")
        if not found.work:
            out.print("nothing else would run")
            return
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for name, side in (("table", "left"), ("partitions", "right"), ("", "left"), ("jobs", "right")):
            shown.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for name, side in (("time", "right"), ("reads", "right"), ("because of", "left")):
            shown.add_column(name, justify=side)  # type: ignore[arg-type]
        for work in found.work:
            guess = "" if work.known else "?"
            shown.add_row(
                work.table,
                f"{work.partitions:,}",
                Text(_where(work.ranges, zone).removeprefix(", "), style="dim"),
                f"{work.jobs:,}",
                f"{_seconds(work.expected_s)}{guess}",
                format_size(work.reads_bytes),
                ", ".join(work.why),
            )
        out.print(shown)
        out.print(f"[bold]{found.summary}[/]")
        out.print(
            f"about {_seconds(found.total_s)} of work, at least {_seconds(found.shortest_s)} from start to end; "
            f"reads {format_size(found.reads_bytes)}"
        )
        tell_zone(zone)


def _pairs(words: Sequence[str], tables: set[str]) -> list[tuple[str, str | None]]:
    """Tables, each with its stretch of time if one follows."""
    found: list[tuple[str, str | None]] = []
    for word in words:
        span = word not in tables and (word[:1].isdigit() or word.lower() == "all")
        if span and found and found[-1][1] is None:
            found[-1] = (found[-1][0], word)
        elif span:
            raise PenstockError(f"{word} follows no table; write TABLE FROM..TO, as in `penstock plan orders {word}`")
        else:
            found.append((word, None))
    return found


def requests(
    project: ProjectOption = Path(),
    savings: Annotated[
        bool, typer.Option("--savings", help="What became of every reason to make something again, by table.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """What was asked for: queued, running, waiting for what, merged with what, done."""
    with errors_told(), open_warehouse(project) as warehouse:
        if savings:
            with warehouse.store.read() as conn:
                past = in_hindsight(warehouse.store.events(conn))
            _tell_savings(savings_of(past.state, past), past.merged, json)
            return
        found = warehouse.requests()
        if json:
            print_json({"requests": found})
            return
        if not found:
            out.print("nothing was asked for; `penstock backfill TABLE FROM..TO` makes partitions again")
            return
        zone = zone_of(warehouse.declared.declarations.config.zone)
        now_us = warehouse.clock.now_us()
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("request", "table", "what", "now", "made", "deadline", "reason", "notes"):
            shown.add_column(name, justify="right" if name in ("request", "made") else "left", no_wrap=name != "notes")
        for each in found:
            shown.add_row(
                str(each.request),
                each.table,
                f"{_partitions(each.partitions)}{_where(each.ranges, zone)}",
                Text(each.stage, style=_STAGES[each.stage]),
                f"{each.made:,}" if each.finished_us is not None else f"{each.made:,} of {each.made + each.left:,}",
                _deadline_cell(each, now_us, zone),
                each.reason,
                "; ".join(_notes(each)),
            )
        out.print(shown)
        tell_zone(zone)


def _tell_savings(found: Sequence[Savings], merged: Mapping[Kinship, int], json: bool) -> None:
    *tables, every = found
    if json:
        print_json({"tables": tables, "all": every, "merged": dict(merged)})
        return
    shown = Table(box=None, header_style="bold", pad_edge=False)
    names = ("reasons", "updates", "merged", "duplicates", "joined", "held", "spared", "made", "least")
    shown.add_column("table", no_wrap=True)
    for name in names:
        shown.add_column(name, justify="right", no_wrap=True)
    for each in found:
        numbers = [f"{number:,}" if (number := getattr(each, name)) else "" for name in names]
        shown.add_row(each.table or "all", *numbers, style="" if each.table else "bold")
    out.print(shown)
    if merged:
        said = ", ".join(
            f"{merged[each]:,} {each}" for each in ("independent", "same ancestor", "same origin") if merged[each]
        )
        out.print(Text(f"reasons that met a pending one, by their origins: {said}", style="dim"))


def _deadline_cell(each: RequestStatus, now_us: int, zone: tzinfo) -> Text:
    if each.deadline_us is None:
        return Text("")
    late = (each.finished_us if each.finished_us is not None else now_us) > each.deadline_us
    when = format_instant(each.deadline_us // SECOND_US * SECOND_US, zone)
    return Text(f"{when}{' missed' if late else ''}", style="bold red" if late else "")


def _notes(each: RequestStatus) -> list[str]:
    notes = []
    if each.waits:
        notes.append(each.waits)
    if each.merged_with:
        notes.append(f"merged with {_numbers(each.merged_with)}")
    if not each.downstream:
        notes.append("only this table")
    if each.held:
        notes.append(f"{_partitions(each.held)} of other tables do not follow it")
    if each.dropped:
        notes.append(f"{_partitions(each.dropped)} dropped")
    if each.finished_us is not None and each.updates:
        notes.append(
            f"{each.updates} update{'s' * (each.updates > 1)} in {format_duration(each.finished_us - each.asked_us)}"
        )
    return notes


def cancel(
    request: Annotated[int, typer.Argument(help="Its number, as `penstock requests` shows it.")],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Take a request back: what has not run yet is dropped, unless something else needs it too."""
    with errors_told(), open_warehouse(project) as warehouse:
        before, after = warehouse.cancel(request)
        if json:
            print_json(after)
            return
        dropped = _partitions(after.dropped) if after.dropped else "nothing"
        out.print(f"request {request} cancelled: {dropped} of {before.table} dropped")
        if after.finished_us is None:
            out.print(f"what runs for it ends: {', '.join(after.tables)}")
        if before.made:
            out.print("what was made stays, and what reads it is still brought up to date")


def _partitions(count: int) -> str:
    return f"{count:,} partition{'s' * (count != 1)}"


def _where(ranges: Sequence[Interval], zone: tzinfo) -> str:
    if not ranges or ranges[0][0] <= BEGIN_US:
        return ""
    first, last = ranges[0][0], ranges[-1][1]
    until = f" to {format_instant(last, zone)}" if last < END_US else " on"
    return f", {format_instant(first, zone)}{until}" + (f" in {len(ranges)} pieces" if len(ranges) > 1 else "")


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds * SECOND_US))
