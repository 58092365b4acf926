"""Commands that keep a warehouse safe: backup, restore, move, verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, out, print_json
from penstock.cli.render import format_size
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.upkeep.verify import ProgressReport, Verified

_MOST = 20


def register(app: typer.Typer) -> None:
    for command in (backup, restore, move, verify):
        app.command()(command)


@contextmanager
def _shown() -> Iterator[ProgressReport]:
    """Progress, and the troubles of disks and databases told."""
    from sqlalchemy.exc import DBAPIError  # only commands that need it wait for it

    try:
        with _bar() as progress:
            yield progress
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise PenstockError(
            f"{where}{error.strerror or error}.\nMend that and type the same again: it goes on."
        ) from None
    except DBAPIError as error:
        raise PenstockError(f"the database cannot be used: {error.orig}.\nMend that and type the same again.") from None


@contextmanager
def _bar() -> Iterator[ProgressReport]:
    """A bar on a terminal, a line for each kind of work elsewhere."""
    if not err.is_terminal:
        told: set[str] = set()

        def line(what: str, _done: int, _all: int) -> None:
            if what not in told:
                told.add(what)
                err.print(f"{what} …")

        yield line
        return
    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)


CopyOption = Annotated[bool, typer.Option("--copy", help="Copy data files also where a link would do.")]


def backup(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder, or one with an older backup of the project.")],
    project: ProjectOption = Path(),
    copy: CopyOption = False,
    json: JsonOption = False,
) -> None:
    """Copy catalogue, state and data files as of now into a folder, also while the project runs."""
    from penstock.app import Warehouse

    with errors_told(), Warehouse(project) as warehouse, _shown() as progress:
        made = warehouse.backup(folder, copy=copy, progress=progress)
        if json:
            print_json(made)
            return
        out.print(
            f"backed up {made.files:,} files, {format_size(made.size_bytes)}, at snapshot {made.snapshot}, in {folder}"
        )
        for path in made.outside[:_MOST]:
            out.print(Text(f"not in it, as it lies outside of the data folder: {path}", style="yellow"))
        out.print(Text(f"to put it back: penstock restore {folder}", style="dim"))


def restore(
    folder: Annotated[Path, typer.Argument(help="A folder that `penstock backup` made.")],
    project: ProjectOption = Path(),
    force: Annotated[bool, typer.Option("--force", help="Also over what the project has.")] = False,
    copy: CopyOption = False,
    json: JsonOption = False,
) -> None:
    """Put a backup back, into a project without data or, with --force, over one."""
    from penstock.app import restore as put_back

    with errors_told(), _shown() as progress:
        done = put_back(folder, project, force=force, copy=copy, progress=progress)
        if json:
            print_json(done)
            return
        out.print(
            f"restored {done.backup.files:,} files, {format_size(done.backup.size_bytes)}, snapshot {done.backup.snapshot}, into {done.data}"
        )
        if done.before is not None:
            out.print(Text(f"the catalogue and state of before are in {done.before}", style="dim"))
        out.print(
            Text(
                "files that were delivered since are loaded with the next `penstock run`, if they are still there",
                style="dim",
            )
        )


def move(
    path: Annotated[Path, typer.Argument(help="The new data folder, absolute or relative to the project.")],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Move the data files to another folder. (A whole project is simply moved, with `mv`.)"""
    from penstock.app import move as move_data

    with errors_told(), _shown() as progress:
        done = move_data(path, project, progress=progress)
        if json:
            print_json(done)
            return
        out.print(f"the {done.files:,} data files are in {done.now} now, and penstock.toml says so")
        if done.left:
            out.print(Text(f"{done.left} other files stay in {done.before}", style="dim"))


def verify(
    project: ProjectOption = Path(),
    deep: Annotated[bool, typer.Option("--deep", help="Compute every table again, and compare.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Have made again what lost its files.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Catalogue and data folder belong together, though one of them is older.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Look whether every file of the catalogue is there, with its size, rows and statistics; exit code 1 if not."""
    from penstock.app import Warehouse

    with errors_told():
        with Warehouse(project, accept=accept) as warehouse, _shown() as progress:
            found = warehouse.verify(deep=deep, repair=repair, progress=progress)
        if json:
            print_json({"ok": found.ok, **vars(found)})
        else:
            _tell(found, repair)
        if not found.ok:
            raise typer.Exit(1)


def _tell(found: Verified, repair: bool) -> None:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    compared = {one.table: one for one in found.compared}
    for name in ("table", "files", "rows", "size", "", *(["computed again"] if compared else [])):
        shown.add_column(name, justify="right" if name in ("files", "rows", "size") else "left")
    for table in found.tables:
        bad = len(table.problems)
        state = Text(f"{bad} files are wrong", style="bold red") if bad else Text("ok", style="green")
        row: list[str | Text] = [
            table.table,
            f"{table.files:,}",
            f"{table.rows:,}",
            format_size(table.size_bytes),
            state,
        ]
        if compared:
            one = compared.get(table.table)
            if one is None or one.equal is None:
                style = "bold red" if one is not None and one.failed else "yellow"
                row.append(Text(f"not compared: {one.why}" if one is not None else "", style=style))
            elif one.equal:
                row.append(Text("the same", style="green"))
            else:
                row.append(Text(f"{one.extra:,} rows too many, {one.lacking:,} lacking", style="bold red"))
        shown.add_row(*row)
    out.print(shown)
    if compared:
        left = len(found.not_compared)
        said = f"{len(compared) - left} of {len(compared)} tables were compared" + (
            f", {left} were not" if left else ""
        )
        out.print(Text(said, style="yellow" if left else ""))
    for problem in found.problems[:_MOST]:
        old = "" if problem.live else " (of an older version)"
        out.print(Text(f"{problem.path} {problem.problem}{old}", style="red"), soft_wrap=True)
    if len(found.problems) > _MOST:
        out.print(f"and {len(found.problems) - _MOST} more; --json lists them all")
    if found.unknown:
        such = f", such as {found.unknown_such_as[0]}" if found.unknown_such_as else ""
        size = format_size(found.unknown_bytes)
        out.print(
            Text(
                f"{found.unknown:,} files ({size}) in the data folder are not in the catalogue{such}; they are left alone",
                style="dim",
            )
        )
    for line in found.repairs:
        out.print(Text(line, style="green"), soft_wrap=True)
    for line in found.lost:
        out.print(Text(line, style="bold red"), soft_wrap=True)
    if found.problems and not repair:
        out.print("put the files back, or type `penstock verify --repair` to have made again what can be")
