"""The last run of a flow, for people."""

from __future__ import annotations

from rich.table import Table

from penstock.cli.common import out
from penstock.flows.report import FlowReport


def print_report(report: FlowReport) -> None:
    activities = Table(box=None, header_style="bold", pad_edge=False)
    activities.add_column("activity")
    activities.add_column("step", style="dim")
    for column in ("rows in", "rows out", "rejected", "selectivity", "CPU"):
        activities.add_column(column, justify="right")
    for run in report.activities:
        rejected = f"{run.rejected:,} ({run.bad})" if run.rejected else ""
        share = f"{run.selectivity:.3g}" if run.selectivity is not None else ""
        activities.add_row(
            run.name, run.step, f"{run.rows_in:,}", f"{run.rows_out:,}", rejected, share, f"{run.cpu_s:.3f} s"
        )
    out.print(activities)
    out.print()
    steps = Table(box=None, header_style="bold", pad_edge=False)
    steps.add_column("step")
    for column in ("time", "CPU", "shuffled", "staged"):
        steps.add_column(column, justify="right")
    steps.add_column("where")
    for step in report.steps:
        where = f"{step.place or ''}{' (kept from an earlier try)' if step.reused else ''}".strip()
        staged = size(step.staged_bytes) if step.staged_bytes else ""
        steps.add_row(
            step.name, f"{step.seconds:.2f} s", f"{step.cpu_s:.2f} s", size(step.shuffle_bytes), staged, where
        )
    out.print(steps)
    out.print(
        f"{report.job}: {report.seconds:.2f} s, {report.cpu_s:.2f} s of CPU, {report.rejected:,} rows rejected; staged at the "
        f"most {size(report.peak_memory_bytes)} in memory, {size(report.peak_disk_bytes)} on disk"
    )


def size(bytes_: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} TB"
