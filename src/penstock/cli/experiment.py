"""`penstock experiment`: what the papers claim, measured again. The only command that knows `penstock.papers`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, err, errors_told, out, parse_seeds, print_json, watched
from penstock.errors import PenstockError
from penstock.sim.figure import Line, Panel, check_picture, write_chart
from penstock.sim.outcome import Row, average, grouped, sweep

if TYPE_CHECKING:
    from penstock.papers import Experiment, Finding

# The exit code of an experiment of which a claim does not hold, if asked for.
CLAIM_FAILED = 5

_MARKS = {
    True: "[bold green]holds[/]       ",
    False: "[bold red]does not[/]    ",
    None: "[bold]not compared[/]",
}


def register(app: typer.Typer) -> None:
    app.command()(experiment)


def experiment(
    name: Annotated[str | None, typer.Argument(help="Which one.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name all experiments.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter: key=value, lists with commas.")] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 5, 1..5, 3,7.")] = "1..3",
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the lines with their standard errors as SVG, PNG or PDF.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 5 if a claim does not hold.")] = False,
    json: JsonOption = False,
) -> None:
    """Repeat or vary an experiment: what was measured, what was claimed, and whether it holds."""
    with errors_told():
        # Not before: no other command should wait for what only the papers need.
        from penstock.papers import find_experiment, load_all

        known = load_all()
        if list_ or name is None:
            _list(known, json)
            return
        found = find_experiment(name, known)
        parameters = found.with_settings(set_ or [])
        if plot is not None:
            check_picture(plot)
        with _settings_told(found.name, set_ or []):
            tasks = found.tasks(parameters, parse_seeds(seeds))
            rows = [row for some in watched(sweep(found.work, tasks, jobs), len(tasks)) for row in some]
            claims = found.judge(rows)
            if json:
                print_json({"experiment": found.name, "rows": rows, "claims": claims})
            else:
                _print(found, rows, claims)
            if plot is not None:
                _plot(plot, found, rows)
    if strict and any(claim.holds is False for claim in claims):
        raise typer.Exit(CLAIM_FAILED)


@contextmanager
def _settings_told(name: str, settings: list[str]) -> Iterator[None]:
    """An experiment that runs as it is, but not with other settings, is told so: not all that can be set is checked."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        if not settings:
            raise
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise PenstockError(f"{name} cannot run with {' '.join(settings)} ({text})") from error


def _list(known: dict[str, Experiment], json: bool) -> None:
    if json:
        print_json([{"name": e.name, "title": e.title, **e.parameters} for e in known.values()])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("experiment", "what", "parameters"):
        table.add_column(column)
    for found in known.values():
        table.add_row(found.name, found.title, Text(", ".join(found.parameters), style="dim"))
    out.print(table)


def _print(found: Experiment, rows: list[Row], claims: list[Finding]) -> None:
    picture = found.picture
    out.print(f"[bold]{found.name}[/]: {found.title}")
    levels = _levels(rows, picture.x)
    for (panel,), some in grouped(rows, picture.panel or "experiment"):
        where = f", {picture.panel} {_said(panel)}" if picture.panel else ""
        out.print(f"\n{picture.y.replace('_', ' ')} by {picture.x.replace('_', ' ')}{where}", style="bold")
        table = Table(box=None, header_style="bold", pad_edge=False)
        longest = max(len(str(row[picture.series])) for row in some)
        # Names stay readable where the screen is narrow; then numbers and their errors are written below each other.
        table.add_column(picture.series.replace("_", " "), overflow="fold", min_width=min(24, longest))
        for level in levels:
            table.add_column(_said(level), justify="right")
        for (series,), line in grouped(some, picture.series):
            cells = {key: average(at, picture.y) for (key,), at in grouped(line, picture.x)}
            table.add_row(str(series), *(_within(*cells[x]) if x in cells else "" for x in levels))
        out.print(table)
    out.print()
    for finding in claims:
        out.print(f"{_MARKS[finding.holds]} {finding.claim}", end="")
        out.print(Text(f"  ({finding.found})", style="dim"))


def _plot(path: Path, found: Experiment, rows: list[Row]) -> None:
    picture = found.picture
    panels = []
    levels = _levels(rows, picture.x)
    # One value has nothing beside it that a line could lead to; it is drawn like a name.
    named = len(levels) == 1 or any(isinstance(level, str) for level in levels)
    labels = [_said(level) for level in levels] if named else None
    place = {level: float(number) if labels else level for number, level in enumerate(levels)}
    for (panel,), some in grouped(rows, picture.panel or "experiment"):
        lines = []
        for (series,), line in grouped(some, picture.series):
            points = [(float(place[x]), *average(at, picture.y)) for (x,), at in grouped(line, picture.x)]
            lines.append(Line(_called(picture.series, series), tuple(sorted(points))))
        panels.append(Panel(f"{picture.panel} {_said(panel)}" if picture.panel else "", tuple(lines)))
    x, y = picture.x.replace("_", " "), picture.y.replace("_", " ")
    write_chart(path, f"{found.name}: {found.title}", x, y, panels, log=picture.log, labels=labels)
    err.print(f"written to {path}")


def _levels(rows: list[Row], key: str) -> list[Any]:
    """The values on the x axis: numbers in their order, names in that of the rows."""
    found = list(dict.fromkeys(row[key] for row in rows))
    return found if any(isinstance(one, str) for one in found) else sorted(found)


def _called(series: str, value: object) -> str:
    """A line in a legend: the name of a policy says what it is, `2` does not."""
    return str(value) if series in ("policy", "series") else f"{series.replace('_', ' ')} {_said(value)}"


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _within(mean: float, error: float) -> str:
    return f"{mean:.3f} ±{error:.3f}" if error else f"{mean:.3f}"
