"""`penstock run` and `penstock retry`."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.common import (
    WHAT,
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
    FaultEnded,
    FaultMet,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    GuaranteeRenewed,
    GuaranteeVoided,
    UpdateFailed,
    UpdateFinished,
)
from penstock.control.views.status import status
from penstock.model.grain import zone_of
from penstock.model.time import format_duration, moment

if TYPE_CHECKING:
    from penstock.engine.faults import WorldFault
    from penstock.engine.runtime import Runtime


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(retry)


def run(
    project: ProjectOption = Path(),
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is left to do.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only how it ended.")] = False,
    json: JsonOption = False,
) -> None:
    """Keep the tables fresh: watch the feeds, update what is stale, in the order that helps most."""
    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.declarations.config.zone)
        with warehouse.running(for_queries=not until_idle) as runtime:
            with working("Starting Spark"):
                _ = warehouse.spark
            stop_on_signals(runtime)
            runtime.on_fault = tell_store_fault
            if not quiet:
                runtime.on_event = lambda number, event: _tell(number, event, zone, json)
            if not json:
                err.print(
                    "Running; Ctrl-C stops after the updates that run, a second one at once."
                    if not until_idle
                    else "Running until idle."
                )
            with flows_shown(err, runtime.flows.progress) if not quiet and not json else nullcontext():
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


def stop_on_signals(runtime: Runtime) -> None:
    """The first asks the loop to stop, the second to stop at once."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: runtime.stop())


def tell_store_fault(fault: WorldFault) -> None:
    """It cannot be on record before the store is back, so it is said at once."""
    err.print(Text(f"the store is not available: {fault.reason}; it is waited for", style="red"))


def _tell(number: int, event: Event, zone: tzinfo, json: bool) -> None:
    line: dict[str, Any] | None = None
    text = ""
    when = moment(event.at_us, zone).strftime("%H:%M:%S")
    if isinstance(event, UpdateFinished):
        rows = sum(publication.rows for publication in event.publications)
        line = {"table": event.table, "how": event.how, "rows": rows, "seconds": round(event.seconds, 3)}
        text = f"{event.table}: {event.how}, {rows:,} rows in {event.seconds:.2f}s"
    elif isinstance(event, UpdateFailed):
        line = {"table": event.table, "error": event.error}
        text = f"{event.table}: failed: {event.error.splitlines()[0]}"
    elif isinstance(event, FileQuarantined):
        line = {"feed": event.feed, "file": event.file.uri, "reason": event.reason}
        text = f"{event.file.uri}: set aside: {event.reason}"
    elif isinstance(event, FileRewritten):
        line = {"feed": event.feed, "file": event.file.uri}
        text = f"{event.file.uri}: rewritten since it was loaded; its partitions are made again"
    elif isinstance(event, FeedWentOut | FeedCameBack):
        line = {"feed": event.feed, "since_us": event.since_us}
        if isinstance(event, FeedWentOut):
            text = f"{event.feed}: out, a file was due {format_duration(event.at_us - event.since_us)} ago"
        else:
            text = f"{event.feed}: back after {format_duration(event.at_us - event.since_us)}"
    elif isinstance(event, GuaranteeVoided | GuaranteeRenewed):
        line = {"tables": list(event.tables)}
        text = f"guarantee of {', '.join(event.tables)} holds again"
        if isinstance(event, GuaranteeVoided):
            line["because"] = event.because
            text = f"guarantee of {', '.join(event.tables)} void: {event.because}"
    elif isinstance(event, FeedPaused | FeedResumed):
        line = {"feed": event.feed}
        text = f"{event.feed}: {'paused' if isinstance(event, FeedPaused) else 'resumed'}"
    elif isinstance(event, FaultMet):
        line = {"part": event.part, "table": event.table, "reason": event.reason}
        again = f"; {event.table} is done again" if event.table else ""
        text = f"{WHAT[event.part]} is not available: {event.reason}{again}"
    elif isinstance(event, FaultEnded):
        line = {"part": event.part, "since_us": event.since_us, "reason": event.reason}
        text = f"{WHAT[event.part]} is available again after {format_duration(event.at_us - event.since_us)}"
    elif isinstance(event, FileArrived):
        line = {"feed": event.feed, "file": event.file.uri}
    if line is None:
        return
    if json:
        print_json({"event": event.kind, "number": number, "at_us": event.at_us, **line})
    elif text:
        err.print(Text(f"{when}  {text}", style="red" if isinstance(event, UpdateFailed | FaultMet) else ""))


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
