"""The experiments of Xu, Gao, Davidson 2023: how many updates a set of changes takes on the controller that users run. Beside
each result stands the paper's number and, where that cannot be reached, why. *Naive* is each change for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.live import Arrival, flat, graph_of, minutes, points, run_live, whole
from penstock.requests.plan import Backfill, Campaign, plan
from penstock.sim.outcome import Row, average, averages, grouped

NAIVE, FILES, BACKFILLS = "naive", "files", "backfills"


def equals(rows: list[Row], claim: str, key: str, expected: Mapping[Any, float], x: str, way: str) -> Finding:
    """Whether a mean is what the paper says at each point that was measured."""
    found = {group[0]: value for group, value in averages([r for r in rows if r["way"] == way], key, x).items()}
    told = ", ".join(
        f"{value:g} at {x} {at:g} (paper {expected[at]:g})" for at, value in found.items() if at in expected
    )
    return Finding(claim, all(found[at] == expected[at] for at in found if at in expected), told)


# Table 4: one change, a diamond


def _diamond(point: Any) -> list[Row]:
    ways = point["ways"]
    reads = {"a": (), **{f"b{n}": ("a",) for n in range(ways)}}
    reads["d"] = tuple(f"b{n}" for n in range(ways))
    rows: list[Row] = [{"way": NAIVE, "updates_of_d": ways, "updates": 1 + 2 * ways, "paper": ways}]
    for way in (FILES, BACKFILLS):
        change = Arrival(0.0, "a", file=way == FILES)
        found = run_live(whole(reads), [change], minutes, Random(point["seed"]))
        rows.append({"way": way, "updates_of_d": found.updates["d"], "updates": found.total, "paper": 1})
    return flat(rows, point)


add(
    Experiment(
        "youtube-diamond",
        "Table 4: one change that comes by several ways",
        {"ways": (2, 3, 5, 10)},
        points("youtube-diamond", "ways"),
        _diamond,
        lambda rows: [
            equals(
                rows,
                f"by {way}: the bottom table is updated once",
                "updates_of_d",
                dict.fromkeys(range(99), 1),
                "ways",
                way,
            )
            for way in (FILES, BACKFILLS)
        ],
        Picture("ways", "updates_of_d", "way"),
    )
)


# Table 6: a day of hours, and a queue before the daily table

_PAPER_6 = {0.0: 24, 1.0: 4, 2.0: 2, 3.0: 2}


def _rollup(point: Any) -> list[Row]:
    rng, queue_us = Random(point["seed"]), int(point["queue"] * point["stdev"] * SECOND_US)
    tables = [
        Table("hourly", "hour", feed="files"),
        Table("daily", "day", sources=(Source("hourly", (0, 1)),), queue_us=queue_us),
    ]
    hours = [PartitionSet.of((n * HOUR_US, (n + 1) * HOUR_US)) for n in range(24)]
    rows: list[Row] = []
    for way in (FILES, BACKFILLS):
        # Late files come when the paper's hourly jobs end; backfills are asked for all at once.
        arrivals = [
            Arrival(
                max(1.0, rng.gauss(point["mean"], point["stdev"])) if way == FILES else 0.0,
                "hourly",
                hour,
                way == FILES,
            )
            for hour in hours
        ]
        found = run_live(tables, arrivals, lambda _, __: 0.0, rng, extent=PartitionSet.of((0, 2 * DAY_US)))
        updates = found.updates["daily"]
        rows.append(
            {
                "way": way,
                "updates_of_daily": updates,
                "windows": _windows([arrival.at_s for arrival in arrivals], queue_us / SECOND_US),
                "unneeded_share": (updates - 1) / updates,
                "done_s": found.ended_s,
                "paper": _PAPER_6.get(point["queue"]) if way == FILES else None,
            }
        )
    return flat(rows, point)


def _windows(times: list[float], queue_s: float) -> int:
    """How many windows so long changes open at these times: the model of a queue, without any controller."""
    count, closes = 0, -1.0
    for at in sorted(times):
        if at > closes:
            count, closes = count + 1, at + queue_s
    return count


def _judge_rollup(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "updates_of_daily", "queue", "way")
    findings = []
    for queue, updates in _PAPER_6.items():
        at = found.get((queue, FILES))
        if at is not None:
            near = at == updates if not queue else abs(at - updates) <= 1
            findings.append(
                Finding(f"queue of {queue:g} standard deviations: {updates} updates", near, f"{at:.2f} on average")
            )
    off = max(
        (abs(row["updates_of_daily"] / row["windows"] - 1) for row in rows if row["way"] == FILES or row["queue"] > 0),
        default=0.0,
    )
    findings.append(
        Finding("each run: as many updates as windows, give or take 5 %", off <= 0.05, f"{off:.0%} off at most")
    )
    known = [row["updates_of_daily"] for row in rows if row["way"] == BACKFILLS]
    claim = "beyond the paper: of backfills that are asked for together one update, without any queue"
    findings.append(Finding(claim, set(known) == {1}, f"{max(known, default=0)} at most"))
    return findings


add(
    Experiment(
        "youtube-rollup",
        "Table 6: hours into a day, with a queue of 0 to 3 standard deviations",
        {"queue": (0.0, 1.0, 2.0, 3.0), "mean": 300.0, "stdev": 100.0},
        points("youtube-rollup", "queue"),
        _rollup,
        _judge_rollup,
        Picture("queue", "updates_of_daily", "way"),
    )
)


# Tables 10 and 11: random backfills of a large graph

# Processed, unneeded by lazy, share of duplicates that are not exact, tables that a backfill reaches.
_PAPER_10 = {
    10: (1089, 5, 251 / 1340, 4279 / 10),
    20: (1169, 3, 418 / 1587, 7418 / 20),
    50: (1253, 1, 443 / 1696, 7029 / 50),
}
# With the cadence that the paper calls grouping, as a project can declare it: `queue = "1m"` for all tables.
GROUPED, ONE_BY_ONE = "queue 1m", "one by one"


def binomial(levels: int) -> list[Table]:
    """Level l has l + 1 tables; each reads the one or two above it."""
    return whole(
        {
            f"b{level}_{n}": tuple(f"b{level - 1}_{m}" for m in (n - 1, n) if 0 <= m < level) if level else ()
            for level in range(levels)
            for n in range(level + 1)
        }
    )


def _tree(point: Any) -> list[Row]:
    tables, rng = binomial(point["levels"]), Random(point["seed"])
    chosen = rng.sample([table.name for table in tables], point["backfills"])
    campaign = plan(graph_of(tables), [Backfill(name, EVERYTHING) for name in chosen])
    merged = _not_exact(tables, campaign, chosen)
    processed, unneeded, share, _ = _PAPER_10.get(point["backfills"], (None, None, None, None))
    rows: list[Row] = []
    arrivals = [Arrival(n * point["every"], name) for n, name in enumerate(chosen)]
    for way in (GROUPED, ONE_BY_ONE):
        queue_us = MINUTE_US if way == GROUPED else 0
        live = [replace(table, queue_us=queue_us) for table in tables]
        found = run_live(live, arrivals, minutes, Random(point["seed"]))
        rows.append(
            {
                "way": way,
                "reached": campaign.separately,
                "processed": found.total,
                "optimal": campaign.updates,
                "unneeded": found.total - campaign.updates,
                "not_exact_duplicates": sum(merged.values()),
                "duplicate_share": sum(merged.values()) / (campaign.updates + sum(merged.values())),
                "paper_optimal": processed,
                "paper_unneeded": 0 if way == GROUPED else unneeded,
                "paper_duplicate_share": share,
                **{f"saved_share_{most:g}": _saved(campaign, merged, most, rng) for most in point["max_cost"]},
            }
        )
    return flat(rows, point)


def _not_exact(tables: list[Table], campaign: Campaign, chosen: list[str]) -> dict[str, int]:
    """Of each table, how many requests were merged that are not exact duplicates: that come by other inputs."""
    reads = {table.name: [source.table for source in table.sources] for table in tables}
    reached = {work.table: set(work.requests) for work in campaign.work}
    merged = {}
    for name, requests in reached.items():
        by = {
            (chosen[number - 1] == name, *(number in reached.get(source, ()) for source in reads[name]))
            for number in requests
        }
        merged[name] = len(by) - 1
    return merged


def _saved(campaign: Campaign, merged: Mapping[str, int], most: float, rng: Random) -> float:
    """The share of the cost that merging requests which are not exact duplicates saves, if a table of level l costs about
    max_cost - l (Table 11)."""
    spent = saved = 0.0
    for work in campaign.work:
        cost = max(0.0, rng.gauss(most - int(work.table[1:].split("_")[0]), 10.0))
        spent, saved = spent + work.updates * cost, saved + merged[work.table] * cost
    return saved / (spent + saved)


def _judge_tree(rows: list[Row]) -> list[Finding]:
    findings = []
    for (way,), some in grouped(rows, "way"):
        worst, mean = max(row["unneeded"] / row["optimal"] for row in some), average(some, "unneeded")[0]
        claim, limit = {
            GROUPED: ("with a queue of a minute: no unneeded update", 0.0),
            ONE_BY_ONE: ("asked for one by one: less than 0.5 % unneeded updates", 0.005),
        }[way]
        why = "" if worst <= limit else ": a table starts at once, and again if one above it is asked for after it"
        findings.append(Finding(claim, worst <= limit, f"{mean:.1f} on average, at worst {worst:.2%}{why}"))
    once = [row for row in rows if row["way"] == GROUPED]
    for (backfills,), some in grouped(once, "backfills"):
        if backfills not in _PAPER_10:
            continue
        _, _, paper, theirs = _PAPER_10[backfills]
        share, reached = average(some, "duplicate_share")[0], average(some, "reached")[0] / backfills
        holds = abs(share - paper) < 0.08
        why = "" if holds else f": a backfill of a random table reaches {reached:.0f} tables here, {theirs:.0f} there"
        claim = f"{backfills} backfills: {paper:.0%} of processed and merged requests are not exact duplicates"
        findings.append(Finding(claim, holds, f"{share:.0%}{why}"))
    costs = {key: average(once, key)[0] for key in once[0] if key.startswith("saved_share_")}
    spread = max(costs.values()) - min(costs.values())
    told = ", ".join(f"{value:.1%} at {key.removeprefix('saved_share_')}" for key, value in costs.items())
    claim = "Table 11: the saved share of the cost (26.4 to 26.9 %) does not depend on the largest cost"
    findings.append(Finding(claim, spread < 0.03, told))
    return findings


add(
    Experiment(
        "youtube-tree",
        "Tables 10 and 11: random backfills of a binomial tree of 50 levels",
        {"backfills": (10, 20, 50), "levels": 50, "every": 1.0, "max_cost": (60.0, 70.0, 80.0, 90.0, 100.0)},
        points("youtube-tree", "backfills"),
        _tree,
        _judge_tree,
        Picture("backfills", "unneeded", "way"),
    )
)


# Table 12: a table that reads its yesterday

_DAYS_12 = {8: (6, 14, 22), 4: tuple(range(3, 28, 4)), 2: tuple(range(2, 29, 2))}
_PAPER_12 = {8: (60, 28), 4: (147, 35), 2: (280, 43)}


def _self(point: Any) -> list[Row]:
    tables = [
        Table("increments", "day", feed="files"),
        Table("so_far", "day", sources=(Source("increments", (0, 1)), Source("so_far", (-1, 0)))),
    ]
    month, every = PartitionSet.of((0, point["days"] * DAY_US)), point["every"]
    days = _DAYS_12.get(every) or tuple(range(every, point["days"] + 1, every))
    asked = [PartitionSet.of(((day - 1) * DAY_US, day * DAY_US)) for day in days]
    campaign = plan(graph_of(tables), [Backfill("increments", day) for day in asked], lambda _: month)
    naive, ours = _PAPER_12.get(every, (None, None))
    rows: list[Row] = [{"way": NAIVE, "updates": campaign.separately, "optimal": campaign.updates, "paper": naive}]
    for way in (FILES, BACKFILLS):
        arrivals = [Arrival(0.0, "increments", day, file=way == FILES) for day in asked]
        found = run_live(tables, arrivals, minutes, Random(point["seed"]), extent=month)
        rows.append({"way": way, "updates": found.total, "optimal": campaign.updates, "paper": ours})
    return flat(rows, point)


def _judge_self(rows: list[Row]) -> list[Finding]:
    ours = {every: found[1] for every, found in _PAPER_12.items()}
    naive = {every: found[0] for every, found in _PAPER_12.items()}
    told = equals(rows, "naive: 60, 147 and 280 updates", "updates", naive, "every", NAIVE)
    why = "; if each change runs to the end of the month, 147 and 280 need a first one two days before the month"
    return [
        *(
            equals(rows, f"by {way}: 28, 35 and 43 updates, the optimum", "updates", ours, "every", way)
            for way in (FILES, BACKFILLS)
        ),
        Finding(told.claim, told.holds, told.found + ("" if told.holds else why)),
    ]


add(
    Experiment(
        "youtube-self",
        "Table 12: a month of a table that reads its own yesterday, every N-th day changed",
        {"every": (8, 4, 2), "days": 30},
        points("youtube-self", "every"),
        _self,
        _judge_self,
        Picture("every", "updates", "way"),
    )
)
