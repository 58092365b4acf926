"""Random backfills of a large graph: Xu, Gao, Davidson 2023, Tables 10 and 11."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.simulator import Arrival, Outcome, simulate
from penstock.papers.requests.youtube import COVERED, EAGER, GROUP, LAZY, TRIGGERS, flat, minutes, points, whole
from penstock.requests.plan import Backfill, plan
from penstock.sim.rows import Row, average, grouped

# Processed, unneeded by lazy, share of duplicates that are not exact, tables that a backfill reaches.
_PAPER_10 = {
    10: (1089, 5, 251 / 1340, 4279 / 10),
    20: (1169, 3, 418 / 1587, 7418 / 20),
    50: (1253, 1, 443 / 1696, 7029 / 50),
}


def binomial(levels: int) -> Graph:
    """Level l has l + 1 tables; each reads the one or two above it."""
    return whole(
        {
            f"b{level}_{n}": tuple(f"b{level - 1}_{m}" for m in (n - 1, n) if 0 <= m < level) if level else ()
            for level in range(levels)
            for n in range(level + 1)
        }
    )


def _tree(point: Any) -> list[Row]:
    graph = binomial(point["levels"])
    rng = Random(point["seed"])
    chosen = [Backfill(name, EVERYTHING) for name in rng.sample(list(graph.tables), point["backfills"])]
    campaign = plan(graph, chosen)
    together, one_by_one = [Arrival(0.0, tuple(chosen))], [Arrival(0.0, (backfill,)) for backfill in chosen]
    rows = []
    for trigger in point["triggers"]:
        arrivals = together if trigger in (GROUP, EAGER) else one_by_one
        found = simulate(graph, TRIGGERS[trigger](), arrivals, minutes, Random(point["seed"]))
        merged = found.merged.total()
        optimal, unneeded, share, _ = _PAPER_10.get(point["backfills"], (None, None, None, None))
        row = {
            "experiment": point["experiment"],
            "backfills": point["backfills"],
            "trigger": trigger,
            "seed": point["seed"],
            "levels": point["levels"],
            "initial_requests": found.asked if trigger == EAGER else len(chosen),
            "processed": found.total,
            "optimal": campaign.updates,
            "unneeded": found.total - campaign.updates,
            "not_exact_duplicates": merged if trigger == EAGER else None,
            "duplicate_share": merged / (found.total + merged) if trigger == EAGER else None,
            "paper_optimal": optimal,
            "paper_unneeded": unneeded if trigger in (COVERED, LAZY) else 0,
            "paper_duplicate_share": share if trigger == EAGER else None,
        }
        for most in point["max_cost"]:
            row[f"saved_share_{most:g}"] = _saved(found, most, rng) if trigger == EAGER else None
        rows.append(row)
    return flat(rows, point)


def _saved(found: Outcome, most: float, rng: Random) -> float:
    """The share of the cost that merging requests which are not exact duplicates saves, if a table of level l costs about
    max_cost - l (Table 11)."""

    def cost(name: str) -> float:
        return max(0.0, rng.gauss(most - int(name[1:].split("_")[0]), 10.0))

    spent = sum(count * cost(name) for name, count in found.updates.items())
    saved = sum(count * cost(name) for name, count in found.merged.items())
    return saved / (spent + saved)


def _judge_tree(rows: list[Row]) -> list[Finding]:
    findings = []
    for (trigger,), some in grouped(rows, "trigger"):
        worst = max(row["unneeded"] / row["optimal"] for row in some)
        mean = average(some, "unneeded")[0]
        claims = {
            COVERED: ("lazy as printed makes less than 0.5 % unneeded updates", 0.005),
            LAZY: ("lazy with a look back makes less than 0.5 % unneeded updates", 0.005),
            GROUP: ("grouping makes no unneeded update", 0.0),
            EAGER: ("eager makes no unneeded update", 0.0),
        }
        if trigger in claims:
            claim, limit = claims[trigger]
            why = ""
            if trigger == COVERED and worst > limit:
                why = ": one backfill knows nothing of the others, so tables below several of them run several times"
            if trigger == LAZY and worst > limit:
                why = ": a table that is backfilled starts at once, and again if one above it is asked for after it"
            findings.append(Finding(claim, worst <= limit, f"{mean:.1f} on average, at worst {worst:.2%}{why}"))
    eager = [row for row in rows if row["trigger"] == EAGER]
    for (backfills,), some in grouped(eager, "backfills"):
        _, _, paper, theirs = _PAPER_10.get(backfills, (0, 0, 0.0, 0.0))
        share, reached = average(some, "duplicate_share")[0], average(some, "initial_requests")[0] / backfills
        holds = abs(share - paper) < 0.08
        why = "" if holds else f": a backfill of a random table reaches {reached:.0f} tables here, {theirs:.0f} there"
        findings.append(
            Finding(
                f"{backfills} backfills: {paper:.0%} of processed and merged requests are not exact duplicates",
                holds,
                f"{share:.0%}{why}",
            )
        )
    keys = [key for key in eager[0] if key.startswith("saved_share_")] if eager else []
    costs = {key: average(eager, key)[0] for key in keys}
    if costs:
        spread = max(costs.values()) - min(costs.values())
        told = ", ".join(f"{value:.1%} at {key.removeprefix('saved_share_')}" for key, value in costs.items())
        claim = "Table 11: the saved share of the cost (26.4 to 26.9 %) does not depend on the largest cost"
        findings.append(Finding(claim, spread < 0.03, told))
    return findings


add(
    Experiment(
        "youtube-tree",
        "Tables 10 and 11: random backfills of a binomial tree of 50 levels",
        {
            "backfills": (10, 20, 50),
            "levels": 50,
            "triggers": (COVERED, LAZY, GROUP, EAGER),
            "max_cost": (60.0, 70.0, 80.0, 90.0, 100.0),
        },
        points("youtube-tree", "backfills"),
        _tree,
        _judge_tree,
        Picture("backfills", "unneeded", "trigger"),
    )
)
