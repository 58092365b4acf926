"""The experiments of Golab, Johnson, Shkapenyuk 2011, Sec. 4, with the corrections that reproducing them needs: random
phases, utilisation with the mean slowdown, and slowdown cycles of a stated length (20 and 200 periods).

Parameters are those of the paper's Table 2. A point of the paper is a million events; the default here is fewer, set
`events=1000000` for as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from penstock.model.grain import parse_grain
from penstock.model.time import SECOND_US
from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.scheduling.policies import PolicyNameError, find_policy
from penstock.sim.lean import measure
from penstock.sim.outcome import Row, averages, grouped
from penstock.sim.scenario import Scenario, SimTable, Slowdown, loaded_to

Parameters = Mapping[str, Any]
Build = Callable[[Parameters], list[SimTable]]

COMMON: dict[str, Any] = {
    "tracks": 4,
    "jobs": 30,
    "alpha": 1.0,
    "beta": 0.1,
    "period": 100.0,
    "jitter": 0.5,
    "slowdown": (3.0,),
    "cycle": (20.0, 200.0),
    "events": 100_000,
    # Told, or learned from finished updates as live.
    "costs": "known",
    "partition": "day",
}


@dataclass(frozen=True)
class Task:
    experiment: str
    build: Build
    parameters: dict[str, Any]
    slowdown: float
    cycle: float
    utilisation: float
    seed: int


def slow(factor: float, cycle_s: float) -> Slowdown | None:
    """Slow for half of `cycle_s`, then normal so long that updates take twice the normal time on average, as in Fig. 4. For
    the factor 3 that is a cycle of `cycle_s`. If the length of a cycle were fixed instead, a machine that is slower would be
    slow for a shorter time, and lateness would fall with the factor."""
    return None if factor <= 1 else Slowdown(factor, cycle_s * (factor - 1) / 2, 1 / (factor - 1))


def scenario(task: Task) -> Scenario:
    p = task.parameters
    slowdown = slow(task.slowdown, task.cycle * p["period"])
    tables = loaded_to(task.build(p), task.utilisation, p["tracks"], slowdown)
    made = Scenario(
        tables,
        task.experiment,
        p["tracks"],
        jitter=p["jitter"],
        slowdown=slowdown,
        costs=p["costs"],
        partition=p["partition"],
    )
    rate = sum(2 * SECOND_US / period for period in made.graph.periods_us.values())
    horizon = p["events"] / rate
    if slowdown is not None:  # whole cycles, or the average is not the stated one
        horizon = ceil(horizon / slowdown.cycle_s) * slowdown.cycle_s
    return replace(made, horizon_s=horizon)


def work(task: Task) -> list[Row]:
    p = task.parameters
    made = scenario(task)
    return [
        {
            "experiment": task.experiment,
            "slowdown": task.slowdown,
            "cycle": task.cycle,
            "utilisation": task.utilisation,
            "policy": found.policy,
            "seed": task.seed,
            **{key: p[key] for key in p if key not in ("slowdown", "cycle", "utilisation", "policies")},
            "relative_lateness": found.relative_lateness,
            "weighted_staleness_s": found.outcome.weighted_s,
            "busy": found.outcome.utilisation,
            "events_run": found.outcome.events,
            "loop": found.outcome.loop,
        }
        for found in measure(made, p["policies"], task.seed)
    ]


def tasks(name: str, build: Build) -> Callable[[Parameters, Sequence[int]], list[Any]]:
    def made(parameters: Parameters, seeds: Sequence[int]) -> list[Any]:
        p = dict(parameters)
        _check(p)
        found: list[Any] = [
            Task(name, build, p, factor, cycle, utilisation, seed)
            for factor in p["slowdown"]
            for cycle in (p["cycle"] if factor > 1 else p["cycle"][:1])
            for utilisation in p["utilisation"]
            for seed in seeds
        ]
        for task in found:
            if task.seed == seeds[0]:  # seeds change nothing of it
                scenario(task).check()
        return found

    return made


_COUNTS = ("tracks", "jobs", "events")
_POSITIVE = ("period", "long_period", "cycle", "utilisation")


def _check(p: Parameters) -> None:
    """What would fail in the midst of a sweep, or be taken for something else; a scenario checks the rest."""
    if p["costs"] not in ("known", "learned"):
        raise ExperimentError(f"costs={p['costs']}: expected known or learned")
    try:
        parse_grain(p["partition"])
    except ValueError as error:
        raise ExperimentError(f"partition={p['partition']}: {error}") from None
    for key, given in p.items():
        for value in given if isinstance(given, tuple) else (given,):
            expected = ""
            if key in _COUNTS and value < 1:
                expected = "at least 1"
            elif key in _POSITIVE and value <= 0:
                expected = "more than 0"
            elif key == "slowdown" and value != 1 and value < 2:
                expected = "1 for none, or at least 2: updates take twice their time on average"
            if expected:
                raise ExperimentError(f"{key}={value:g}: expected {expected}")
    for policy in p["policies"]:
        check_policy("policies", policy)


def check_policy(key: str, policy: str) -> None:
    try:
        find_policy(policy)
    except PolicyNameError as error:
        raise ExperimentError(f"{key}={policy}: {error}") from None


# The workloads


def uniform(p: Parameters) -> list[SimTable]:
    return [_table(p, f"t{n:02d}") for n in range(p["jobs"])]


def two_speeds(p: Parameters) -> list[SimTable]:
    """Half of the tables are cheap to update."""
    half = p["jobs"] // 2
    cheap = [replace(_table(p, f"cheap{n:02d}"), beta=p["cheap_beta"]) for n in range(p["jobs"] - half)]
    return [*(_table(p, f"dear{n:02d}") for n in range(half)), *cheap]


def two_priorities(p: Parameters) -> list[SimTable]:
    return [_table(p, f"t{n:02d}", priority=(1.0, p["high"])[n % 2]) for n in range(p["jobs"])]


def deep_chains(p: Parameters) -> list[SimTable]:
    """Chains of three: a base of hardly any priority, a view of priority 1, and one of 1, 10 or 100."""
    tables = []
    for n in range(p["jobs"] // 3):
        tables.append(_table(p, f"base{n:02d}", priority=0.001))
        tables.append(_table(p, f"view{n:02d}", f"base{n:02d}", priority=1.0))
        tables.append(_table(p, f"top{n:02d}", f"view{n:02d}", priority=(1.0, 10.0, 100.0)[n % 3]))
    return tables


def short_and_long(p: Parameters) -> list[SimTable]:
    """Periods of 100 and 10,000, with priorities that make them equally stale at the end of a period."""
    half = p["jobs"] // 2
    ratio = p["long_period"] / p["period"]
    long = [replace(_table(p, f"long{n:02d}"), period_s=p["long_period"]) for n in range(p["jobs"] - half)]
    return [*(_table(p, f"short{n:02d}", priority=ratio) for n in range(half)), *long]


def chains_of_two(p: Parameters) -> list[SimTable]:
    tables = []
    for n in range(p["jobs"] // 2):
        tables.append(_table(p, f"base{n:02d}", priority=1.0))
        tables.append(_table(p, f"view{n:02d}", f"base{n:02d}", priority=p["high"]))
    return tables


def _table(p: Parameters, name: str, *sources: str, priority: float = 1.0) -> SimTable:
    return SimTable(name, sources, p["period"], priority=priority, alpha_s=p["alpha"], beta=p["beta"])


# What is claimed

LATENESS = "relative_lateness"


def _by(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], float]:
    return averages(rows, LATENESS, *keys)


_POINT = ("cycle", "slowdown", "utilisation")


def _paired(rows: list[Row], better: str, worse: Sequence[str]) -> dict[tuple[Any, ...], list[float]]:
    """At every point and for each of the other policies: how many times as late ours is, seed by seed."""
    late = {(*(row[key] for key in (*_POINT, "seed")), row["policy"]): row[LATENESS] for row in rows}
    found: dict[tuple[Any, ...], list[float]] = {}
    for (*point, seed, policy), theirs in late.items():
        ours = late.get((*point, seed, better))
        if policy in worse and ours is not None:
            found.setdefault((*point, policy), []).append(ours / theirs)
    return found


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """With its standard error, as far as several values tell it."""
    return fmean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def never_worse(rows: list[Row], claim: str, better: str, worse: Sequence[str], margin: float = 0.02) -> Finding:
    """One policy against others at every point, with paired seeds; small differences do not count."""
    points = {point: _mean(ratios) for point, ratios in _paired(rows, better, worse).items()}
    if not points:
        return Finding(claim, None, "no point to compare")
    held = sum(ratio <= 1 + margin for ratio, _ in points.values())
    (cycle, _, utilisation, policy), (ratio, error) = max(points.items(), key=lambda point: point[1][0])
    where = f" (utilisation {utilisation:g}, cycle {cycle:g}, {policy})" if ratio > 1 else ""
    said = f"{held} of {len(points)} points within {margin * 100:g} %; at worst {ratio - 1:+.1%} ±{error:.1%}{where}"
    return Finding(claim, held == len(points), said)


def mostly_better(rows: list[Row], claim: str, better: str, worse: str, least: float = 0.0) -> Finding:
    """The geometric mean of the ratios at points where there is any lateness, with the standard error over the seeds."""
    late = {(*point, worse) for *point, _ in _late_points(rows, worse)}
    paired = [ratios for point, ratios in _paired(rows, better, [worse]).items() if point in late]
    if not paired:
        return Finding(claim, None, "no point with lateness to compare")
    # For each seed the mean over all points; seeds are independent of each other, points are not.
    ratio, error = _mean([exp(-fmean(log(ratio) for ratio in seed)) for seed in zip(*paired, strict=False)])
    said = f"{worse} is {ratio:.3f} ±{error:.3f} times as late as {better} on average"
    return Finding(claim, ratio > 1 + least, said)


def _late_points(rows: list[Row], policy: str) -> list[tuple[Any, ...]]:
    found = _by(rows, *_POINT, "policy")
    return [point for point, lateness in found.items() if point[-1] == policy and lateness > 1.02]


def _judge_slowdown(rows: list[Row]) -> list[Finding]:
    found = _by(rows, "cycle", "utilisation", "slowdown")
    steps = {True: [0, 0], False: [0, 0]}
    for (cycle, utilisation), _ in grouped(rows, "cycle", "utilisation"):
        keys = [key for key in sorted(found) if key[:2] == (cycle, utilisation)]
        for low, high in pairwise(keys):
            step = steps[high[2] <= 5]
            step[0] += found[low] <= found[high] * 1.01
            step[1] += 1
    return [
        Finding(f"lateness grows with the slowdown factor {where}", up == count, f"{up} of {count} steps up")
        for where, (up, count) in (("up to 5", steps[True]), ("beyond 5", steps[False]))
        if count
    ]


def _judge_speeds(rows: list[Row]) -> list[Finding]:
    found = _by(rows, "cycle", "utilisation", "policy")
    first: list[str] = []
    high: list[str] = []
    holds_first = holds_high = True
    pairs = _paired(rows, "max-benefit", ["edf-p"])
    for (cycle,), some in grouped(rows, "cycle"):
        levels = sorted({row["utilisation"] for row in some})
        late = [u for u in levels if found.get((cycle, u, "max-benefit"), 0) > 1.02]
        if not late or (cycle, late[0], "edf-p") not in found:
            continue
        low_ratio = found[cycle, late[0], "max-benefit"] / found[cycle, late[0], "edf-p"]
        high_ratio = found[cycle, levels[-1], "edf-p"] / found[cycle, levels[-1], "max-benefit"]
        where = [u for u in late if found[cycle, u, "max-benefit"] > found.get((cycle, u, "edf-p"), 1e9)]
        better = f"better at {', '.join(f'{u:g}' for u in where)}" if where else "better nowhere"
        errors = {point[2]: _mean(ratios)[1] for point, ratios in pairs.items() if point[0] == cycle}
        first.append(
            f"max-benefit / edf-p = {low_ratio:.3f} ±{errors[late[0]]:.3f} at {late[0]:g}, {better} (cycle {cycle:g})"
        )
        high.append(
            f"edf-p / max-benefit = {high_ratio:.3f} ±{errors[levels[-1]]:.3f} at {levels[-1]:g} (cycle {cycle:g})"
        )
        holds_first, holds_high = holds_first and low_ratio > 1, holds_high and high_ratio > 1
    nothing = None if first else "no point with lateness to compare"
    return [
        Finding(claim, None if nothing else holds, nothing or "; ".join(found_))
        for claim, holds, found_ in (
            ("EDF-P is better where lateness begins", holds_first, first),
            ("Max Benefit is better at high utilisation", holds_high, high),
        )
    ]


PROPORTIONAL = "proportional(all, aggressive)"
BASIC = "proportional(basic)"


def _experiment(
    name: str,
    title: str,
    build: Build,
    policies: tuple[str, ...],
    judge: Callable[[list[Row]], list[Finding]],
    *,
    series: str = "policy",
    log: bool = False,
    **own: Any,
) -> Experiment:
    parameters = {**COMMON, "policies": policies, **own}
    return add(
        Experiment(
            name,
            title,
            parameters,
            tasks(name, build),
            work,
            judge,
            Picture("utilisation", LATENESS, series, None if own.get("slowdown") == (1.0,) else "cycle", log),
        )
    )


LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_experiment(
    "golab-fig4",
    "Effects of slowdown on relative lateness",
    uniform,
    ("max-benefit",),
    _judge_slowdown,
    series="slowdown",
    tracks=1,
    slowdown=(2.0, 3.0, 5.0, 9.0),
    utilisation=LEVELS,
)
_experiment(
    "golab-fig5",
    "Max Benefit versus EDF-P, half of the tables ten times as cheap",
    two_speeds,
    ("max-benefit", "edf-p"),
    _judge_speeds,
    cheap_beta=0.01,
    utilisation=(0.7, 0.75, 0.8, 0.9, 1.0, 1.1, 1.2),
)
_experiment(
    "golab-fig6",
    "No slowdowns, uniform jobs, five tracks",
    uniform,
    ("max-benefit", "random", "edf-partitioned", BASIC),
    lambda rows: [
        never_worse(rows, "Proportional is on a par with Max Benefit", BASIC, ["max-benefit"], 0.02),
        never_worse(rows, "EDF-Partitioned is the worst, even worse than Random", "random", ["edf-partitioned"], 0.01),
    ],
    tracks=5,
    slowdown=(1.0,),
    utilisation=(0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1),
)
_experiment(
    "golab-fig7",
    "Effects of prioritized jobs",
    two_priorities,
    ("max-benefit", "edf", "random"),
    lambda rows: [
        never_worse(rows, "Max Benefit is never later than EDF", "max-benefit", ["edf"]),
        never_worse(rows, "Max Benefit is never later than Random", "max-benefit", ["random"]),
        mostly_better(rows, "Max Benefit is far less late than EDF", "max-benefit", "edf", 0.1),
    ],
    high=10.0,
    utilisation=LEVELS,
)
_experiment(
    "golab-fig8",
    "Hierarchies and inheriting priorities",
    deep_chains,
    ("max-benefit / inherit=none", "max-benefit / inherit=sum", "max-benefit", "max-benefit / inherit=max-plus(1.5)"),
    lambda rows: [
        mostly_better(rows, "without inheritance it is far worse", "max-benefit", "max-benefit / inherit=none", 0.1),
        mostly_better(rows, "Max is better than Sum", "max-benefit", "max-benefit / inherit=sum"),
        mostly_better(rows, "Max is better than Max-plus", "max-benefit", "max-benefit / inherit=max-plus(1.5)"),
    ],
    jobs=27,
    utilisation=LEVELS,
    log=True,  # one of the lines is far above the others
)
_experiment(
    "golab-fig9",
    "Effects of heterogeneous jobs",
    short_and_long,
    ("max-benefit", "edf-partitioned", BASIC),
    lambda rows: [
        never_worse(rows, "Proportional is never later than Max Benefit", BASIC, ["max-benefit"]),
        never_worse(rows, "Proportional is never later than EDF-Partitioned", BASIC, ["edf-partitioned"]),
        mostly_better(rows, "Proportional is best overall", BASIC, "max-benefit"),
    ],
    long_period=10_000.0,
    utilisation=LEVELS,
)
_experiment(
    "golab-fig10",
    "Proportional scheduling variations",
    short_and_long,
    (BASIC, "proportional(all)", PROPORTIONAL),
    lambda rows: [
        never_worse(rows, "all, aggressive is never later than basic", PROPORTIONAL, [BASIC]),
        never_worse(rows, "all, aggressive is never later than all", PROPORTIONAL, ["proportional(all)"]),
    ],
    long_period=10_000.0,
    utilisation=LEVELS,
)
_experiment(
    "golab-fig11",
    "Update chopping with two priority classes",
    chains_of_two,
    ("max-benefit", "max-benefit / chop=3"),
    lambda rows: [mostly_better(rows, "chopping to three periods is better", "max-benefit / chop=3", "max-benefit")],
    high=10.0,
    utilisation=LEVELS,
)
