"""The experiments of Qu, Labrinidis, Mossé 2006, Sec. 4, with policies that the paper has not: admission control with on-demand refresh,
UNIT with the same, and the default of Penstock. All policies see the same queries and the same arrivals of updates for a seed.

The disk trace of the paper is not public; `penstock.papers.queries.workload` says what stands in for it. The parameters of the policies
were chosen on seed 1. A claim should be made on others: `--seeds 101..105`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import mean, stdev
from typing import Any

from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.papers.queries.processor import Served, guesses, serve
from penstock.papers.queries.workload import TRACES, VOLUMES, Load, Workload, workload
from penstock.queries.contract import NAIVE, Freshness, OutcomeWeights
from penstock.queries.policies import DEFAULT, POLICIES
from penstock.queries.policies.unit import DEFAULTS, Unit, UnitOnDemand, UnitSettings
from penstock.queries.situation import QueryPolicy
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
    "reads": LOAD.reads,
    # What a query needs, in percent: 1 / (1 + updates missing), of the item that lacks most.
    "freshness": 90.0,
    # What policies are told of times: off by a factor of so much (deviation of the logarithm), and as a predictor that begins cold.
    "error": 0.0,
    "cold": False,
    # The constants of UNIT, those of qmf are ours.
    **asdict(DEFAULTS),
}

# UNIT, and what is left of it without modulation of updates: feedback on C_flex alone.
VARIANTS: dict[str, Callable[[UnitSettings], QueryPolicy]] = {
    "unit": Unit,
    "unit+on-demand": UnitOnDemand,
    "unit-flex": lambda settings: Unit(settings, modulate=False),
    "unit-flex+on-demand": lambda settings: UnitOnDemand(settings, modulate=False),
}
KNOWN = (*POLICIES, *(name for name in VARIANTS if name not in POLICIES))


def policy_of(name: str, settings: UnitSettings) -> QueryPolicy:
    return VARIANTS[name](settings) if name in VARIANTS else POLICIES[name]()


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
        for key, known in (("policies", KNOWN), ("traces", TRACES), ("weightings", WEIGHTINGS)):
            for one in p[key]:
                if one not in known:
                    raise ExperimentError(f"{key}={one}: expected some of {'; '.join(known)}")
        try:
            _settings(p), Freshness.of_percent(p["freshness"])
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        return [UnitTask(name, p, trace, p["weightings"], seed) for trace in p["traces"] for seed in seeds]

    return made


def _runs(task: UnitTask) -> list[tuple[str, str, Served]]:
    """(policy, weighting, what came of it)."""
    p = task.parameters
    made, settings = _workload(p, task.trace, task.seed), _settings(p)
    times = [one[2] for one in made.queries]
    lag = Freshness.of_percent(p["freshness"]).lag or 0

    def run(policy: str, weights: OutcomeWeights) -> Served:
        guess = guesses(p["error"], p["cold"], task.seed, times, made.cost_s)
        return serve(made, policy_of(policy, settings), weights, task.seed, guess, lag)

    found = []
    for policy in p["policies"]:
        once = run(policy, NAIVE) if policy in INDIFFERENT else None
        for weighting in task.weightings:
            found.append((policy, weighting, once or run(policy, WEIGHTINGS[weighting])))
    return found


def _settings(p: Parameters) -> UnitSettings:
    return UnitSettings(**{one.name: p[one.name] for one in fields(UnitSettings)})


def _workload(p: Parameters, trace: str, seed: int) -> Workload:
    return workload(trace, seed, Load(**{one.name: p[one.name] for one in fields(Load)}))


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
    rivals = tuple(name for name in KNOWN if name != DEFAULT)
    found = [at_least_as_good(rows, DEFAULT, rivals, "all baselines")]
    if any(row["trace"].startswith("high-") for row in rows):
        found.append(clearly_better(rows, DEFAULT, rivals, 0.05))
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


def _judge_ablation(rows: list[Row]) -> list[Finding]:
    return [
        at_least_as_good(rows, "unit", ("unit-flex",), "unit without modulation of updates"),
        at_least_as_good(rows, "unit+on-demand", ("unit-flex+on-demand",), "the same without modulation of updates"),
        at_least_as_good(rows, "unit+on-demand", ("admission+on-demand",), "admission+on-demand"),
        at_least_as_good(rows, "unit+on-demand", ("unit",), "unit as it is without refreshes on demand"),
    ]


add(
    Experiment(
        "unit-ablation",
        "What is UNIT by each of its parts: refreshes on demand, feedback on C_flex, modulation of updates",
        {**COMMON, "policies": (*VARIANTS, "admission+on-demand"), "traces": TRACES, "weightings": ("naive",)},
        tasks("unit-ablation"),
        work,
        _judge_ablation,
        Picture("trace", "usm", "policy"),
    )
)


def _judge_predicted(rows: list[Row]) -> list[Finding]:
    found = margins(rows, DEFAULT, tuple(name for name in KNOWN if name != DEFAULT))
    if not found:
        return [Finding(f"{DEFAULT} with predicted times", None, "not measured")]
    least = min(gap for gap, _, _ in found.values())
    claim = f"with predicted times, {DEFAULT} is nowhere more than .01 behind any other policy"
    findings = [Finding(claim, least >= -0.01, f"least {least:+.3f} of {len(found)} settings")]
    high = margins([row for row in rows if row["trace"].startswith("high-")], DEFAULT, ("admission+on-demand",))
    if high:
        least = min(gap for gap, _, _ in high.values())
        claim = f"and at high volume at least .05 ahead of admission+on-demand, in all {len(high)} settings"
        findings.append(Finding(claim, least >= 0.05, f"least {least:+.3f}"))
    return findings


add(
    Experiment(
        "unit-predicted",
        "All settings, where policies know predictions: off by a factor of two, by a predictor that begins cold",
        {**COMMON, "traces": TRACES, "weightings": tuple(WEIGHTINGS), "error": 0.7, "cold": True},
        tasks("unit-predicted"),
        work,
        _judge_predicted,
        Picture("trace", "usm", "policy", "weighting"),
    )
)

# How much the constants matter: each alone, at a part of its default and at several times it.

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def _sensitivity_tasks(parameters: Parameters, seeds: Sequence[int]) -> list[Any]:
    found = []
    for one in tasks("unit-sensitivity")(parameters, seeds):
        for constant in fields(UnitSettings):
            for factor in FACTORS:
                value = one.parameters[constant.name] * factor
                if constant.name in ("victims", "c_forget"):
                    value = min(1.0, value)
                changed = {**one.parameters, constant.name: value}
                found.append((constant.name, factor, replace(one, parameters=changed)))
    return found


def _work_sensitivity(task: tuple[str, float, UnitTask]) -> list[Row]:
    return [{**row, "constant": task[0], "factor": task[1]} for row in work(task[2])]


def _judge_sensitivity(rows: list[Row]) -> list[Finding]:
    found = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = averages([row for row in rows if row["policy"] == policy], "usm", "trace", "constant", "factor")
        usual = {trace: own[trace, "grace_s", 1.0] for trace, _, _ in own}
        gains = {
            f"{constant} x {factor:g}": mean(own[t, constant, factor] - usual[t] for t in usual)
            for _, constant, factor in own
        }
        best = max(gains, key=lambda name: gains[name])
        claim = f"{policy}: no constant alone, at a quarter to four times its default, gains more than .02 on average"
        found.append(Finding(claim, gains[best] <= 0.02, f"{best}: {gains[best]:+.3f}"))
    return found


add(
    Experiment(
        "unit-sensitivity",
        "What the constants of UNIT change: grace, victims, C_du, C_uu, C_forget, and the longest stretch",
        {
            **COMMON,
            "policies": ("unit", "unit+on-demand"),
            "traces": ("low-unif", "med-unif", "high-unif"),
            "weightings": ("naive",),
        },
        _sensitivity_tasks,
        _work_sensitivity,
        _judge_sensitivity,
        Picture("factor", "usm", "constant", "policy"),
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
