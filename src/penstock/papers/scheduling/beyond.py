"""Beyond the paper: policies of our own against the best of the paper, on the paper's workloads.

Their parameters were chosen on seeds 1 to 70. A claim should be shown on others: `--seeds 301..305`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.declare.problems import did_you_mean
from penstock.papers.experiment import EXPERIMENTS, Experiment, ExperimentError, Finding, Picture, add, listed
from penstock.papers.scheduling.golab import (
    COMMON,
    LATENESS,
    PROPORTIONAL,
    Task,
    check_policy,
    deep_chains,
    mostly_better,
    never_worse,
    short_and_long,
    tasks,
    two_speeds,
    work,
)
from penstock.scheduling.policies import DEFAULT
from penstock.sim.outcome import Row, average

RESERVE = "reserve / max-benefit"
CHAIN = "max-benefit / inherit=chain"
PATIENT = "patient(lasts=2)"  # for an overload that lasts
CHOPPED = "max-benefit / chop=3"
CHAIN_CHOPPED = "max-benefit / inherit=chain / chop=3"


def _judge_reservation(rows: list[Row]) -> list[Finding]:
    return [
        _at_most(rows, "the default policy is at most 1.25 late at utilisation 0.9 with long slowdowns", DEFAULT, 1.25),
        _at_most(rows, "so is Max Benefit with the reservation", RESERVE, 1.25),
        never_worse(rows, "never more than 2 % later than Proportional (all, aggressive)", RESERVE, [PROPORTIONAL]),
        never_worse(rows, "never more than 2 % later than Max Benefit", RESERVE, ["max-benefit"]),
        mostly_better(rows, "less late than Proportional on average", RESERVE, PROPORTIONAL),
    ]


def _at_most(rows: list[Row], claim: str, policy: str, limit: float) -> Finding:
    there = [row for row in rows if (row["cycle"], row["utilisation"], row["policy"]) == (200.0, 0.9, policy)]
    if not there:
        return Finding(claim, None, "not measured")
    lateness, error = average(there, LATENESS)
    return Finding(claim, lateness <= limit, f"{lateness:.3f} ±{error:.3f}")


add(
    Experiment(
        "adaptive-reservation",
        "Tracks kept for short jobs by the slowdown seen now, on the workload of Fig. 9",
        {
            **COMMON,
            "policies": ("max-benefit", PROPORTIONAL, RESERVE, DEFAULT),
            "long_period": 10_000.0,
            "utilisation": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        },
        tasks("adaptive-reservation", short_and_long),
        work,
        _judge_reservation,
        Picture("utilisation", LATENESS, "policy", "cycle"),
    )
)
add(
    Experiment(
        "patient-overload",
        "A mild overload that lasts, on the workload of Fig. 5",
        {
            **COMMON,
            "slowdown": (1.0,),
            "policies": ("max-benefit", "edf-p", PATIENT, DEFAULT),
            "cheap_beta": 0.01,
            "utilisation": (0.95, 1.0, 1.05, 1.1, 1.15, 1.2),
        },
        tasks("patient-overload", two_speeds),
        work,
        lambda rows: [
            never_worse(rows, "never later than Max Benefit", PATIENT, ["max-benefit"], 0.01),
            never_worse(rows, "never later than EDF-P", PATIENT, ["edf-p"], 0.01),
            mostly_better(rows, "less late than Max Benefit on average", PATIENT, "max-benefit"),
            mostly_better(rows, "less late than EDF-P on average", PATIENT, "edf-p"),
        ],
        Picture("utilisation", LATENESS, "policy"),
    )
)
add(
    Experiment(
        "chain-inheritance",
        "Finishing chains before new ones are begun, on the workload of Fig. 8",
        {
            **COMMON,
            "policies": ("max-benefit", "max-benefit / inherit=sum", CHAIN, CHOPPED, CHAIN_CHOPPED),
            "jobs": 27,
            "utilisation": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        },
        tasks("chain-inheritance", deep_chains),
        work,
        lambda rows: [
            never_worse(rows, "never later than Max", CHAIN, ["max-benefit"], 0.005),
            mostly_better(rows, "less late than Max on average", CHAIN, "max-benefit"),
            never_worse(rows, "never later than Max, both chopped", CHAIN_CHOPPED, [CHOPPED], 0.005),
            mostly_better(rows, "less late than Max on average, both chopped", CHAIN_CHOPPED, CHOPPED),
            mostly_better(rows, "chopped, 3 % less late than Max on average", CHAIN_CHOPPED, "max-benefit", 0.03),
        ],
        Picture("utilisation", LATENESS, "policy", "cycle"),
    )
)


# One policy against the best of each figure

FIGURES = tuple(f"golab-fig{number}" for number in range(4, 12))


def _everywhere(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
    found: list[Any] = []
    levels = _levels(parameters["utilisation"])
    policy = parameters["policy"]
    check_policy("policy", policy)
    known = [each.name for each in EXPERIMENTS.values() if each.work is work]
    for name in parameters["figures"]:
        if name not in known:
            near = did_you_mean(name, known)
            raise ExperimentError(f"figures={name}: there is no such figure; expected some of {', '.join(known)}{near}")
        figure = EXPERIMENTS[name]
        own = {**figure.parameters, "events": parameters["events"]}
        # Last, where it is looked for, and once.
        own["policies"] = (*(each for each in own["policies"] if each != policy), policy)
        own["utilisation"] = levels or own["utilisation"]
        found += figure.tasks(own, seeds)
    return found


def _levels(text: str) -> tuple[float, ...]:
    """Levels of utilisation; none if each figure has its own."""
    try:
        return () if text == "own" else tuple(map(float, listed(text) or [text]))
    except ValueError:
        raise ExperimentError(f"utilisation={text}: expected own, or numbers such as 0.7,0.9") from None


def _work_everywhere(task: Task) -> list[Row]:
    return [
        {**row, "figure": row["experiment"], "workload": f"{row['experiment']}, cycle {row['cycle']:g}"}
        for row in work(task)
    ]


def _judge_everywhere(rows: list[Row]) -> list[Finding]:
    policy = rows[-1]["policy"] if rows else ""
    return [
        never_worse(
            [row for row in rows if row["figure"] == figure],
            f"{figure}: at most 2 % later than the best policy of the figure",
            policy,
            sorted({row["policy"] for row in rows if row["figure"] == figure} - {policy}),
        )
        for figure in dict.fromkeys(row["figure"] for row in rows)
    ]


add(
    Experiment(
        "one-for-all",
        "One policy against the best of the paper in every figure",
        {"figures": FIGURES, "policy": DEFAULT, "events": 40_000, "utilisation": "own"},
        _everywhere,
        _work_everywhere,
        _judge_everywhere,
        Picture("utilisation", LATENESS, "policy", "workload"),
    )
)
