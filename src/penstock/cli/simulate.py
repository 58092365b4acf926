"""`penstock simulate` and `penstock experiment`: policies on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, out, print_json
from penstock.cli.render import brief_duration, plain_number
from penstock.cli.seeds import parse_numbers, parse_seeds, watched
from penstock.cli.whatif import simulate_log
from penstock.declare.policies import load_policies
from penstock.errors import PenstockError
from penstock.scheduling.jobs import Index, PolicyError, ReadyJob, UpdatePolicy
from penstock.scheduling.policies import DEFAULT, PolicyNameError, bound, find_policy
from penstock.sim.chart import Line, Panel, write_chart
from penstock.sim.experiments import Experiment, find_experiment, load_all
from penstock.sim.experiments.base import ExperimentError, Row, average, grouped
from penstock.sim.figure import check_picture
from penstock.sim.lateness import run, uncontended
from penstock.sim.read import read_scenario
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Scenario
from penstock.sim.sweep import sweep, told_of
from penstock.sim.timeline import timeline, write_timeline

# As many tables as are shown, those of the highest priority.
_TABLES = 12
_MARKS = {
    True: "[bold green]holds[/]       ",
    False: "[bold red]does not[/]    ",
    None: "[bold]not compared[/]",
}


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
        policies = _policies(file, policy or list(wanted) or [DEFAULT, "max-benefit", "fifo"], scenario)
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
            with told_of(policies[0]):
                shown = Simulation(points[0][0], find_policy(policies[0]), points[0][2], keep_log=True)
                shown.run()
            write_timeline(gantt, f"{scenario.name}: {policies[0]}", timeline(shown.log or ()))
            err.print(f"written to {gantt}")


def _policies(file: Path, names: list[str], scenario: Scenario) -> list[str]:
    load_policies(file.parent)
    names = list(dict.fromkeys(names))
    for name in names:
        try:
            policy = find_policy(name)
        except PolicyNameError as error:
            raise PenstockError(str(error)) from None
        except Exception as error:  # a class of the user's own, for example one without `why`
            raise PenstockError(f"{name}: the policy cannot be made: {error}") from None
        with told_of(name):
            _check_index(bound(policy, scenario.graph), scenario)
    return names


def _check_index(policy: UpdatePolicy, scenario: Scenario) -> None:
    """Of one job of each table: the loops have no time to look, and what is no number ranks anyhow."""
    index: Index | None = getattr(policy, "index", None)
    if index is None:
        return
    weights = getattr(policy, "weights", None) or scenario.graph.inherited
    for table in scenario.tables:
        name, period = table.name, scenario.graph.periods_us[table.name]
        cost, start_up = scenario.costs_s[name], scenario.mean_factor * table.alpha_s
        job = ReadyJob(name, table.priority, weights[name], period, 2 * period, period, 0, 0, 0.1, period, cost)
        found = index(job._replace(start_up_s=start_up))
        try:
            a, b = found
            right = not isnan(a) and not isnan(b)
        except (TypeError, ValueError):
            right = False
        if not right:
            raise PolicyError(f"its index of {name} is {found!r}; expected two numbers (a, b), for a + b * now")


def _simulated(point: tuple[Scenario, tuple[str, ...], int, bool, Path]) -> list[Row]:
    scenario, policies, seed, full, folder = point
    load_policies(folder)  # in a process that does not know them yet
    ideal = uncontended(scenario, seed, full=full)
    rows: list[Row] = []
    for policy in policies:
        with told_of(policy):
            found = run(scenario, policy, seed, full=full)
        rows.append(
            {
                "scenario": scenario.name,
                "policy": policy,
                "seed": seed,
                "tracks": scenario.tracks,
                "offered_utilisation": scenario.utilisation,
                "relative_lateness": found.weighted_s / ideal.weighted_s,
                "weighted_staleness_s": found.weighted_s,
                "utilisation": found.utilisation,
                "events": found.events,
                "updates": found.updates,
                "failures": found.failures,
                "staleness_s": found.staleness_s,
            }
        )
    return rows


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
            Text(f"{plain_number(average(some, 'weighted_staleness_s')[0])} s"),
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
        table.add_row(spec.name, *(brief_duration(mean) for mean in means))
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
        with _settings_told(found.name, set_ or []):
            tasks = found.tasks(parameters, parse_seeds(seeds))
            rows = [row for some in watched(sweep(found.work, tasks, jobs), len(tasks)) for row in some]
            if json:
                print_json(rows)
            else:
                _print(found, parameters, rows)
            if plot is not None:
                _plot(plot, found, rows)


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
        raise ExperimentError(f"{name} cannot run with {' '.join(settings)} ({text})") from error


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
    panel = Panel("", tuple(lines))
    write_chart(path, scenario.name, "table", "mean staleness", [panel], log=wide, durations=True, labels=names)
    err.print(f"written to {path}")


def _called(series: str, value: object) -> str:
    """A line in a legend: the name of a policy says what it is, `2` does not."""
    return str(value) if series in ("policy", "series") else f"{series.replace('_', ' ')} {_said(value)}"


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _tracks(count: int) -> str:
    return f"{count} track{'s' if count > 1 else ''}"


def _within(mean: float, error: float) -> str:
    return f"{mean:.3f} ±{error:.3f}" if error else f"{mean:.3f}"
