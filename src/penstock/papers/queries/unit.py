"""The experiments of Qu, Labrinidis, Mossé 2006, Sec. 4, with policies that the paper has not: admission control with on-demand refresh,
UNIT with the same, and the default of Penstock. All policies see the same queries and the same arrivals of updates for a seed.

The disk trace of the paper is not public; `penstock.papers.queries.workload` says what stands in for it. The parameters of the policies
were chosen on seed 1. A claim should be made on others: `--seeds 101..105`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.papers.queries.processor import Served, serve
from penstock.papers.queries.workload import TRACES, VOLUMES, Load, workload
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.policies import DEFAULT, POLICIES
from penstock.sim.outcome import Row, averages, grouped

Parameters = Mapping[str, Any]

# Table 2, and Fig. 4: weights of success, rejection, missed deadline, stale answer.
WEIGHTINGS = {
    "naive": NAIVE,
    "high C_r < 1": OutcomeWeights(1, 0.5, 0.1, 0.1),
    "high C_fm < 1": OutcomeWeights(1, 0.1, 0.5, 0.1),
    "high C_fs < 1": OutcomeWeights(1, 0.1, 0.1, 0.5),
    "high C_r > 1": OutcomeWeights(1, 5, 1, 1),
    "high C_fm > 1": OutcomeWeights(1, 1, 5, 1),
    "high C_fs > 1": OutcomeWeights(1, 1, 1, 5),
}
TABLE_2 = tuple(WEIGHTINGS)[1:]
# What these do does not depend on the weights.
INDIFFERENT = ("immediate", "on-demand", "qmf")
PAPER = (*INDIFFERENT, "unit")
BASELINES = tuple(name for name in POLICIES if name != DEFAULT)

LOAD = Load()
COMMON: dict[str, Any] = {
    "policies": tuple(POLICIES),
    "scale": LOAD.scale,
    "load": LOAD.load,
    "skew": LOAD.skew,
    "bias": LOAD.bias,
    "finest_s": LOAD.finest_s,
    "tail": LOAD.tail,
    "items": LOAD.items,
}


@dataclass(frozen=True)
class UnitTask:
    experiment: str
    parameters: dict[str, Any]
    trace: str
    weightings: tuple[str, ...]
    seed: int


def tasks(name: str) -> Callable[[Parameters, Sequence[int]], list[Any]]:
    def made(parameters: Parameters, seeds: Sequence[int]) -> list[Any]:
        p = dict(parameters)
        for key, known in (("policies", POLICIES), ("traces", TRACES), ("weightings", WEIGHTINGS)):
            for one in p[key]:
                if one not in known:
                    raise ExperimentError(f"{key}={one}: expected some of {'; '.join(known)}")
        return [UnitTask(name, p, trace, p["weightings"], seed) for trace in p["traces"] for seed in seeds]

    return made


def _runs(task: UnitTask) -> list[tuple[str, str, Served]]:
    """(policy, weighting, what came of it)."""
    p = task.parameters
    load = Load(p["items"], p["scale"], p["skew"], p["bias"], p["finest_s"], p["load"], p["tail"])
    made = workload(task.trace, task.seed, load)
    found = []
    for policy in p["policies"]:
        once = serve(made, POLICIES[policy](), NAIVE, task.seed) if policy in INDIFFERENT else None
        for weighting in task.weightings:
            served = once or serve(made, POLICIES[policy](), WEIGHTINGS[weighting], task.seed)
            found.append((policy, weighting, served))
    return found


def work(task: UnitTask) -> list[Row]:
    volume, _, distribution = task.trace.partition("-")
    return [
        {
            "experiment": task.experiment,
            "trace": task.trace,
            "distribution": distribution,
            "update_load": VOLUMES[volume][1],
            "weighting": weighting,
            "policy": policy,
            "seed": task.seed,
            **{key: value for key, value in task.parameters.items() if not isinstance(value, tuple)},
            "usm": served.usm(WEIGHTINGS[weighting]),
            "success": served.success / served.queries,
            "rejected": served.rejected / served.queries,
            "missed": served.missed / served.queries,
            "stale": served.stale / served.queries,
            "busy": served.busy,
            "update_busy": served.update_busy,
        }
        for policy, weighting, served in _runs(task)
    ]


# What is claimed


def margins(rows: list[Row], policy: str, others: Sequence[str]) -> dict[tuple[str, str], tuple[float, float, str]]:
    """By trace and weighting: how much better a policy is than the best of the others, the standard error of that over paired seeds, and
    which one that is."""
    found = {}
    for (trace, weighting), some in grouped(rows, "trace", "weighting"):
        means = averages(some, "usm", "policy")
        rivals = [name for name in others if (name,) in means and name != policy]
        if (policy,) not in means or not rivals:
            continue
        best = max(rivals, key=lambda name: means[(name,)])
        by = {(row["policy"], row["seed"]): row["usm"] for row in some}
        gaps = [by[policy, seed] - by[best, seed] for seed in dict.fromkeys(row["seed"] for row in some)]
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        found[trace, weighting] = (mean(gaps), error, best)
    return found


def at_least_as_good(rows: list[Row], policy: str, others: Sequence[str], who: str) -> Finding:
    """A tie within one standard error counts."""
    found = margins(rows, policy, others)
    worse = {key: one for key, one in found.items() if one[0] < -one[1]}
    claim = f"{policy} is at least as good as the best of {who} in all {len(found)} settings"
    least = min(found.items(), key=lambda one: one[1][0], default=None)
    if least is None:
        return Finding(claim, None, "not measured")
    (trace, weighting), (gap, error, best) = least
    text = f"worse in {len(worse)}; least margin {gap:+.3f} ±{error:.3f} to {best} in {trace}, {weighting}"
    return Finding(claim, not worse, text)


def clearly_better(rows: list[Row], policy: str, others: Sequence[str], by: float) -> Finding:
    found = {key: one for key, one in margins(rows, policy, others).items() if key[0].startswith("high-")}
    claim = f"{policy} is better by {by:g} or more in the high-volume settings"
    if not found:
        return Finding(claim, None, "not measured")
    (trace, weighting), (gap, error, best) = min(found.items(), key=lambda one: one[1][0])
    return Finding(claim, gap >= by, f"least {gap:+.3f} ±{error:.3f} over {best} in {trace}, {weighting}")


def _ours(rows: list[Row]) -> list[Finding]:
    found = [at_least_as_good(rows, DEFAULT, BASELINES, "all baselines")]
    if any(row["trace"].startswith("high-") for row in rows):
        found.append(clearly_better(rows, DEFAULT, BASELINES, 0.05))
    return found


def _between(rows: list[Row], distribution: str, low: float, high: float) -> Finding:
    means = averages([row for row in rows if row["distribution"] == distribution], "usm", "trace", "policy")
    gaps = [
        means[trace, "unit"] - value
        for (trace, name), value in means.items()
        if name in INDIFFERENT and (trace, "unit") in means
    ]
    claim = (
        f"paper: with {distribution} updates, unit is better than immediate, on-demand and qmf by {low:g} to {high:g}"
    )
    if not gaps:
        return Finding(claim, None, "not measured")
    return Finding(claim, min(gaps) >= low, f"{min(gaps):+.3f} to {max(gaps):+.3f}")


def _gap(
    rows: list[Row], distribution: str, claim: str, one: str, other: str, holds: Callable[[float], bool]
) -> Finding:
    """About one policy less another, over the traces of a distribution."""
    means = averages([row for row in rows if row["distribution"] == distribution], "usm", "trace", "policy")
    gaps = [means[t, one] - means[t, other] for t, name in means if name == one and (t, other) in means]
    if not gaps:
        return Finding(claim, None, "not measured")
    return Finding(claim, all(holds(gap) for gap in gaps), f"{min(gaps):+.3f} to {max(gaps):+.3f}")


def _judge_fig4(rows: list[Row]) -> list[Finding]:
    return [
        at_least_as_good(rows, "unit", INDIFFERENT, "immediate, on-demand and qmf (paper)"),
        _between(rows, "unif", 0.172, 0.386),
        _between(rows, "pos", 0.129, 0.282),
        _between(rows, "neg", 0.056, 0.588),
        _gap(
            rows,
            "unif",
            "paper: qmf is worse than on-demand with unif updates",
            "qmf",
            "on-demand",
            lambda gap: gap < 0,
        ),
        _gap(
            rows,
            "pos",
            "paper: immediate is about as good as on-demand with pos updates",
            "immediate",
            "on-demand",
            lambda gap: abs(gap) < 0.05,
        ),
        _gap(
            rows,
            "neg",
            "paper: on-demand comes close to unit with neg updates",
            "on-demand",
            "unit",
            lambda gap: gap > -0.1,
        ),
        at_least_as_good(
            rows, "unit+on-demand", ("admission+on-demand",), "admission+on-demand (what modulation adds)"
        ),
        *_ours(rows),
    ]


def _judge_fig5(rows: list[Row]) -> list[Finding]:
    means = averages(rows, "usm", "weighting", "policy")
    found = [at_least_as_good(rows, "unit", INDIFFERENT, "immediate, on-demand and qmf (paper)")]
    for size in ("< 1", "> 1"):
        kinds = [f"high {cost} {size}" for cost in ("C_r", "C_fm", "C_fs")]
        qmf = [means.get((kind, "qmf")) for kind in kinds]
        if None not in qmf:
            found.append(
                Finding(
                    f"paper: qmf is worst with high C_r, penalties {size}",
                    qmf[0] == min(one for one in qmf if one is not None),
                    ", ".join(f"{kind} {value:.3f}" for kind, value in zip(kinds, qmf, strict=True)),
                )
            )
        for name in ("immediate", "on-demand"):
            own = [means.get((kind, name)) for kind in kinds]
            if None not in own:
                found.append(
                    Finding(
                        f"paper: {name} is worst with high C_fm, penalties {size}",
                        own[1] == min(one for one in own if one is not None),
                        ", ".join(f"{kind} {value:.3f}" for kind, value in zip(kinds, own, strict=True)),
                    )
                )
    return [*found, *_ours(rows)]


def _judge_fig6(rows: list[Row]) -> list[Finding]:
    unit = averages([row for row in rows if row["policy"] == "unit"], "success", "weighting")
    others = averages([row for row in rows if row["policy"] in INDIFFERENT], "success", "policy")
    rejected = averages([row for row in rows if row["policy"] in PAPER], "rejected", "policy")
    if not unit or len(others) < 3:
        return [Finding("paper: unit succeeds most often under all weights", None, "not measured")]
    return [
        Finding(
            "paper: unit succeeds most often under all weights",
            min(unit.values()) > max(others.values()),
            f"unit {min(unit.values()):.3f} to {max(unit.values()):.3f}, best other {max(others.values()):.3f}",
        ),
        Finding(
            "paper: what unit fails by changes with the weights",
            _spread(rows, "unit") > 0.02,
            f"its ratios change by up to {_spread(rows, 'unit'):.3f}",
        ),
        Finding(
            "paper: qmf rejects more than immediate and on-demand, which reject nothing",
            rejected[("qmf",)] > rejected[("immediate",)] == rejected[("on-demand",)] == 0,
            f"qmf rejects {rejected[('qmf',)]:.3f}",
        ),
        *_ours(rows),
    ]


def _spread(rows: list[Row], policy: str) -> float:
    found = 0.0
    for kind in ("success", "rejected", "missed", "stale"):
        by = averages([row for row in rows if row["policy"] == policy], kind, "weighting")
        found = max(found, max(by.values()) - min(by.values()))
    return found


for figure, title, traces, weightings, judge, picture in (
    (
        "unit-fig4",
        "Success ratio (naive USM) by volume and distribution of updates",
        TRACES,
        ("naive",),
        _judge_fig4,
        Picture("update_load", "usm", "policy", "distribution"),
    ),
    (
        "unit-fig5",
        "USM with the penalties of Table 2",
        ("med-unif",),
        TABLE_2,
        _judge_fig5,
        Picture("weighting", "usm", "policy"),
    ),
    (
        "unit-fig6",
        "Success ratio with penalties below 1, and what queries fail by",
        ("med-unif",),
        TABLE_2[:3],
        _judge_fig6,
        Picture("weighting", "success", "policy"),
    ),
    (
        "unit-all",
        "All nine update traces with all weights: the default against every baseline",
        TRACES,
        tuple(WEIGHTINGS),
        _ours,
        Picture("trace", "usm", "policy", "weighting"),
    ),
):
    add(
        Experiment(
            figure,
            title,
            {**COMMON, "traces": traces, "weightings": weightings},
            tasks(figure),
            work,
            judge,
            picture,
        )
    )


# Fig. 3: which updates are done


def _work_fig3(task: UnitTask) -> list[Row]:
    """By tenths of the items, from those that are read least to those that are read most: reads, updates that came, updates that were done."""
    rows: list[Row] = []
    base = {"experiment": task.experiment, "trace": task.trace, "seed": task.seed}
    for policy, _, served in _runs(task):
        order = sorted(range(len(served.reads)), key=lambda item: (served.reads[item], item))
        for tenth in range(10):
            some = order[len(order) * tenth // 10 : len(order) * (tenth + 1) // 10]
            counts = {
                "reads": served.reads,
                "updates that came": served.arrived,
                f"updates by {policy}": served.updated,
            }
            for what, count in counts.items():
                rows.append(
                    {**base, "tenth": tenth + 1, "count_of": what, "count": float(sum(count[item] for item in some))}
                )
    return list({(row["tenth"], row["count_of"]): row for row in rows}.values())


def _judge_fig3(rows: list[Row]) -> list[Finding]:
    found = []
    for trace, policy in ((t, p) for t in ("med-unif", "med-neg") for p in ("unit", DEFAULT)):
        by = averages([row for row in rows if row["trace"] == trace], "count", "count_of", "tenth")
        done = [by.get((f"updates by {policy}", tenth)) for tenth in range(1, 11)]
        came = [by.get(("updates that came", tenth)) for tenth in range(1, 11)]
        if None in done or None in came:
            continue
        kept = [float(d or 0) / max(1.0, float(c or 0)) for d, c in zip(done, came, strict=True)]
        whole = sum(float(d or 0) for d in done) / sum(float(c or 0) for c in came)
        paper = "paper: " if policy == "unit" else ""
        found.append(
            Finding(
                f"{paper}{trace}: {policy} keeps more of the updates of the tenth that is read most than of that read least",
                kept[9] > kept[0],
                f"keeps {kept[9]:.0%} against {kept[0]:.0%}",
            )
        )
        if trace == "med-neg" and policy == "unit":
            found.append(
                Finding("paper: med-neg: unit drops more than 95 % of the updates", whole < 0.05, f"{1 - whole:.0%}")
            )
    return found


add(
    Experiment(
        "unit-fig3",
        "Which updates are done, against which items are read",
        {**COMMON, "policies": ("unit", DEFAULT), "traces": ("med-unif", "med-neg"), "weightings": ("naive",)},
        tasks("unit-fig3"),
        _work_fig3,
        _judge_fig3,
        Picture("tenth", "count", "count_of", "trace"),
    )
)
