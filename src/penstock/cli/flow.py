"""`penstock flow`: how flows run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from json import loads
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, open_warehouse, out, print_json, working
from penstock.flows.archetypes import ARCHETYPES
from penstock.flows.composites import COMPOSITES, break_into_subflows, policy_for
from penstock.flows.frontier import OBJECTIVES, FrontierPoint, chosen, frontier
from penstock.flows.gathering import gathered, learned
from penstock.flows.graph import FlowError, FlowGraph
from penstock.flows.ordering import LEAST_PEAK, ORDERS
from penstock.flows.report import FlowReport, fact_of, load
from penstock.flows.staging import StagingPlace, StagingPlan, plan_staging, timetable
from penstock.sim.figure import check_picture, draw_plan, draw_run

# The last run of a flow, for people.


def print_report(report: FlowReport) -> None:
    activities = Table(box=None, header_style="bold", pad_edge=False)
    activities.add_column("activity")
    activities.add_column("step", style="dim")
    for column in ("rows in", "rows out", "rejected", "selectivity", "CPU"):
        activities.add_column(column, justify="right")
    for run in report.activities:
        rejected = f"{run.rejected:,} ({run.bad})" if run.rejected else ""
        share = f"{run.selectivity:.3g}" if run.selectivity is not None else ""
        activities.add_row(
            run.name, run.step, f"{run.rows_in:,}", f"{run.rows_out:,}", rejected, share, f"{run.cpu_s:.3f} s"
        )
    out.print(activities)
    out.print()
    steps = Table(box=None, header_style="bold", pad_edge=False)
    steps.add_column("step")
    for column in ("time", "CPU", "shuffled", "staged"):
        steps.add_column(column, justify="right")
    steps.add_column("where")
    for step in report.steps:
        where = f"{step.place or ''}{' (kept from an earlier try)' if step.reused else ''}".strip()
        staged = size(step.staged_bytes) if step.staged_bytes else ""
        steps.add_row(
            step.name, f"{step.seconds:.2f} s", f"{step.cpu_s:.2f} s", size(step.shuffle_bytes), staged, where
        )
    out.print(steps)
    out.print(
        f"{report.job}, on {report.extent}: {report.seconds:.2f} s, {report.cpu_s:.2f} s of CPU, {report.rejected:,} rows rejected; staged at the "
        f"most {size(report.peak_memory_bytes)} in memory, {size(report.peak_disk_bytes)} on disk, on average "
        f"{size(report.average_memory_bytes)} in memory"
    )
    if report.predicted_s:
        out.print(
            f"its plan said: {report.predicted_s:.2f} s, {report.predicted_cpu_s:.2f} s of CPU, at the most "
            f"{size(report.predicted_peak_bytes)} in memory"
        )


def size(bytes_: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} TB"


if TYPE_CHECKING:
    from penstock.app import Warehouse
    from penstock.flows.description import TypedFlow

app = typer.Typer(name="flow", help="How flows run: what is staged, in which order.", no_args_is_help=True)
EXAMPLES = {**ARCHETYPES, **COMPOSITES}


def register(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.command()
def plan(
    name: Annotated[str, typer.Argument(help=f"A flow of the project, or an example: {', '.join(EXAMPLES)}.")],
    project: ProjectOption = Path(),
    memory: Annotated[
        float | None, typer.Option(help="MB of memory for what is staged; the rest goes to disk.")
    ] = None,
    order: Annotated[str, typer.Option(help=f"Of the steps: {', '.join(ORDERS)}.")] = LEAST_PEAK,
    objective: Annotated[
        str | None, typer.Option(help=f"Take the way to run that is best for this: {', '.join(OBJECTIVES)}.")
    ] = None,
    slots: Annotated[int, typer.Option(help="How many steps may run at once.", min=1)] = 4,
    scale: Annotated[float, typer.Option(help="Size of an example's data: the scale factor of TPC-H.", min=0)] = 1.0,
    selectivity: Annotated[
        float, typer.Option(help="Of an example: the share of rows that pass a check.", min=0, max=1)
    ] = 0.9,
    theta: Annotated[
        int, typer.Option(help="Subflows with more activities than this that hold rows save memory.", min=0)
    ] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan: a file .svg, .png or .pdf.")] = None,
    json: JsonOption = False,
) -> None:
    """Print how a flow would run: its steps, what each reads, stages and releases, and how much is held at once."""
    with errors_told():
        if plot is not None:
            check_picture(plot)
        graph = _graph(name, project, scale, selectivity)
        if objective not in (None, *OBJECTIVES):
            raise FlowError(f"there is no objective {objective!r}; known are {', '.join(OBJECTIVES)}")
        most = memory * 1e6 if memory is not None else None
        ways = frontier(graph, slots, most, order)
        taken = chosen(ways, objective) if objective is not None else None
        found = taken.plan if taken is not None else plan_staging(graph, most, order=order)
        limit = taken.limit_bytes if taken is not None else None
        if json:
            print_json({**_plain(graph, found, slots, theta, limit), "frontier": [_way(each) for each in ways]})
        else:
            out.print(_strata_table(graph, theta))
            out.print()
            out.print(_steps_table(found, slots, limit))
            _summary(found)
            told = (f"{each.time_us / 1e6:.3g} s holding {size(each.peak_bytes)}" for each in ways)
            out.print(f"ways to run, in {slots} slots: {'; '.join(told)}", soft_wrap=True)
        if plot is not None:
            draw_plan(plot, graph, found, slots, ways, taken)
            err.print(f"written to {plot}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A flow of the project.")],
    project: ProjectOption = Path(),
    plot: Annotated[Path | None, typer.Option(help="Draw the last run: a file .svg, .png or .pdf.")] = None,
    json: JsonOption = False,
) -> None:
    """Print how a flow follows what it reads, and its last run: rows of each activity, time and memory of each step."""
    with errors_told(), open_warehouse(project) as warehouse:
        if plot is not None:
            check_picture(plot)
        flows = _flows(warehouse)
        if name not in flows:
            near = difflib.get_close_matches(name, flows, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise FlowError(f"there is no flow {name!r} in this project{hint}; it has {', '.join(flows) or 'none'}")
        with warehouse.store.read() as conn:
            measured = warehouse.store.fact(conn, fact_of(name))
        follows = warehouse.declared.followings.get(name)
        if json:
            if measured is None:
                raise FlowError(f"flow {name!r} has not run yet: type `penstock run`")
            print_json({**loads(measured), "follows": follows.words if follows is not None else None})
            return
        if follows is not None:
            out.print(follows.words, markup=False, soft_wrap=True)
            for each in follows.forced[1:]:
                out.print(f"and {each}", markup=False, soft_wrap=True)
            out.print()
        if measured is None:
            raise FlowError(f"flow {name!r} has not run yet: type `penstock run`")
        report = load(loads(measured))
        print_report(report)
        if plot is not None:
            draw_run(plot, gathered(flows[name], report.selectivities).graph(), report)
            err.print(f"written to {plot}")


@app.command("run")
def run_(
    name: Annotated[str, typer.Argument(help="A flow of the project.")],
    project: ProjectOption = Path(),
    sample: Annotated[
        int, typer.Option(help="So many rows of each source; all of what is only looked up.", min=1)
    ] = 1000,
    show_rows: Annotated[bool, typer.Option("--show", help="Print some rows behind every activity.")] = False,
    partition: Annotated[str | None, typer.Option(help="Of a flow that asks for :partition_start.")] = None,
    json: JsonOption = False,
) -> None:
    """Try a flow on a sample of what is loaded. Nothing is published."""
    with errors_told(), open_warehouse(project) as warehouse:
        with working("starting Spark"):
            trials = warehouse.trials
        tried = trials.sample(name, sample, show=5 if show_rows else 0, partition=partition)
        if json:
            print_json([asdict(step) for step in tried.steps])
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("activity")
        for column in ("line", "rows in", "rows out", "rejected"):
            table.add_column(column, justify="right")
        for step in tried.steps:
            rejected = f"{step.rejected:,}" if step.rejected else ""
            table.add_row(step.name, str(step.line or ""), f"{step.rows_in:,}", f"{step.rows_out:,}", rejected)
        out.print(table)
        for step in tried.steps if show_rows else ():
            out.print()
            out.print(Text(step.name, style="bold"))
            rows = Table(box=None, pad_edge=False)
            for column in step.columns:
                rows.add_column(Text(column))
            for row in step.rows:
                rows.add_row(*("" if value is None else Text(str(value)) for value in row))
            out.print(rows)


@app.command("test")
def test_(name: Annotated[str, typer.Argument(help="A flow of the project.")], project: ProjectOption = Path()) -> None:
    """Try a flow on the rows in tests/NAME/CASE/in, and compare what it makes with those in tests/NAME/CASE/out."""
    with errors_told(), open_warehouse(project) as warehouse:
        with working("starting Spark"):
            trials = warehouse.trials
        results = trials.test(name)
        for each in results:
            what = f"{each.case}: {each.table}" if each.table else each.case
            out.print(f"{'ok  ' if each.good else 'FAIL'} {what}", markup=False, soft_wrap=True)
            if each.error:
                out.print(f"     {each.error}", markup=False, soft_wrap=True)
            for word, rows in (("missing", each.missing), ("extra  ", each.extra)):
                for row in rows[:10]:
                    out.print(f"     {word} {row}", markup=False, soft_wrap=True)
        bad = sum(not each.good for each in results)
        if bad:
            err.print(f"{bad} of {len(results)} failed", style="red")
            raise typer.Exit(1)


def _graph(name: str, folder: Path, scale: float, selectivity: float) -> FlowGraph:
    """A flow of the project, with what its last run measured if there was one; else an example."""
    own: list[str] = []
    if (folder / "penstock.toml").exists():
        with open_warehouse(folder) as warehouse:
            flows = _flows(warehouse)
            if name in flows:
                with warehouse.store.read() as conn:
                    measured = warehouse.store.fact(conn, fact_of(name))
                if not measured:
                    err.print(f"{name} has not run yet: rows are assumed, a million from each source", style="yellow")
                    return gathered(flows[name]).graph()
                report = load(loads(measured))
                return learned(gathered(flows[name], report.selectivities).graph(), report)
            own = sorted(flows)
    key = name.replace("-", "_")
    if key in EXAMPLES:
        return EXAMPLES[key](scale=scale, selectivity=selectivity)
    near = difflib.get_close_matches(key, (*own, *EXAMPLES), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    mine = f"the project has {', '.join(own)}; " if own else ""
    raise FlowError(f"there is no flow {name!r}{hint} {mine}there are the examples {', '.join(EXAMPLES)}")


def _flows(warehouse: Warehouse) -> dict[str, TypedFlow]:
    declared = (definition.flow for definition in warehouse.declared.definitions.values())
    return {flow.flow.name: flow for flow in declared if flow is not None}


def _strata_table(graph: FlowGraph, theta: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("stratum", "subflow", "row packs by"):
        table.add_column(column)
    for number, stratum in enumerate(break_into_subflows(graph).strata):
        for subflow in stratum:
            recordset = not graph.providers[subflow.sink] or subflow.sink in graph.targets
            policy = "" if recordset else policy_for(graph, subflow, theta)
            table.add_row(str(number), " → ".join(subflow.nodes), Text(policy, style="dim"))
    return table


def _way(point: FrontierPoint) -> dict[str, float]:
    return {"time_us": point.time_us, "peak_bytes": point.peak_bytes, "disk_bytes": point.plan.disk_bytes}


def _steps_table(found: StagingPlan, slots: int, limit: float | None) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, side in (
        ("step", "left"),
        ("computes", "left"),
        ("reads", "left"),
        ("stages", "left"),
        ("releases", "left"),
        ("from", "right"),
        ("to", "right"),
        ("held", "right"),
    ):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for turn in timetable(found, slots, limit):
        step = turn.step
        staged = []
        for one in step.stages:
            columns = ", ".join(one.columns) if one.columns else "all columns"
            where = "to read back" if one.place is StagingPlace.TARGET else f"in {one.place.value}, {size(one.bytes_)}"
            staged.append(f"{where}: {columns}")
        table.add_row(
            step.name,
            " ".join(step.nodes),
            " ".join(step.reads),
            "; ".join(staged),
            " ".join(step.release_after),
            f"{turn.start_us / 1e6:.3g} s",
            f"{turn.end_us / 1e6:.3g} s",
            size(turn.held_bytes),
        )
    return table


def _summary(found: StagingPlan) -> None:
    least = "the least possible" if found.exact else "perhaps not the least possible"
    strata = ""
    if found.strata_peak_bytes > found.peak_bytes:
        more = f" ({found.strata_peak_bytes / found.peak_bytes - 1:+.0%})" if found.peak_bytes else ""
        strata = f"; strata in turn: {size(found.strata_peak_bytes)}{more}"
    out.print(f"held in memory at the most: [bold]{size(found.peak_bytes)}[/], {least} for these steps{strata}")
    if found.disk_bytes:
        out.print(f"staged on disk: {size(found.disk_bytes)}")
    saved = 1 - found.cost_us / found.plain_cost_us if found.plain_cost_us else 0.0
    out.print(f"work: [bold]{found.cost_us / 1e6:.3g} s[/], {saved:.0%} less than computing each target on its own")


def _plain(graph: FlowGraph, found: StagingPlan, slots: int, theta: int, limit: float | None) -> dict[str, Any]:
    strata = break_into_subflows(graph).strata
    times = {turn.step.name: turn for turn in timetable(found, slots, limit)}
    steps = []
    for step in found.steps:
        row = asdict(step)
        for staged in row["stages"]:
            staged["place"] = staged["place"].value
        turn = times[step.name]
        steps.append({**row, "start_us": turn.start_us, "end_us": turn.end_us, "held_bytes": turn.held_bytes})
    return {
        "flow": found.flow,
        "strata": [
            [{"nodes": list(subflow.nodes), "policy": policy_for(graph, subflow, theta)} for subflow in stratum]
            for stratum in strata
        ],
        "steps": steps,
        "peak_bytes": found.peak_bytes,
        "strata_peak_bytes": found.strata_peak_bytes,
        "disk_bytes": found.disk_bytes,
        "exact": found.exact,
        "order": found.order,
        "cost_us": found.cost_us,
        "plain_cost_us": found.plain_cost_us,
    }


# Flows while they run: a bar for each on a terminal, below the lines that scroll by; elsewhere a line now and then.

if TYPE_CHECKING:
    from penstock.engine.flows.progress import FlowProgress

Look = Callable[[], "Sequence[FlowProgress]"]
# Elsewhere than on a terminal only long flows are worth a line.
LINE_EVERY_S = 15.0


@contextmanager
def flows_shown(console: Console, look: Look) -> Iterator[None]:
    if console.is_terminal:
        with Live(_Bars(look), console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
            yield
        return
    ended = Event()
    teller = Thread(target=_tell, args=(console, look, ended), name="penstock-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


class _Bars:
    """Looks anew each time that it is drawn."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def __rich__(self) -> RenderableType:
        return bars(self._look())


def bars(found: Sequence[FlowProgress]) -> Table:
    table = Table.grid(padding=(0, 1))
    for flow in found:
        table.add_row(
            Text(flow.flow, style="bold"),
            ProgressBar(total=1.0, completed=flow.share, width=24),
            Text(f"{flow.done} of {flow.steps} steps, {flow.seconds:.0f} s", style="dim"),
            Text(doing(flow)),
        )
    return table


def doing(flow: FlowProgress) -> str:
    steps = [f"{step.name} {step.tasks_done}/{step.tasks} tasks" if step.tasks else step.name for step in flow.running]
    held = f"; {size(flow.held_bytes)} staged in memory" if flow.held_bytes else ""
    return ", ".join(steps) + held


def _tell(console: Console, look: Look, ended: Event) -> None:
    while not ended.wait(LINE_EVERY_S):
        for flow in look():
            if flow.seconds >= LINE_EVERY_S:
                text = f"{flow.flow}: {flow.done} of {flow.steps} steps after {flow.seconds:.0f} s: {doing(flow)}"
                console.print(Text(text, style="dim"))
