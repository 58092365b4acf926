"""Flows while they run: a bar for each on a terminal, below the lines that scroll by; elsewhere a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.flow_report import size

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
