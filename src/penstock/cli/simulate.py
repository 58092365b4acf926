"""`penstock simulate`: policies on a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    err,
    errors_told,
    out,
    parse_numbers,
    parse_seeds,
    print_json,
    watched,
)
from penstock.cli.render import brief_duration, plain_number
from penstock.cli.whatif import simulate_log
from penstock.declare.config import load_policies
from penstock.errors import PenstockError
from penstock.scheduling.jobs import PolicyError, ReadyJob
from penstock.scheduling.policies import DEFAULT, PolicyNameError, bound, find_policy
from penstock.scheduling.protocol import UpdatePolicy, powers
from penstock.sim.figure import Line, Panel, check_picture, write_chart
from penstock.sim.lean import run, uncontended
from penstock.sim.outcome import Row, average, grouped, sweep, told_of
from penstock.sim.read import read_scenario
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Scenario
from penstock.sim.timeline import timeline, write_timeline

# As many tables as are shown, those of the highest priority.
_TABLES = 12


def register(app: typer.Typer) -> None:
    app.command()(simulate)


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
    can = powers(policy)
    index = can.index
    if index is None:
        return
    weights = can.weights_in(scenario.graph)
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


def _tracks(count: int) -> str:
    return f"{count} track{'s' if count > 1 else ''}"
