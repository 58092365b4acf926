"""`penstock serve` and `penstock token`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    err,
    errors_told,
    open_warehouse,
    out,
    print_json,
    service_parts,
    tell_zone,
    working,
)
from penstock.cli.run import stop_on_signals, tell_store_fault
from penstock.declare.contracts import DEFAULT
from penstock.engine.log import written
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.time import format_instant

if TYPE_CHECKING:
    from penstock.app import Warehouse

token = typer.Typer(help="Who may ask queries over the network, and as which profile.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(console)
    app.add_typer(token, name="token")


def serve(
    project: ProjectOption = Path(),
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any free one.", min=0, max=65535)] = 8321,
    json: JsonOption = False,
) -> None:
    """Keep the tables fresh and answer queries over HTTP, in one process."""
    with errors_told(), open_warehouse(project) as warehouse:
        service = service_parts()
        try:
            service.check_door(warehouse, host)
        except service.NoToken as error:
            if json or not sys.stdin.isatty():
                raise
            err.print(str(error), markup=False)
            if not typer.confirm("Make a token for the profile `default` now?"):
                raise typer.Exit(1) from None
            _made(warehouse, DEFAULT, "made by penstock serve")
        with working("Starting Spark"):
            _ = warehouse.spark
        declarations = warehouse.declared.declarations
        with (
            written(declarations.config.log, declarations.state_folder),
            service.served(warehouse, host, port) as (server, runtime),
        ):
            runtime.on_fault = tell_store_fault
            if json:
                print_json({"url": server.url})
            else:
                err.print(
                    f"Serving at {server.url} (Ctrl-C stops): the console, and the API that {server.url}/openapi.json describes"
                )
            server.run()
            stop_on_signals(runtime)  # the server has ended: what runs may still end, unless that is asked for again
            runtime.stop()


def console(
    project: ProjectOption = Path(),
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any free one.", min=0, max=65535)] = 8321,
    json: JsonOption = False,
) -> None:
    """Look at the project in a browser, whether or not a process runs it. Nothing is made fresh by that."""
    with errors_told(), open_warehouse(project) as warehouse:
        watched = service_parts().watched
        with watched(warehouse, host, port) as server:
            if json:
                print_json({"url": server.url})
            else:
                err.print(f"The console is at {server.url} (Ctrl-C stops)")
                if not warehouse.has_runner:
                    err.print("Nobody keeps its tables fresh now; `penstock serve` or `penstock run` does")
            server.run()


@token.command("add")
def add(
    profile: Annotated[str, typer.Argument(help="A profile of the project.")],
    project: ProjectOption = Path(),
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    json: JsonOption = False,
) -> None:
    """A new token. It is shown this once; only a hash of it is kept."""
    with errors_told(), open_warehouse(project) as warehouse:
        known = warehouse.profiles
        if profile not in known:
            raise PenstockError(f"there is no profile `{profile}`; there are {', '.join(known)}")
        _made(warehouse, profile, note, json)


def _made(warehouse: Warehouse, profile: str, note: str, json: bool = False) -> None:
    from penstock.store import tokens  # a command that does not need the store starts without it

    with warehouse.store.write() as conn:
        made, secret = tokens.add(conn, profile, note, warehouse.clock.now_us())
    if json:
        print_json({"id": made.id, "profile": profile, "token": secret})
    else:
        print(secret, flush=True)
        err.print("it is not shown again; send it as: Authorization: Bearer TOKEN")


@token.command("list")
def listed(project: ProjectOption = Path(), json: JsonOption = False) -> None:
    """All tokens, without their secrets."""
    from penstock.store import tokens

    with errors_told(), open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.zone)
        with warehouse.store.read() as conn:
            found = tokens.listed(conn)
        if json:
            print_json(found)
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("id", "profile", "made", "revoked", "note"):
            table.add_column(column)
        for one in found:
            revoked = format_instant(one.revoked_us, zone) if one.revoked_us is not None else ""
            table.add_row(one.id, one.profile, format_instant(one.created_us, zone), revoked, one.note)
        out.print(table)
        tell_zone(zone)


@token.command("revoke")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `penstock token list` shows it.")],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """From now on it opens nothing."""
    from penstock.store import tokens

    with errors_told(), open_warehouse(project) as warehouse:
        with warehouse.store.write() as conn:
            done = tokens.revoke(conn, identity, warehouse.clock.now_us())
        if not done:
            raise PenstockError(f"there is no token `{identity}` that still counts; see `penstock token list`")
        if json:
            print_json({"revoked": identity})
        else:
            out.print(f"revoked {identity}")
