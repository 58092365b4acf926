"""`penstock simulate` and `penstock experiment`: policies on a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, out, print_json
from penstock.cli.seeds import parse_numbers, parse_seeds, watched
from penstock.cli.whatif import simulate_log
from penstock.declare.policies import load_policies
from penstock.errors import PenstockError
from penstock.scheduling.policies import DEFAULT, PolicyNameError, find_policy
from penstock.sim.chart import Line, Panel, write_chart
from penstock.sim.experiments import Experiment, find_experiment, load_all
from penstock.sim.experiments.base import Row, average, grouped
from penstock.sim.figure import check_picture
from penstock.sim.lateness import measure
from penstock.sim.read import read_scenario
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Scenario
from penstock.sim.sweep import sweep
from penstock.sim.timeline import timeline, write_timeline

# As many tables as are shown, those of the highest priority.
_TABLES = 12


def register(app: typer.Typer) -> None:
    app.command()(simulate)
    app.command()(experiment)


def simulate(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario.toml; without it the project's own log is replayed.")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option("--policy", help="A policy to try; several to compare.")] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 5, 1..5, 3,7.")] = "3",
    tracks: Annotated[str | None, typer.Option(help="Other than it is; several to compare: 1..4, or 2,4.")] = None,
    volume: Annotated[float, typer.Option(help="The log with so many times the data.", min=0.001)] = 1.0,
    outage: Annotated[
        list[str] | None, typer.Option("--outage", help="The log with an outage: 10m..25m, or feed@10m..25m.")
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option("--add", help="The log with more tables like one that there is: table*3.")
    ] = None,
    project: ProjectOption = Path(),
    full: Annotated[
        bool, typer.Option("--full", help="Through the controller even where a faster loop would do.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)] = None,
    plot: Annotated[Path | None, typer.Option(help="Write mean staleness by table as SVG, PNG or PDF.")] = None,
    gantt: Annotated[
        Path | None, typer.Option(help="Write the tracks and staleness of one run as SVG, PNG or PDF.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a scenario, or the project's own log again, under several policies: how stale every table would be."""
    with errors_told():
        for picture in (plot, gantt):
            if picture is not None:
                check_picture(picture)
        if file is None:
            simulate_log(project, policy or [], tracks, seeds, volume, outage or [], add or [], jobs, plot, gantt, json)
            return
        if volume != 1.0 or outage or add:
            raise PenstockError("--volume, --outage and --add change the project's log; in a scenario write them down")
        scenario, wanted = read_scenario(file)
        policies = _policies(file, policy or list(wanted) or [DEFAULT, "max-benefit", "fifo"])
        counts = [scenario.tracks] if tracks is None else parse_numbers(tracks, "--tracks")
        points = [
            (replace(scenario, tracks=count), tuple(policies), seed, full, file.parent)
            for count in counts
            for seed in parse_seeds(seeds)
        ]
        rows = [row for found in watched(sweep(_simulated, points, jobs), len(points)) for row in found]
        if json:
            print_json(rows)
        else:
            _print_simulated(scenario, rows)
        if plot is not None:
            _plot_tables(plot, scenario, rows)
        if gantt is not None:
            run = Simulation(points[0][0], find_policy(policies[0]), points[0][2], keep_log=True)
            run.run()
            write_timeline(gantt, f"{scenario.name}: {policies[0]}", timeline(run.log or ()))
            err.print(f"written to {gantt}")


def _policies(file: Path, names: list[str]) -> list[str]:
    load_policies(file.parent)
    try:
        for name in names:
            find_policy(name)
    except PolicyNameError as error:
        raise PenstockError(str(error)) from None
    return names


def _simulated(point: tuple[Scenario, tuple[str, ...], int, bool, Path]) -> list[Row]:
    scenario, policies, seed, full, folder = point
    load_policies(folder)  # in a process that does not know them yet
    return [
        {
            "scenario": scenario.name,
            "policy": found.policy,
            "seed": seed,
            "tracks": scenario.tracks,
            "offered_utilisation": scenario.utilisation,
            "relative_lateness": found.relative_lateness,
            "weighted_staleness_s": found.outcome.weighted_s,
            "utilisation": found.outcome.utilisation,
            "events": found.outcome.events,
            "updates": found.outcome.updates,
            "failures": found.outcome.failures,
            "staleness_s": found.outcome.staleness_s,
        }
        for found in measure(scenario, policies, seed, full=full)
    ]


