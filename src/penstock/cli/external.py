"""Tables that others make: orders, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json, tell_zone
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.time import SECOND_US, format_duration, format_instant


def register(app: typer.Typer) -> None:
    app.command()(orders)
    app.command()(publish)


def orders(
    table: Annotated[str | None, typer.Argument(help="Only those of this table.")] = None,
    project: ProjectOption = Path(),
    give_back: Annotated[
        str | None,
        typer.Option(
            "--give-back", metavar="ORDER", help="It will not be done: issue it anew, with the newest inputs."
        ),
    ] = None,
    failed: Annotated[
        str | None, typer.Option(help="With --give-back: why; it is issued again later, as a failed update is.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """What outside jobs are to make: work orders that are open."""
    from penstock.engine.external.dispatch import as_plain, span_text

    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.zone)
        if failed is not None and give_back is None:
            raise PenstockError("--failed says why an order is given back; name it with --give-back ORDER")
        if give_back is not None:
            order = warehouse.return_order(give_back, failed=failed)
            what = "it is issued again later" if failed is not None else "it is issued anew with the newest inputs"
            out.print(f"{order.order} of {order.table} is given back; {what}")
            return
        found = [order for order in warehouse.orders() if table in (None, order.table)]
        if json:
            print_json({"orders": [as_plain(order, zone) for order in found]})
            return
        if not found:
            out.print("no work order is open")
            return
        now_us = warehouse.clock.now_us()
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("order", "table", "what", "version", "made from", "open since", "until", "notes"):
            shown.add_column(name, justify="right" if name == "version" else "left", no_wrap=name != "notes")
        for order in found:
            shown.add_row(
                order.order,
                order.table,
                ",".join(span_text(each, zone) for each in order.partitions),
                str(order.version),
                ", ".join(f"{name}={version}" for name, version in order.inputs),
                f"{format_duration(max(0, now_us - order.issued_us))}",
                format_instant(order.until_us // SECOND_US * SECOND_US, zone),
                warehouse.not_told(order) or order.why,
            )
        out.print(shown)
        tell_zone(zone)


def publish(
    table: Annotated[str, typer.Argument(help="The table.")],
    partitions: Annotated[
        str | None,
        typer.Argument(
            metavar="RANGE",
            help="What was made, as 2024-03-01..2024-03-07; several with commas. All that was ordered, if left out.",
        ),
    ] = None,
    project: ProjectOption = Path(),
    order: Annotated[str | None, typer.Option(help="The work order that this answers.")] = None,
    version: Annotated[
        int | None,
        typer.Option(
            help="Which version was made, as the order says; of a table that reads none of ours, its own number."
        ),
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="A=17,B=3", help="The versions of the inputs that it was made from.")
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option(help="Parquet files with the rows, or folders of such; may stand several times.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="There are no rows.")] = False,
    complete_to: Annotated[
        str | None, typer.Option(help="Of a table that reads none of ours: up to when it is complete.")
    ] = None,
    by: Annotated[str, typer.Option(help="Who made it.")] = "",
    json: JsonOption = False,
) -> None:
    """Report what an outside job made: from now on readers see it."""
    from penstock.engine.external.registered_files import files_below

    with errors_told(), open_warehouse(project) as warehouse:
        named = [Path(each) for each in files or ()]
        paths = [path for each in named for path in (files_below(each) if each.is_dir() else [each])]
        done = warehouse.publish(
            table,
            partitions or (),
            order=order,
            version=version,
            inputs=_inputs(inputs),
            files=paths if files or empty else None,
            complete_to=complete_to,
            by=by,
        )
        if json:
            print_json(done)
            return
        what = f", {done.rows:,} rows in {done.files} file{'s' * (done.files != 1)}" if done.files else ""
        out.print(f"{table} is version [bold]{done.version}[/] now{what}")
        if done.mixed:
            out.print(
                "it was made from newer inputs than ordered: the next order brings what is missing, until then no consistent read uses it"
            )


def _inputs(text: str | None) -> dict[str, int]:
    found = {}
    for part in (text or "").split(","):
        name, _, version = part.strip().partition("=")
        if part.strip() and not (name and version.isdigit()):
            raise PenstockError(
                f"--inputs: {part.strip()!r} is no version of an input; write for example --inputs orders=17,rates=3"
            )
        if part.strip():
            found[name] = int(version)
    return found
