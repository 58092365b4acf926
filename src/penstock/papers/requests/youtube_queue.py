"""Waiting on purpose: the pipeline of Xu, Gao, Davidson 2023, Table 13, and two questions that the paper leaves open. Is an
even split of the waiting budget good, and what is the printed recursion for the decision to wait worth?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from random import Random
from time import process_time
from typing import Any

from penstock.model.tables import AUTO, Table
from penstock.model.time import SECOND_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.live import Arrival, flat, minutes, points, run_live, whole
from penstock.requests.budget import Pipeline, even, split
from penstock.requests.closure import Children, best_closure, descendants
from penstock.sim.outcome import Row, average, averages

# Three tables that are loaded, one that is made from them, three that are made from that.
LOADED, BUSINESS = ("load0", "load1", "load2"), ("use0", "use1", "use2")
STAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(LOADED, ()),
    "shape": LOADED,
    **dict.fromkeys(BUSINESS, ("shape",)),
}
# What the jobs of the paper take at most.
LONGEST_S = 60.0


def pipeline(rate_per_s: float) -> Pipeline:
    return Pipeline(STAGES, dict.fromkeys(LOADED, rate_per_s / len(LOADED)), {})


def waits_s(split_: str, target_s: float, rate_per_s: float) -> dict[str, float]:
    """Of each table, so that the last stage meets its target whatever happens. A request that comes while a job runs
    waits for that one, too."""
    made = pipeline(rate_per_s)
    budget = max(0.0, target_s - 2 * made.stages * LONGEST_S)
    if split_ == "none":
        return {}
    if split_ == "first":
        return made.waits_s((budget, *(0.0,) * (made.stages - 1)))
    return made.waits_s(even(made, budget) if split_ == "even" else split(made, budget))


# Table 13

# Of each way to run it: the settings of tables that are loaded, of all tables, and of the last ones; how many updates are
# expected of files and of backfills, with what the paper has for versions that come in their order.
Settings = Mapping[str, Any]
TEN_MINUTES = 600 * SECOND_US
WAYS: dict[str, tuple[Settings, Settings, Settings, float, float, int]] = {
    "default": ({}, {}, {}, 16.0, 16.0, 18),
    "patience 10m": ({}, {"patience_us": TEN_MINUTES}, {}, 13.0, 13.0, 14),
    "patience, target 10m": ({}, {"patience_us": TEN_MINUTES}, {"target_us": TEN_MINUTES}, 13.0, 7.0, 14),
    "queue 3m": ({"queue_us": 180 * SECOND_US}, {}, {}, 7.0, 7.0, 7),
    "queue auto, target 10m": ({}, {"queue_us": AUTO}, {"target_us": TEN_MINUTES}, 7.0, 7.0, 7),
}
# How far the mean may be from that.
NEAR = 0.05


def _stages(loads: Settings, every: Settings, last: Settings) -> list[Table]:
    return [
        replace(table, **every, **(loads if table.is_base else {}), **(last if table.name in BUSINESS else {}))
        for table in whole(STAGES)
    ]


def _pipeline(point: Any) -> list[Row]:
    rng = Random(point["seed"])
    at, moments = 0.0, []
    for _ in range(point["changes"]):
        at += rng.uniform(1.0, 30.0)
        moments.append((at, rng.choice(LOADED)))
    rows: list[Row] = []
    for way in point["ways"]:
        loads, every, last, *_, paper = WAYS[way]
        for files in (True, False):
            arrivals = [Arrival(moment, table, file=files) for moment, table in moments]
            found = run_live(_stages(loads, every, last), arrivals, minutes, Random(point["seed"]), rounds=20)
            rows.append(
                {
                    "way": way,
                    "comes_as": "files" if files else "backfills",
                    "updates": found.total,
                    "least": len({table for _, table in moments}) + 1 + len(BUSINESS),
                    "most_late_s": found.most_late_s,
                    "paper": paper,
                }
            )
    return flat(rows, point)


def _judge_pipeline(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "updates", "way", "comes_as")
    late = {way: max((row["most_late_s"] for row in rows if row["way"] == way), default=0.0) for way in WAYS}
    findings = []
    for (way, comes_as), at in found.items():
        *_, files, backfills, paper = WAYS[way]
        expected = files if comes_as == "files" else backfills
        near = abs(at - expected) <= NEAR * expected
        claim = f"{way}, by {comes_as}: {expected:g} updates, give or take {NEAR:.0%}; the paper has {paper}"
        findings.append(Finding(claim, near, f"{at:.2f} on average"))
    for way, seconds in late.items():
        if "queue" in way or "target" in way:
            findings.append(
                Finding(f"{way}: all is there within 10 minutes", seconds <= 600, f"{seconds:.0f} s at most")
            )
    return findings


add(
    Experiment(
        "youtube-pipeline",
        "Table 13: ten changes of a 3-1-3 pipeline, as files and as backfills",
        {"changes": 10, "ways": tuple(WAYS)},
        points("youtube-pipeline"),
        _pipeline,
        _judge_pipeline,
        Picture("way", "updates", "comes_as"),
    )
)


# Even against uneven


def _budget(point: Any) -> list[Row]:
    rng = Random(point["seed"])
    rate = 1.0 / point["interval"]
    at, arrivals = 0.0, []
    for _ in range(point["changes"]):
        at += rng.expovariate(rate)
        arrivals.append(Arrival(at, rng.choice(LOADED), file=True))
    rows: list[Row] = []
    for split_ in point["ways"]:
        waits = waits_s(split_, point["target"], rate) if split_ != "auto" else {}
        tables = [
            replace(
                table,
                queue_us=AUTO if split_ == "auto" else int(waits.get(table.name, 0.0) * SECOND_US),
                target_us=int(point["target"] * SECOND_US) if table.name in BUSINESS else None,
            )
            for table in whole(STAGES)
        ]
        found = run_live(tables, arrivals, minutes, Random(point["seed"]), rounds=20)
        rows.append(
            {
                "split": split_,
                "updates": found.total,
                "updates_per_change": found.total / point["changes"],
                "wait_load_s": waits.get("load0", 0.0),
                "wait_shape_s": waits.get("shape", 0.0),
                "wait_use_s": waits.get("use0", 0.0),
                "most_late_s": found.most_late_s,
            }
        )
    return flat(rows, point)


def _judge_budget(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "updates", "interval", "split")
    levels = sorted({interval for interval, _ in found})
    told = ", ".join(f"{1 - found[at, 'auto'] / found[at, 'even']:.0%} fewer at {at:g} s" for at in levels)
    late = max(row["most_late_s"] - row["target"] for row in rows if row["split"] == "auto")
    return [
        Finding(
            "queues whose lengths are chosen take fewer updates than an even split of known lengths",
            all(found[at, "auto"] < found[at, "even"] for at in levels),
            told,
        ),
        Finding(
            "and are never more than 5 % worse than the best split of all that were tried",
            all(
                found[at, "auto"] <= 1.05 * min(found[at, one] for one in ("even", "first", "uneven")) for at in levels
            ),
            ", ".join(
                f"{found[at, 'auto'] / min(found[at, one] for one in ('even', 'first', 'uneven')) - 1:+.0%} at {at:g} s"
                for at in levels
            ),
        ),
        Finding(
            "no target is missed by queues whose lengths are chosen", late <= 0, f"{-late:.0f} s to spare at least"
        ),
    ]


add(
    Experiment(
        "youtube-budget",
        "Beyond the paper: the waiting budget of a 3-1-3 pipeline, split evenly or not",
        {
            "interval": (15.0, 30.0, 60.0, 120.0),
            "changes": 300,
            "target": 1200.0,
            "ways": ("none", "even", "first", "uneven", "auto"),
        },
        points("youtube-budget", "interval"),
        _budget,
        _judge_budget,
        Picture("interval", "updates", "split"),
    )
)


# The exact closure against the printed recursion


def _closure(point: Any) -> list[Row]:
    rng = Random(point["seed"])
    count = point["tables"]
    totals = {"exact": 0.0, "printed": 0.0, "never wait": 0.0, "always wait": 0.0}
    seconds = {"exact": 0.0, "printed": 0.0}
    worse = missed = 0
    for _ in range(point["graphs"]):
        below: dict[str, list[str]] = {f"t{n}": [] for n in range(count)}
        for n in range(1, count):
            for above in {rng.randrange(max(0, n - 8), n) for _ in range(rng.choice((1, 2, 2, 3)))}:
                below[f"t{above}"].append(f"t{n}")
        cost = {name: rng.uniform(1.0, 20.0) for name in below}
        risk = {
            name: inf if rng.random() < point["at_risk"] else rng.choice((0.0, rng.uniform(0.0, 40.0)))
            for name in below
        }
        # The printed form has no infinite penalty: "a very large number".
        fine = {name: min(loss, 1e6) for name, loss in risk.items()}
        weight = {name: cost[name] - fine[name] for name in below}
        began = process_time()
        exact = best_closure("t0", below.__getitem__, weight.__getitem__)
        middle = process_time()
        printed = printed_recursion("t0", below.__getitem__, cost.__getitem__, fine.__getitem__)
        seconds["exact"] += middle - began
        seconds["printed"] += process_time() - middle
        everything = descendants("t0", below.__getitem__)
        gains = {
            "exact": sum(weight[name] for name in exact),
            "printed": sum(weight[name] for name in printed),
            "always wait": sum(weight[name] for name in everything),
        }
        worse += gains["printed"] < gains["exact"] - 1e-9
        missed += any(risk[name] == inf for name in printed)
        for way, gain in gains.items():
            # A missed target is no matter of degree: it counts as much as all that could be saved.
            totals[way] += max(gain, -sum(cost.values()))
    rows = [
        {
            "experiment": point["experiment"],
            "tables": count,
            "decision": way,
            "seed": point["seed"],
            "gain_per_graph": total / point["graphs"],
            "worse_share": worse / point["graphs"] if way == "printed" else 0.0,
            "target_missed_share": missed / point["graphs"] if way == "printed" else 0.0,
            "ms_per_decision": 1000 * seconds.get(way, 0.0) / point["graphs"],
        }
        for way, total in totals.items()
    ]
    return flat(rows, point)


def _judge_closure(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "gain_per_graph", "tables", "decision")
    sizes = sorted({size for size, _ in found})
    best = all(
        found[size, "exact"] >= found[size, way] for size in sizes for way in ("printed", "never wait", "always wait")
    )
    printed = [row for row in rows if row["decision"] == "printed"]
    worse, missed = average(printed, "worse_share")[0], average(printed, "target_missed_share")[0]
    return [
        Finding(
            "the exact closure is never worse than the printed recursion, than never and than always waiting",
            best,
            ", ".join(f"{found[s, 'exact']:.0f} against {found[s, 'printed']:.0f} at {s} tables" for s in sizes),
        ),
        Finding(
            "the printed recursion finds the optimum (Sec. 4.2)", worse == 0, f"worse in {worse:.0%} of the graphs"
        ),
        Finding(
            "the printed recursion never lets a table wait that misses its target then",
            missed == 0,
            f"in {missed:.0%} of the graphs it does",
        ),
    ]


add(
    Experiment(
        "youtube-closure",
        "Beyond the paper: the exact decision to wait against the printed recursion, on random graphs",
        {"tables": (5, 10, 20, 40), "graphs": 200, "at_risk": 0.05},
        points("youtube-closure", "tables"),
        _closure,
        _judge_closure,
        Picture("tables", "gain_per_graph", "decision"),
    )
)


# Whether an update should wait, by the recursion of Xu, Gao, Davidson 2023, Sec. 4.2, as it is printed


def printed_recursion(
    root: str, children: Children, cost: Callable[[str], float], penalty: Callable[[str], float]
) -> frozenset[str]:
    """The recursion of Sec. 4.2 as it is printed: the larger ratio of reward to penalty wins at each table. Returns the
    tables that wait."""
    known: dict[str, tuple[float, float, frozenset[str]]] = {}
    for name in _bottom_up(root, children):
        below = descendants(name, children)
        reward, loss = sum(map(cost, below)), sum(map(penalty, below))
        options = [known[child] for child in children(name)]
        apart = (
            sum(option[0] for option in options),
            sum(option[1] for option in options),
            frozenset().union(*(option[2] for option in options)),
        )
        together = (reward, loss, frozenset(below))
        known[name] = together if _ratio(together) >= _ratio(apart) else apart
    return known[root][2]


def _ratio(option: tuple[float, float, frozenset[str]]) -> float:
    reward, loss, _ = option
    return reward / loss if loss else (inf if reward else 0.0)


def _bottom_up(root: str, children: Children) -> list[str]:
    """Each table after all that is made from it."""
    done: dict[str, None] = {}
    path = [(root, iter(list(children(root))))]
    seen = {root}
    while path:
        name, rest = path[-1]
        child = next((child for child in rest if child not in seen), None)
        if child is None:
            done[name] = None
            path.pop()
        else:
            seen.add(child)
            path.append((child, iter(list(children(child)))))
    return list(done)
