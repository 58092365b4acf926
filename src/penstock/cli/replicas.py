"""`penstock replicas`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    errors_told,
    open_warehouse,
    out,
    print_json,
    tell_zone,
    working,
)
from penstock.model.grain import zone_of
from penstock.model.time import SECOND_US, format_instant


def register(app: typer.Typer) -> None:
    app.command()(replicas)


def replicas(
    project: ProjectOption = Path(),
    sync: Annotated[bool, typer.Option("--sync", help="Copy now what they lack.")] = False,
    json: JsonOption = False,
) -> None:
    """What each replica has of each table, and what still has to be copied."""
    with errors_told(), open_warehouse(project) as warehouse:
        if sync:
            with working("Copying"):
                rows = warehouse.replicas(sync=True)
        else:
            rows = warehouse.replicas()
        problems = {row.replica: row.problem for row in rows if row.problem}
        if json:
            print_json(rows)
            if sync and problems:
                raise typer.Exit(1)
            return
        if not rows:
            out.print("no replica is declared; write [replicas.NAME] with a path in penstock.toml", markup=False)
            return
        zone = zone_of(warehouse.declared.declarations.config.zone)
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("replica", "table", "complete up to"):
            shown.add_column(column)
        for column in ("versions", "to copy"):
            shown.add_column(column, justify="right")
        for row in rows:
            edge = None if row.complete_us is None else row.complete_us // SECOND_US * SECOND_US
            there = format_instant(edge, zone) if edge is not None else ("" if row.copied else "nothing yet")
            waiting = Text(str(row.waiting), style="yellow" if row.waiting else "dim")
            shown.add_row(row.replica, row.table, there, str(row.versions), waiting)
        out.print(shown)
        for name, problem in problems.items():
            out.print(f"[bold red]{name}[/]:", end=" ")
            out.print(f"{problem}; it is tried again while `penstock run` runs", markup=False, soft_wrap=True)
        tell_zone(zone)
        if sync and problems:
            raise typer.Exit(1)
