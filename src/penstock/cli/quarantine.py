"""`penstock quarantine`: rows that were refused and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import ProjectOption, errors_told, open_warehouse, out

app = typer.Typer(name="quarantine", help="Rows that were refused and kept.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.callback()
def _quarantine() -> None:
    pass


@app.command()
def replay(
    name: Annotated[str, typer.Argument(help="A table that takes files, or a flow.")], project: ProjectOption = Path()
) -> None:
    """Look again at the rows in the quarantine, after a fix: their files are read again, or their partitions made again."""
    with errors_told(), open_warehouse(project) as warehouse:
        files, asked = warehouse.replay(name)
        for uri in files.taken:
            out.print(f"{uri} is read again", markup=False, soft_wrap=True)
        for uri, why in files.refused:
            out.print(f"{uri}: {why}", markup=False, soft_wrap=True)
        for each in asked:
            found = each.request
            what = f"{found.partitions:,} partition{'s' * (found.partitions != 1)}"
            out.print(f"request {found.request}: {found.table}, {what}", markup=False)
        if not (files.taken or files.refused or asked):
            out.print(f"there is nothing in the quarantine of {name}", markup=False)
        elif not files.running:
            out.print("it is done with the next `penstock run`")
