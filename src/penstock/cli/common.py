"""What all commands share: finding the project, printing for people or machines, one place for errors."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from penstock.control.faults import WHAT
from penstock.declare.problems import ProjectError
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app import Warehouse

_WIDE = 160


def _console(stderr: bool = False) -> Console:
    """A file or a pipe is as wide as a line needs, within reason: nobody wants to search in cut names."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    return console


out = _console()
err = _console(stderr=True)

ProjectOption = Annotated[
    Path, typer.Option("--project", "-p", help="The project's folder.", envvar="PENSTOCK_PROJECT")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def tell_zone(zone: tzinfo) -> None:
    """In which zone the times above are."""
    out.print(f"[dim]times in {zone}[/]")


def print_json(value: Any) -> None:
    print(json.dumps(value, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


# Exit codes that a supervisor can act on: try again later; leave it to the other process.
NOT_AVAILABLE = 6
TAKEN = 7


def _code(error: PenstockError) -> int:
    from penstock.engine.faults import fault_of
    from penstock.store.lock import AlreadyRunning
    from penstock.store.store import Fenced

    if isinstance(error, AlreadyRunning | Fenced):
        return TAKEN
    return 1 if fault_of(error) is None else NOT_AVAILABLE


@contextmanager
def errors_told() -> Iterator[None]:
    """The one handler: what users can mend is printed without a stack."""
    try:
        yield
    except ProjectError as error:
        count = len(error.problems)
        err.print(f"[bold red]{count} problem{'s' * (count > 1)}[/] in the project:")
        for problem in error.problems:
            err.print(f"  [bold]{problem.where}[/]", end=" ")
            err.print(problem.message, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except PenstockError as error:
        err.print("[bold red]error:[/]", end=" ")
        err.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(_code(error)) from None
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(130) from None
    except Exception as error:
        # What the world does wrong has no message of ours.
        from penstock.engine.faults import fault_of, is_damaged

        fault = fault_of(error)
        if fault is None and not is_damaged(error):
            raise
        err.print("[bold red]error:[/]", end=" ")
        if fault is not None:
            err.print(f"{WHAT[fault.part]} is not available: {fault.reason}", markup=False, soft_wrap=True)
            raise typer.Exit(NOT_AVAILABLE) from None
        err.print(
            "the database of the project is damaged, or is none; put a backup back with `penstock restore`, or see `penstock verify --help`",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1) from None


def open_warehouse(folder: Path) -> Warehouse:
    from penstock.app import Warehouse

    # What is made of thousands of tables all stays: looking for garbage in it takes a tenth of the time.
    gc.disable()
    try:
        return Warehouse(folder)
    finally:
        gc.enable()


def service_parts() -> Any:
    """What serves pages and the API: an extra that not everybody has."""
    try:
        from penstock.service import serve
    except ModuleNotFoundError as error:
        raise PenstockError(f"{error.name} is not installed; type: pip install 'penstock[serve]'") from None
    return serve


@contextmanager
def working(what: str) -> Iterator[None]:
    """A sign of life for anything that takes longer than a second."""
    if err.is_terminal:
        with err.status(what):
            yield
    else:
        if not sys.stderr.closed:
            err.print(f"{what} …")
        yield


# What commands that try many runs share: numbers as people write them, and a sign of progress.

T = TypeVar("T")


def parse_seeds(text: str) -> list[int]:
    """How many (5), a range (1..5), or a list (3,7)."""
    try:
        return list(range(1, int(text) + 1)) if int(text) > 0 else _refused("--seeds", text)
    except ValueError:
        return parse_numbers(text, "--seeds")


def parse_numbers(text: str, option: str) -> list[int]:
    """A number, a range (1..4) or a list (2,4)."""
    try:
        if ".." in text:
            first, last = text.split("..")
            found = list(range(int(first), int(last) + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    return found if found and min(found) >= (1 if option == "--tracks" else 0) else _refused(option, text)


def _refused(option: str, text: str) -> list[int]:
    first = "how many (5)" if option == "--seeds" else "a number (2)"
    raise PenstockError(f"{option} {text}: write {first}, a range (1..5) or a list (3,7)")


def watched(results: Iterable[T], count: int) -> Iterator[T]:
    """A sign of progress for people."""
    if not err.is_terminal:
        yield from results
        return
    yield from track(results, description="simulating", total=count, console=err, transient=True)
