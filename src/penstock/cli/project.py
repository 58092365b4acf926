"""Commands about the project itself: init, check, demo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import JsonOption, ProjectOption, err, errors_told, out, print_json, service_parts
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app import Warehouse
    from penstock.cli.netops.screen import DemoSummary
    from penstock.engine.runtime import Runtime


def register(app: typer.Typer) -> None:
    app.command()(init)
    app.command()(check)
    app.command()(demo)


def init(
    folder: Annotated[Path, typer.Argument(help="The new project's folder.")] = Path("penstock-project"),
    json: JsonOption = False,
) -> None:
    """Make a small working project to start from."""
    from penstock.cli.starter import write_starter

    with errors_told():
        files = write_starter(folder, folder.resolve().name)
        if json:
            print_json({"folder": str(folder), "files": [str(file) for file in files]})
            return
        out.print(f"Made [bold]{folder}[/] with {len(files)} files. Next:")
        out.print(f"  cd {folder}\n  penstock check\n  penstock run --until-idle\n  penstock status", markup=False)


def check(project: ProjectOption = Path(), json: JsonOption = False) -> None:
    """Find what is wrong with the project before anything runs."""
    from penstock.app import check_with_flows

    with errors_told():
        problems, flows = check_with_flows(project)
        wrong = [problem for problem in problems if problem.severity == "error"]
        if json:
            how = {name: following.words for name, following in flows.items()}
            print_json({"ok": not wrong, "problems": [asdict(problem) for problem in problems], "flows": how})
        elif problems:
            for problem in problems:
                colour = "red" if problem.severity == "error" else "yellow"
                out.print(f"[bold {colour}]{problem.severity}[/] [bold]{problem.where}[/]", end=" ")
                out.print(problem.message, markup=False, soft_wrap=True)
        if not wrong and not json:
            for name, following in flows.items():
                out.print(f"flow {name}: {following.words}", markup=False, soft_wrap=True)
            out.print("[green]ok[/]: the project can run")
        if wrong:
            raise typer.Exit(1)


def demo(
    folder: Annotated[Path | None, typer.Argument(help="Where to make the demo's project.")] = None,
    seconds: Annotated[float, typer.Option(help="How long the feeds deliver.")] = 60.0,
    speed: Annotated[float, typer.Option(help="How much faster than real time the feeds run.")] = 60.0,
    console: Annotated[
        bool, typer.Option(help="Serve the pages, also after the last update, until it is stopped.")
    ] = True,
    port: Annotated[int, typer.Option(help="Of the pages; 0 for any free one.", min=0, max=65535)] = 0,
    json: JsonOption = False,
) -> None:
    """A network-operations warehouse, live: feeds with late files and an outage, a dozen tables, and pages to look at."""
    from penstock.cli.demo import render_summary, run_demo
    from penstock.cli.run import stop_on_signals

    def tell(summary: DemoSummary) -> None:
        if json:
            print_json(summary)
        else:
            out.print(render_summary(summary))

    def stay(summary: DemoSummary, runtime: Runtime) -> None:
        tell(summary)
        err.print("\nThe feeds go on, slower, and so do the pages, until Ctrl-C.")
        stop_on_signals(runtime)
        runtime.run()

    @contextmanager
    def pages(warehouse: Warehouse) -> Iterator[None]:
        with service.watched(warehouse, port=port) as server:
            server.start()
            err.print(f"Look at it: {server.url}", markup=False)
            yield

    with errors_told():
        shown = console and not json
        try:
            service: Any = service_parts() if shown else None
        except PenstockError as error:
            err.print(f"There are no pages to look at: {error}", markup=False)
            shown = False
        summary = run_demo(
            folder,
            seconds=seconds,
            speed=speed,
            console=err,
            pages=pages if shown else None,
            afterwards=stay if shown else None,
        )
        if not shown:
            tell(summary)