def _print_simulated(scenario: Scenario, rows: list[Row]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", overflow="fold")
    several = len({row["tracks"] for row in rows}) > 1
    if several:
        table.add_column("tracks", justify="right")
    for column in ("relative lateness", "weighted staleness", "utilisation", "updates"):
        table.add_column(column, justify="right")
    best = min((average(some, "relative_lateness")[0] for _, some in grouped(rows, "policy", "tracks")), default=0.0)
    for (policy, tracks), some in grouped(rows, "policy", "tracks"):
        late, error = average(some, "relative_lateness")
        table.add_row(
            Text(policy),
            *([Text(str(tracks))] if several else []),
            Text(f"{late:.3f} ±{error:.3f}", style="bold green" if late == best else ""),
            Text(f"{average(some, 'weighted_staleness_s')[0]:.4g} s"),
            Text(f"{average(some, 'utilisation')[0]:.2f}"),
            Text(f"{average(some, 'updates')[0]:.0f}"),
        )
    out.print(table)
    out.print()
    out.print(_by_table(scenario, rows, several))


def _by_table(scenario: Scenario, rows: list[Row], several: bool) -> Table:
    """Mean staleness of the tables that matter most, under each of the policies."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("mean staleness", overflow="fold")
    runs = list(grouped(rows, "policy", "tracks"))
    for (policy, tracks), _ in runs:
        table.add_column(f"{policy}, {_tracks(tracks)}" if several else policy, justify="right", overflow="fold")
    shown = sorted(scenario.tables, key=lambda each: -each.priority)[:_TABLES]
    for spec in shown:
        means = [sum(row["staleness_s"][spec.name] for row in some) / len(some) for _, some in runs]
        table.add_row(spec.name, *(f"{mean:.4g} s" for mean in means))
    if len(shown) < len(scenario.tables):
        table.add_row(Text(f"and {len(scenario.tables) - len(shown)} more (--json, --plot)", style="dim"))
    return table


def experiment(
    name: Annotated[str | None, typer.Argument(help="Which one.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name all experiments.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter: key=value, lists with commas.")] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 5, 1..5, 3,7.")] = "1..3",
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the lines with their standard errors as SVG, PNG or PDF.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Repeat or vary an experiment: what was measured, what was claimed, and whether it holds."""
    with errors_told():
        import_module("penstock.cli.etl_spark")  # needs Spark, so it is not of the simulator
        known = load_all()
        if list_ or name is None:
            _list(known, json)
            return
        found = find_experiment(name, known)
        parameters = found.with_settings(set_ or [])
        if plot is not None:
            check_picture(plot)
        tasks = found.tasks(parameters, parse_seeds(seeds))
        rows = [row for some in watched(sweep(found.work, tasks, jobs), len(tasks)) for row in some]
        if json:
            print_json(rows)
        else:
            _print(found, parameters, rows)
        if plot is not None:
            _plot(plot, found, rows)


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


def _print(found: Experiment, parameters: dict[str, Any], rows: list[Row]) -> None:
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
    for finding in found.judge(rows):
        mark = "[bold green]holds[/]    " if finding.holds else "[bold red]does not[/] "
        out.print(f"{mark} {finding.claim}", end="")
        out.print(Text(f"  ({finding.found})", style="dim"))


def _plot(path: Path, found: Experiment, rows: list[Row]) -> None:
    picture = found.picture
    panels = []
    levels = _levels(rows, picture.x)
    labels = [str(level) for level in levels] if any(isinstance(level, str) for level in levels) else None
    place = {level: float(number) if labels else level for number, level in enumerate(levels)}
    for (panel,), some in grouped(rows, picture.panel or "experiment"):
        lines = []
        for (series,), line in grouped(some, picture.series):
            points = [(float(place[x]), *average(at, picture.y)) for (x,), at in grouped(line, picture.x)]
            lines.append(Line(str(series), tuple(sorted(points))))
        panels.append(Panel(f"{picture.panel} {_said(panel)}" if picture.panel else "", tuple(lines)))
    x, y = picture.x.replace("_", " "), picture.y.replace("_", " ")
    _write(path, f"{found.name}: {found.title}", x, y, panels, log=picture.log, labels=labels)


def _levels(rows: list[Row], key: str) -> list[Any]:
    """The values on the x axis: numbers in their order, names in that of the rows."""
    found = list(dict.fromkeys(row[key] for row in rows))
    return found if any(isinstance(one, str) for one in found) else sorted(found)


def _plot_tables(path: Path, scenario: Scenario, rows: list[Row]) -> None:
    lines = []
    for (policy, tracks), some in grouped(rows, "policy", "tracks"):
        points = []
        for number, table in enumerate(scenario.tables):
            mean, error = average([{"s": row["staleness_s"][table.name]} for row in some], "s")
            points.append((float(number), mean, error))
        lines.append(Line(f"{policy}, {_tracks(tracks)}", tuple(points)))
    names = [table.name for table in scenario.tables]
    means = [mean for line in lines for _, mean, _ in line.points if mean > 0]
    wide = bool(means) and max(means) > 20 * min(means)
    _write(path, scenario.name, "table", "mean staleness (s)", [Panel("", tuple(lines))], log=wide, labels=names)


def _write(
    path: Path, title: str, x: str, y: str, panels: list[Panel], log: bool = False, labels: list[str] | None = None
) -> None:
    write_chart(path, title, x, y, panels, log=log, labels=labels)
    err.print(f"written to {path}")


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _tracks(count: int) -> str:
    return f"{count} track{'s' if count > 1 else ''}"


def _within(mean: float, error: float) -> str:
    return f"{mean:.3f} ±{error:.3f}" if error else f"{mean:.3f}"
