"""`penstock run` and `penstock retry`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import tzinfo
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    err,
    errors_told,
    open_warehouse,
    out,
    print_json,
    tell_zone,
    working,
)
from penstock.cli.flow import flows_shown
from penstock.cli.render import status_table
from penstock.control.events import (
    Event,
    FaultMet,
    FileArrived,
    RunStarted,
    RunStopped,
    TableRetried,
    UpdateFailed,
    UpdateStarted,
    UpdateStopped,
)
from penstock.control.views.status import status
from penstock.engine.log import said_of, written
from penstock.model.grain import zone_of
from penstock.model.time import moment

if TYPE_CHECKING:
    from penstock.app import Warehouse
    from penstock.engine.desk.front import Front
    from penstock.engine.faults import WorldFault
    from penstock.engine.runtime import Runtime


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(retry)


def run(
    project: ProjectOption = Path(),
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is left to do.")] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another process runs the project, and take over when it is gone."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only how it ended.")] = False,
    json: JsonOption = False,
) -> None:
    """Keep the tables fresh: watch the feeds, update what is stale, in the order that helps most."""
    with errors_told(), open_warehouse(project) as warehouse:
        declarations = warehouse.declared.declarations
        zone, quiet = zone_of(declarations.config.zone), quiet or declarations.config.log.to == "output"
        if standby and not warehouse.store.is_sqlite:
            with working("Starting Spark"):  # it would take most of the time of taking over
                _ = warehouse.spark
        with (
            written(declarations.config.log, declarations.state_folder),
            warehouse.running(for_queries=not until_idle, standby=standby, on_wait=_tell_waits) as runtime,
        ):
            with working("Starting Spark"):
                _ = warehouse.spark
            stop_on_signals(runtime)
            runtime.on_fault = tell_store_fault
            if not quiet:
                runtime.on_event = lambda number, event: _tell(number, event, zone, json)
            if not json:
                how = (
                    "Ctrl-C stops after the updates that run, a second one at once."
                    if not until_idle
                    else "until idle."
                )
                err.print(f"Running{' ' if until_idle else '; '}{how}{'' if quiet else f' Times in {zone}.'}")
            with (
                nullcontext() if until_idle else _queries_answered(warehouse, runtime),
                flows_shown(err, runtime.flows.progress) if not quiet and not json else nullcontext(),
            ):
                runtime.run(until_idle)
            state = runtime.controller.state
            rows = status(state, warehouse.clock.now_us())
        failed = [row.table for row in rows if row.doing == "failed"]
        if json:
            print_json({"event": "stopped", "tables": rows, "failed": failed})
        else:
            out.print(status_table(rows, zone, out.width))
            tell_zone(zone)
            for row in rows:
                if row.doing == "failed":
                    err.print(f"[bold red]{row.table} failed[/]; mend it and type: penstock retry {row.table}")
                    err.print(Text(f"  {row.error}"))
        if failed:
            raise typer.Exit(3)


@contextmanager
def _queries_answered(warehouse: Warehouse, runtime: Runtime) -> Iterator[None]:
    """Those of `penstock query`, in the Spark that is there. What it takes is made ready when somebody asks."""
    from penstock.service.local_queries import answering

    with ExitStack() as opened:

        @cache
        def front() -> Front:
            found = warehouse.open_front(runtime.wake, within=True)
            opened.callback(found.close)
            return found

        with answering(warehouse, front):
            yield


def _tell_waits(who: str) -> None:
    err.print(f"standing by: {who.partition(';')[0]}", markup=False, soft_wrap=True)


def stop_on_signals(runtime: Runtime) -> None:
    """The first asks the loop to stop, the second to stop at once."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: runtime.stop())


def tell_store_fault(fault: WorldFault) -> None:
    """It cannot be on record before the store is back, so it is said at once."""
    err.print(Text(f"the store is not available: {fault.reason}; it is waited for", style="red"))


# What happens too often, or is not worth a line for people who look.
_NOT_SHOWN = (UpdateStarted, UpdateStopped, RunStarted, RunStopped, TableRetried)


def _tell(number: int, event: Event, zone: tzinfo, json: bool) -> None:
    said = None if isinstance(event, _NOT_SHOWN) else said_of(event)
    if said is None:
        return
    if json:
        print_json({"event": event.kind, "number": number, "at_us": event.at_us, **said.fields})
    elif not isinstance(event, FileArrived):
        when = moment(event.at_us, zone).strftime("%H:%M:%S")
        err.print(Text(f"{when}  {said.text}", style="red" if isinstance(event, UpdateFailed | FaultMet) else ""))


def retry(
    what: Annotated[list[str] | None, typer.Argument(help="Tables or files; all that failed if none is named.")] = None,
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Try failed tables again, and take up quarantined files after a fix."""
    with errors_told(), open_warehouse(project) as warehouse:
        report = warehouse.retry(what or [])
        if json:
            print_json(report)
            return
        for line in report.taken:
            out.print(f"[green]again:[/] {line}")
        for name, reason in report.refused:
            out.print(Text(f"still set aside: {name}: {reason}", style="yellow"))
        if not report.taken and not report.refused:
            out.print("nothing failed, nothing is quarantined")
        elif report.taken and not report.running:
            out.print("it is done with the next `penstock run`")
