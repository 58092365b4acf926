"""What a run of a flow was: rows of every activity, time of every step, memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

# Which rows a run works on: all, or of sources that grow only what is new.
ALL, NEW, MIXED = "all rows", "new rows", "all rows of some partitions and new rows of others"


def fact_of(flow: str, extent: str = "") -> str:
    """By which name the store knows the last run of a flow; or the last of those on all rows, or on new rows."""
    return f"flow {flow}{f' on {extent}' if extent else ''}"


@dataclass(frozen=True)
class ActivityRun:
    name: str
    kind: str
    step: str  # the step of the plan that computed it
    rows_in: int
    rows_out: int
    # Rows that broke its rule, and what the rule says; of activities without one, 0.
    rejected: int = 0
    bad: str | None = None
    # Its share of what its step took, by rows and estimated work: Spark fuses activities into one loop.
    cpu_s: float = 0.0

    @property
    def selectivity(self) -> float | None:
        return self.rows_out / self.rows_in if self.rows_in else None


@dataclass(frozen=True)
class StepRun:
    name: str
    seconds: float
    cpu_s: float
    shuffle_bytes: int
    place: str | None = None  # where its rows are staged
    staged_bytes: int = 0
    reused: bool = False  # kept from an earlier try
    # What was staged: so many rows, of these columns (none: all).
    staged_rows: int = 0
    staged_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlowReport:
    flow: str
    job: str
    seconds: float
    activities: tuple[ActivityRun, ...]
    steps: tuple[StepRun, ...]
    # Of staged intermediates, at the same time, at the most: as sampled.
    peak_memory_bytes: int = 0
    peak_disk_bytes: int = 0
    # Which rows of its sources it worked on.
    extent: str = ALL
    # Of what is staged in memory, on average over the run.
    average_memory_bytes: float = 0.0
    # What its plan said: of the frontier's point that was taken.
    predicted_s: float = 0.0
    predicted_cpu_s: float = 0.0
    predicted_peak_bytes: float = 0.0

    @property
    def rejected(self) -> int:
        return sum(activity.rejected for activity in self.activities)

    @property
    def selectivities(self) -> dict[str, float]:
        """Rows out for a row in, by activity; not of parts, whose rows are groups of others, too."""
        known = ((run.name, run.selectivity) for run in self.activities if run.kind != "part")
        return {name: selectivity for name, selectivity in known if selectivity is not None}

    @property
    def cpu_s(self) -> float:
        return sum(step.cpu_s for step in self.steps)

    @property
    def shuffle_bytes(self) -> int:
        return sum(step.shuffle_bytes for step in self.steps)

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def load(data: dict[str, Any]) -> FlowReport:
    """What `dump` gave."""
    return FlowReport(
        **{
            **data,
            "activities": tuple(ActivityRun(**each) for each in data["activities"]),
            "steps": tuple(
                StepRun(**{**each, "staged_columns": tuple(each.get("staged_columns", ()))}) for each in data["steps"]
            ),
        }
    )


def total(reports: Iterable[FlowReport]) -> FlowReport:
    """Several runs of one flow, one after the other, as one: those of the partitions of a job. Each was planned by itself, so
    that one may have steps that another lacks."""
    reports = tuple(reports)
    activities: dict[str, ActivityRun] = {}
    steps: dict[str, StepRun] = {}
    for report in reports:
        for run in report.activities:
            old = activities.get(run.name)
            activities[run.name] = run if old is None else _added(old, run)
        for step in report.steps:
            before = steps.get(step.name)
            steps[step.name] = step if before is None else _then(before, step)
    return FlowReport(
        reports[0].flow,
        reports[0].job,
        sum(report.seconds for report in reports),
        tuple(activities.values()),
        tuple(steps.values()),
        max(report.peak_memory_bytes for report in reports),
        max(report.peak_disk_bytes for report in reports),
        reports[0].extent if len({report.extent for report in reports}) == 1 else MIXED,
        sum(report.average_memory_bytes * report.seconds for report in reports)
        / (sum(report.seconds for report in reports) or 1.0),
        sum(report.predicted_s for report in reports),
        sum(report.predicted_cpu_s for report in reports),
        max(report.predicted_peak_bytes for report in reports),
    )


def _added(old: ActivityRun, run: ActivityRun) -> ActivityRun:
    return replace(
        run,
        rows_in=old.rows_in + run.rows_in,
        rows_out=old.rows_out + run.rows_out,
        rejected=old.rejected + run.rejected,
        cpu_s=old.cpu_s + run.cpu_s,
    )


def _then(before: StepRun, step: StepRun) -> StepRun:
    return replace(
        step,
        seconds=before.seconds + step.seconds,
        cpu_s=before.cpu_s + step.cpu_s,
        shuffle_bytes=before.shuffle_bytes + step.shuffle_bytes,
        place=step.place or before.place,
        staged_bytes=max(before.staged_bytes, step.staged_bytes),
        staged_rows=max(before.staged_rows, step.staged_rows),
        reused=before.reused or step.reused,
    )
