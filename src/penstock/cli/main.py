"""`penstock`: one file per group of commands, put together here. A command that is typed starts with its own file only: the others would cost
more than most commands take."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from penstock import __version__

# The files, in the order in which help shows them, each with its commands.
GROUPS = {
    "project": ("init", "check", "demo"),
    "run": ("run", "retry"),
    "requests": ("backfill", "plan", "requests", "cancel"),
    "external": ("orders", "publish"),
    "inspect": ("status", "explain"),
    "logs": ("logs",),
    "feeds": ("pause", "resume", "withdraw"),
    "bounds": ("bounds",),
    "query": ("query", "queries"),
    "flow": ("flow",),
    "quarantine": ("quarantine",),
    "simulate": ("simulate",),
    "experiment": ("experiment",),
    "whatif": ("whatif", "tune", "timeline"),
    "past": ("versions", "diff"),
    "replicas": ("replicas",),
    "safety": ("backup", "restore", "move", "verify"),
    "serve": ("serve", "console", "token"),
    "docs": ("docs",),
}


def application(groups: Sequence[str] = tuple(GROUPS)) -> typer.Typer:
    """The commands of these files, or all."""
    made = typer.Typer(
        name="penstock",
        help="Keeps a Spark warehouse fresh: decides which table is updated next.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for group in groups:
        import_module(f"penstock.cli.{group}").register(made)
    made.callback()(_options)
    return made


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    # What is imported stays: it need not be looked through for garbage as often as Python does.
    gc.set_threshold(50_000, 20, 20)
    typed = sys.argv[1] if len(sys.argv) > 1 else ""
    # What is no command gets the answer of all of them: help, or what was meant.
    application([group for group, commands in GROUPS.items() if typed in commands] or tuple(GROUPS))()


def __getattr__(name: str) -> Any:
    if name == "app":
        return application()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
