"""`penstock`: one file per group of commands, put together here."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    bounds,
    experiment,
    feeds,
    flow,
    inspect,
    project,
    query,
    replicas,
    requests,
    run,
    safety,
    serve,
    simulate,
    whatif,
)

app = typer.Typer(
    name="penstock",
    help="Keeps a Spark warehouse fresh: decides which table is updated next.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for module in (
    project,
    run,
    requests,
    inspect,
    feeds,
    bounds,
    query,
    flow,
    simulate,
    experiment,
    whatif,
    replicas,
    safety,
    serve,
):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    app()


if __name__ == "__main__":
    main()
