"""Commands that look: status, explain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import tzinfo
from pathlib import Path
from time import sleep
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from penstock.cli.bounds import violation_lines, void_lines
from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json
from penstock.cli.feeds import feed_lines, feed_table, recovery_lines
from penstock.cli.render import status_table
from penstock.control.faults import WHAT, Fault
from penstock.control.state import State
from penstock.control.views.inputs import WaitingRows
from penstock.control.views.status import TableStatus, overview
from penstock.model.grain import zone_of
from penstock.model.partitions import PartitionSet
from penstock.model.time import BEGIN_US, SECOND_US, format_duration, format_instant


def register(app: typer.Typer) -> None:
    app.command()(status)
    app.command()(explain)


def status(
    project: ProjectOption = Path(),
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it.")] = False,
    feeds: Annotated[bool, typer.Option("--feeds", help="How each feed delivers, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Every table: complete up to when, how stale, target met or not, what is pending or running."""
    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.declarations.config.zone)
        state = warehouse.state()

        def picture() -> Group:
            now_us = warehouse.clock.now_us()
            head = f"{format_instant(now_us // 1_000_000 * 1_000_000, zone)}, times in {zone}; {_who(state, warehouse.died)}"
            found = overview(state, now_us, zone)
            return Group(
                Text(head, style="dim"),
                status_table(found.tables, zone, out.width),
                *_faults(found.faults, now_us),
                *feed_lines(found.feeds),
                *recovery_lines(found.recovery, now_us, zone),
                *void_lines(found.void, now_us, zone),
                *violation_lines(found.violated),
                *([feed_table(found.feeds, zone)] if feeds else []),
                *_notes(state),
                *_waiting(warehouse.waiting(state=state), zone),
                *_inconsistent(found.tables, zone),
            )

        if json:
            now_us = warehouse.clock.now_us()
            print_json(
                {
                    "at_us": now_us,
                    "running": state.owner is not None,
                    "died": warehouse.died,
                    "waiting": [asdict(rows) for rows in warehouse.waiting(state=state)],
                    **asdict(overview(state, now_us, zone)),
                }
            )
        elif watch:
            with Live(picture(), console=out, refresh_per_second=2) as live:
                while True:
                    sleep(0.5)
                    state = warehouse.state(state)
                    live.update(picture())
        else:
            out.print(picture())


def _who(state: State, died: bool) -> str:
    if state.owner is not None:
        return "running"
    if died:
        return "not running: the last process was killed, `penstock run` goes on where it was"
    return "not running: `penstock run` keeps the tables fresh"


def _faults(found: Iterable[Fault], now_us: int) -> list[Text]:
    return [
        Text(
            f"{WHAT[fault.part]} has not been available for {format_duration(max(0, now_us - fault.since_us))}: {fault.reason}\n"
            "  it is waited for: updates go on by themselves",
            style="red",
        )
        for fault in found
    ]


def _notes(state: State) -> list[Text]:
    notes = []
    for name, table in state.tables.items():
        if table.failed:
            notes.append(Text(f"{name} failed: {table.error}\n  mend it, then: penstock retry {name}", style="red"))
    for found in list(state.quarantine.values())[:10]:
        notes.append(Text(f"{found.file.uri} is set aside: {found.reason}", style="yellow"))
    if state.quarantine:
        notes.append(Text("  after a fix they are taken up again; or type: penstock retry", style="dim"))
    return notes


def _waiting(found: Iterable[WaitingRows], zone: tzinfo) -> list[Text]:
    return [Text(f"{rows.table}: {rows.said(zone)}", style="yellow") for rows in found]


def _inconsistent(rows: list[TableStatus], zone: tzinfo) -> list[Text]:
    """Old partitions that do not reflect everything that they are made from."""
    notes = []
    for row in rows:
        old = PartitionSet(row.inconsistent).within(BEGIN_US, row.complete_us or BEGIN_US)
        waiting = old - PartitionSet(row.held)
        if waiting and row.kind == "derived":
            notes.append(
                Text(f"{row.table} is not yet consistent with its sources {_span(waiting, zone)}", style="yellow")
            )
        if row.held:
            held = f"{row.table} does not follow changes {_span(PartitionSet(row.held), zone)}"
            notes.append(Text(f"{held}: `penstock explain {row.table}` says why", style="dim"))
    return notes


def _span(where: PartitionSet, zone: tzinfo) -> str:
    first, last = where.intervals[0][0], where.intervals[-1][1]
    if first <= BEGIN_US:
        return "as a whole"
    last = last // SECOND_US * SECOND_US  # an edge lies just behind the last record
    pieces = f", in {len(where.intervals)} pieces" if len(where.intervals) > 1 else ""
    return f"from {format_instant(first, zone)} to {format_instant(last, zone)}{pieces}"


def explain(
    table: Annotated[str, typer.Argument(help="The table.")],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Why a table's last update ran, what is pending and why it waits, and how it is computed."""
    with errors_told(), open_warehouse(project) as warehouse:
        found = warehouse.explain(table)
        if json:
            print_json(found)
            return
        zone = zone_of(warehouse.declared.zone)
        out.print(f"[bold]{table}[/] [dim](times in {zone})[/]")
        for line in found.lines:
            out.print(Text("  " + line))
