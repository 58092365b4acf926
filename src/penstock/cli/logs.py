"""`penstock logs`: what the process that runs the project has logged."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, out, print_json
from penstock.declare.project import read_project
from penstock.engine import log

_COLOURS = {"error": "red", "warning": "yellow", "debug": "dim"}
_LEVELS = ("debug", "info", "warning", "error")


def register(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    about: Annotated[str, typer.Argument(metavar="[TABLE]", help="Only of this table, feed or file.")] = "",
    project: ProjectOption = Path(),
    last: Annotated[int, typer.Option("--last", "-n", help="At most so many lines, the newest.", min=1)] = 100,
    level: Annotated[str, typer.Option("--level", help="Only what is at least: debug, info, warning, error.")] = "",
    json: JsonOption = False,
) -> None:
    """What the process that runs the project has logged; also when the store is away."""
    with errors_told():
        declarations = read_project(project)
        if level and level not in _LEVELS:
            raise typer.BadParameter(f"expected one of {', '.join(_LEVELS)}", param_hint="--level")
        wanted = _LEVELS[_LEVELS.index(level) :] if level else ()
        found = deque(
            (
                line
                for line in log.lines(declarations.state_folder)
                if (not about or log.is_about(line, about)) and (not wanted or line.get("level") in wanted)
            ),
            maxlen=last,
        )
        for line in found:
            if json:
                print_json(line)
                continue
            text = f"{line.get('at', '')}  {line.get('message', '')}"
            out.print(Text(text, style=_COLOURS.get(str(line.get("level")), "")), soft_wrap=True)
        if not found and not json:
            if declarations.config.log.to == "output":
                err.print('the log goes to standard output ([log] to = "output"): whoever starts Penstock keeps it')
            else:
                err.print(
                    f"nothing is logged{f' of {about}' if about else ''} in {declarations.state_folder / log.FILE}"
                )
