"""The default policy on workloads that are in no paper, against every policy of the paper and FIFO.

A scenario is drawn by its family and a seed, and run several times with other luck. Where the default is later than the best of
the others is told, with the standard error over the runs. Seeds below 1000 were used to choose the default: a claim should be
shown on others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from penstock.declare.problems import did_you_mean
from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.papers.scheduling.families import FAMILIES, drawn
from penstock.papers.scheduling.golab import check_policy
from penstock.scheduling.policies import DEFAULT
from penstock.sim.lean import measure
from penstock.sim.outcome import Row

BEST = "the best of the paper"
PLAIN, FIFO = "max-benefit", "fifo"
# Where the paper leaves something open (which of two equals goes first), each reading of it.
PAPER = (
    PLAIN,
    "max-benefit-youngest",
    "max-benefit-lookahead",
    "max-benefit / inherit=sum",
    "max-benefit / inherit=max-plus(1.5)",
    "max-benefit / chop=3",
    "edf",
    "edf-p",
    "edf-partitioned",
    "proportional(basic)",
    "proportional(all, aggressive)",
)
_NOISE = 3  # so many standard errors


@dataclass(frozen=True)
class WorkloadTask:
    family: str
    seed: int
    runs: int
    events: int
    policy: str
    others: tuple[str, ...]


def _tasks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
    p = parameters
    for name in p["families"]:
        if name not in FAMILIES:
            raise ExperimentError(
                f"families={name}: there is no such family; expected some of {', '.join(FAMILIES)}{did_you_mean(name, FAMILIES)}"
            )
    for key in ("runs", "events"):
        if p[key] < 1:
            raise ExperimentError(f"{key}={p[key]}: expected at least 1")
    for policy in (p["policy"], *p["against"]):
        check_policy("against" if policy != p["policy"] else "policy", policy)
    return [
        WorkloadTask(family, seed, p["runs"], p["events"], p["policy"], p["against"])
        for seed in seeds
        for family in p["families"]
    ]


def work(task: WorkloadTask) -> list[Row]:
    made = drawn(task.family, task.seed, task.events)
    # By policy, the lateness in each run.
    late: dict[str, list[float]] = {}
    loops: set[str] = set()
    for run in range(task.runs):
        for found in measure(made, (*task.others, task.policy), 1000 * task.seed + run):
            late.setdefault(found.policy, []).append(found.relative_lateness)
            loops.add(found.outcome.loop)
    paper = [policy for policy in task.others if policy != FIFO]
    against = {PLAIN: PLAIN, FIFO: FIFO} | ({BEST: min(paper, key=lambda each: fmean(late[each]))} if paper else {})
    rows: list[Row] = []
    for name, other in against.items():
        if other in late and other != task.policy:
            times, error = _compared(late[task.policy], late[other])
            rows.append(
                {
                    "experiment": "any-workload",
                    "family": task.family,
                    "seed": task.seed,
                    "against": name,
                    "policy": other,
                    "times_as_late": times,
                    "error": error,
                    "utilisation": made.utilisation,
                    "tracks": made.tracks,
                    "tables": len(made.tables),
                    "loop": ", ".join(sorted(loops)),
                    "relative_lateness": {policy: fmean(values) for policy, values in late.items()},
                }
            )
    return rows


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """How many times as late ours is, run by run, with the standard error."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return fmean(ratios), stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.0


def _judge(rows: list[Row]) -> list[Finding]:
    best = [row for row in rows if row["against"] == BEST]
    fifo = [row for row in rows if row["against"] == FIFO]
    plain = [row for row in rows if row["against"] == PLAIN]
    return [
        _nowhere("at most 5 % later than the best of the paper in every scenario, beyond noise", best, 0.05, 1.0),
        _nowhere("at most 2 % later in 95 % of them", best, 0.02, 0.95),
        _nowhere("never later than FIFO, beyond noise", fifo, 0.0, 1.0),
        _on_average("on average 10 % less late than plain Max Benefit", plain, 0.10),
    ]


def _nowhere(claim: str, rows: list[Row], margin: float, share: float) -> Finding:
    if not rows:
        return Finding(claim, None, "not measured")
    beyond = [row for row in rows if row["times_as_late"] - _NOISE * row["error"] > 1 + margin]
    beyond.sort(key=lambda row: row["times_as_late"], reverse=True)
    worst = max(rows, key=lambda row: row["times_as_late"])
    said = f"{len(rows) - len(beyond)} of {len(rows)}; at worst {_where(worst)}"
    if beyond:
        said += "; later beyond noise: " + ", ".join(map(_where, beyond[:12])) + " …" * (len(beyond) > 12)
    return Finding(claim, len(beyond) <= (1 - share) * len(rows), said)


def _where(row: Row) -> str:
    return f"{row['times_as_late'] - 1:+.1%} ±{row['error']:.1%} ({row['family']} {row['seed']}, {row['policy']})"


def _on_average(claim: str, rows: list[Row], least: float) -> Finding:
    if not rows:
        return Finding(claim, None, "not measured")
    logs = [log(row["times_as_late"]) for row in rows]
    mean, error = fmean(logs), stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else 0.0
    return Finding(claim, exp(mean) <= 1 - least, f"{exp(mean) - 1:+.1%} ±{error:.1%} in the geometric mean")


add(
    Experiment(
        "any-workload",
        "The default on workloads that are in no paper, against all policies of the paper and FIFO",
        {"families": tuple(FAMILIES), "policy": DEFAULT, "against": (*PAPER, FIFO), "runs": 3, "events": 10_000},
        _tasks,
        work,
        _judge,
        Picture("against", "times_as_late", "family"),
    )
)
