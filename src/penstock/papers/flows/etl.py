"""Operator policies of Karagiannis, Vassiliadis and Simitsis (2013), Fig. 8 to 12, in the flow simulator.

The paper measured threads that sleep and wake on a computer of 2007; here a call of the scheduler costs `switch_ms`, and
activities are `work_factor` times as slow as their rough costs on a core of today. Memory is packs in queues, as there.
Nothing is random, so one run is enough: `--seeds` has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.flows.archetypes import ARCHETYPES
from penstock.flows.composites import COMPOSITES, break_into_subflows
from penstock.flows.graph import FlowGraph
from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.papers.flows import Machine, simulate_flow
from penstock.papers.flows.policies import Mixed, find_operator_policy
from penstock.sim.outcome import Row, averages

RR, MC, MM, MP = "round-robin", "minimum-cost", "minimum-memory", "mixed"
MC_WIDE = "minimum-cost, all processors"
FLOWS: dict[str, Callable[..., FlowGraph]] = {**ARCHETYPES, **COMPOSITES}
COMMON: dict[str, Any] = {"switch_ms": 4.0, "work_factor": 10.0, "pack_rows": 400, "queue_packs": 100}
SIZES = {
    "flows": tuple(ARCHETYPES),
    "policies": (RR, MC, MM),
    "scale": (0.1, 0.2, 0.4),
    "selectivity": (0.9,),
    "processors": (1,),
    **COMMON,
}


def _tasks(name: str) -> Callable[[Mapping[str, Any], Sequence[int]], list[Any]]:
    def tasks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
        for flow in parameters["flows"]:
            if flow not in FLOWS:
                raise ExperimentError(f"flows={flow}: there is no such flow; known are {'; '.join(FLOWS)}")
        return [
            (name, dict(parameters), flow, policy, scale, selectivity, processors)
            for flow in parameters["flows"]
            for policy in parameters["policies"]
            for scale in parameters["scale"]
            for selectivity in parameters["selectivity"]
            for processors in parameters["processors"]
        ]

    return tasks


def _work(task: tuple[str, dict[str, Any], str, str, float, float, int]) -> list[Row]:
    name, parameters, flow, label, scale, selectivity, processors = task
    # The paper's single policies have one operator active at a time, whatever the number of processors.
    policy = find_operator_policy(MC if label == MC_WIDE else label)
    if isinstance(policy, Mixed):
        policy = Mixed(int(parameters.get("theta", 0)))
    machine = Machine(
        processors if label in (MP, MC_WIDE) else 1,
        parameters["pack_rows"],
        parameters["queue_packs"],
        parameters["switch_ms"] * 1e3,
        parameters["work_factor"],
    )
    found = simulate_flow(FLOWS[flow](scale=scale, selectivity=selectivity), policy, machine)
    return [
        {
            "experiment": name,
            "flow": flow,
            "policy": label,
            "scale": scale,
            "selectivity": selectivity,
            "processors": processors,
            "time_s": found.time_s,
            "average_packs": found.average_packs,
            "maximum_packs": found.maximum_packs,
            "calls": found.calls,
            "idle_calls": found.idle_calls,
            "rows": sum(found.rows_in.values()),
        }
    ]


# Claims


def _compare(
    rows: list[Row],
    claim: str,
    key: str,
    policy: str,
    others: Sequence[str],
    holds: Callable[[float, float], bool],
    *,
    always: bool = True,
) -> Finding:
    """In how many of the cases a policy's value stands to that of each other as claimed, and the mean ratio."""
    at = ("flow", "scale", "selectivity", "processors")
    found = averages(rows, key, *at, "policy")
    cases = dict.fromkeys(tuple(row[name] for name in at) for row in rows)
    pairs = [
        (found[(*case, policy)], found[(*case, other)])
        for case in cases
        for other in others
        if (*case, policy) in found and (*case, other) in found
    ]
    if not pairs:
        return Finding(claim, None, "not measured")
    kept = sum(holds(mine, other) for mine, other in pairs)
    ratio = sum(mine / other for mine, other in pairs) / len(pairs)
    enough = kept == len(pairs) if always else 2 * kept > len(pairs)
    return Finding(claim, enough, f"{kept} of {len(pairs)} cases; on average {ratio:.2f} of it")


def _judge_time(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "time_s", "flow", "policy", "scale")
    sizes = sorted({row["scale"] for row in rows})
    growth = [
        found[flow, policy, sizes[-1]] / found[flow, policy, sizes[0]] / (sizes[-1] / sizes[0])
        for flow, policy in {(row["flow"], row["policy"]) for row in rows}
        if (flow, policy, sizes[0]) in found and (flow, policy, sizes[-1]) in found
    ]
    return [
        _compare(rows, "MC is not slower than RR", "time_s", MC, [RR], lambda a, b: a <= b),
        _compare(rows, "the difference of MC and RR is small (5 %)", "time_s", MC, [RR], lambda a, b: a >= 0.95 * b),
        _compare(rows, "MM is the slowest", "time_s", MM, [RR, MC], lambda a, b: a >= b),
        Finding(
            "time grows linearly with the size of data (10 %)",
            all(0.9 <= ratio <= 1.1 for ratio in growth),
            f"{min(growth):.2f} to {max(growth):.2f} of linear",
        ),
    ]


def _judge_average(rows: list[Row]) -> list[Finding]:
    return [
        _compare(rows, "MM holds the least on average", "average_packs", MM, [RR, MC], lambda a, b: a <= b),
        _compare(rows, "MM holds 1/10 to 1/2 of RR", "average_packs", MM, [RR], lambda a, b: 0.1 * b <= a <= 0.5 * b),
        _compare(rows, "MM holds 1/10 to 1/2 of MC", "average_packs", MM, [MC], lambda a, b: 0.1 * b <= a <= 0.5 * b),
        _compare(rows, "RR holds more than MC", "average_packs", RR, [MC], lambda a, b: a > b),
    ]


def _judge_maximum(rows: list[Row]) -> list[Finding]:
    heavy = [row for row in rows if row["flow"] in ("fork", "primary_flow")]
    most, claim = "MC has the lowest peaks in most cases", "MC has peaks lower by a quarter in fork and primary flow"
    return [
        _compare(rows, most, "maximum_packs", MC, [RR, MM], lambda a, b: a <= b, always=False),
        _compare(heavy, claim, "maximum_packs", MC, [RR, MM], lambda a, b: a <= 0.75 * b),
        _compare(rows, "RR never has a lower peak than MC", "maximum_packs", RR, [MC], lambda a, b: a >= b),
    ]


for figure, measure, title, judge in (
    ("etl-time", "time_s", "Execution time of RR, MC and MM by the size of data (Fig. 8)", _judge_time),
    (
        "etl-average-memory",
        "average_packs",
        "Average memory of RR, MC and MM by the size of data (Fig. 9)",
        _judge_average,
    ),
    (
        "etl-maximum-memory",
        "maximum_packs",
        "Maximum memory of RR, MC and MM by the size of data (Fig. 10)",
        _judge_maximum,
    ),
):
    add(Experiment(figure, title, SIZES, _tasks(figure), _work, judge, Picture("scale", measure, "policy", "flow")))

add(
    Experiment(
        "etl-selectivity",
        "Average memory of RR, MC and MM by the share of rows that pass the cleansing (Fig. 11)",
        {**SIZES, "flows": ("butterfly", "primary_flow"), "scale": (0.2,), "selectivity": (0.2, 0.4, 0.6, 0.8, 1.0)},
        _tasks("etl-selectivity"),
        _work,
        lambda rows: [*_judge_average(rows), *_judge_maximum(rows)],
        Picture("selectivity", "average_packs", "policy", "flow"),
    )
)


# Mixed


def _judge_mixed(rows: list[Row]) -> list[Finding]:
    def on(processors: int) -> list[Row]:
        return [row for row in rows if row["processors"] == processors]

    found = []
    for processors in sorted({row["processors"] for row in rows}):
        some = on(processors)
        name = f"on {processors} processor{'s' * (processors > 1)}"
        if processors == 1:
            found.append(_compare(some, f"MP is faster than MC {name}", "time_s", MP, [MC], lambda a, b: a < b))
        else:
            claim = f"MP is 35 to 53 % faster than MC (one operator at a time) {name}"
            found.append(_compare(some, claim, "time_s", MP, [MC], lambda a, b: 0.47 * b <= a <= 0.65 * b))
            claim = f"MP is faster than MC on all processors {name}"
            found.append(_compare(some, claim, "time_s", MP, [MC_WIDE], lambda a, b: a < b))
        claim = f"MP holds less than MC on average {name}"
        found.append(_compare(some, claim, "average_packs", MP, [MC], lambda a, b: a < b))
    return found


add(
    Experiment(
        "etl-mixed",
        "Mixed policy against minimum cost on several processors (Fig. 12)",
        {
            **SIZES,
            "flows": tuple(COMPOSITES),
            "policies": (MC, MC_WIDE, MP),
            "scale": (0.2,),
            "processors": (1, 2, 4),
            "theta": 0,
        },
        _tasks("etl-mixed"),
        _work,
        _judge_mixed,
        Picture("processors", "time_s", "policy", "flow"),
    )
)


# Subflows and strata


def _strata_tasks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
    return list(parameters["flows"])


def _strata_work(flow: str) -> list[Row]:
    return [
        {
            "experiment": "etl-strata",
            "flow": flow,
            "stratum": number,
            "subflows": len(stratum),
            "members": [list(subflow.nodes) for subflow in stratum],
        }
        for number, stratum in enumerate(break_into_subflows(FLOWS[flow]()).strata)
    ]


def _judge_strata(rows: list[Row]) -> list[Finding]:
    butterfly = [row["subflows"] for row in rows if row["flow"] == "butterfly"]
    alone = [
        any(FLOWS[row["flow"]]()[name].blocking for name in members) <= (len(members) == 1)
        for row in rows
        for members in row["members"]
    ]
    return [
        Finding(
            "the butterfly of Fig. 1 has the strata 2, 2, 2, 1, 3, 2, 2, 2",
            butterfly == [2, 2, 2, 1, 3, 2, 2, 2],
            ", ".join(map(str, butterfly)) or "not measured",
        ),
        Finding(
            "a subflow can have more than one blocking activity, for theta to count",
            not all(alone),
            "none has, as blocking activities are boundaries; only pipelined look-ups can exceed theta",
        ),
    ]


add(
    Experiment(
        "etl-strata",
        "Subflows in each stratum",
        {"flows": tuple(FLOWS)},
        _strata_tasks,
        _strata_work,
        _judge_strata,
        Picture("stratum", "subflows", "flow"),
    )
)
