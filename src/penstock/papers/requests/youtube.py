"""The experiments of Xu, Gao, Davidson 2023: how many updates a set of backfills takes, by the way in which requests are
triggered and merged. Beside each result stands the paper's number and, where that cannot be reached, why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.book import Trigger
from penstock.papers.requests.simulator import Arrival, Covered, Immediate, simulate
from penstock.papers.requests.triggers import Eager, Lazy
from penstock.requests.plan import Backfill, plan
from penstock.sim.rows import Row, averages

Parameters = Mapping[str, Any]

NAIVE, COVERED, LAZY, GROUP, EAGER = "naive", "lazy, no look back", "lazy", "grouping", "eager"
TRIGGERS: dict[str, Callable[[], Trigger]] = {
    NAIVE: Immediate,
    COVERED: Covered,
    LAZY: Lazy,
    # Backfills of one group are announced together; from then on it is lazy.
    GROUP: Lazy,
    EAGER: Eager,
}


def points(name: str, *keys: str) -> Callable[[Parameters, Sequence[int]], list[Any]]:
    """A task for each combination of some parameters' values and each seed."""

    def made(parameters: Parameters, seeds: Sequence[int]) -> list[Any]:
        found: list[dict[str, Any]] = [dict(parameters, experiment=name)]
        for key in keys:
            found = [{**point, key: value} for point in found for value in point[key]]
        return [{**point, "seed": seed} for point in found for seed in seeds]

    return made


def flat(rows: list[Row], point: Parameters) -> list[Row]:
    """With all parameters by name; what was not measured, or is not in the paper, is left out."""
    given = {key: value for key, value in point.items() if isinstance(value, int | float | str)}
    return [
        {"experiment": point["experiment"], **given, **{key: value for key, value in row.items() if value is not None}}
        for row in rows
    ]


def minutes(name: str, rng: Random) -> float:
    """As long as the paper's jobs took."""
    return rng.uniform(20.0, 60.0)


def whole(reads: Mapping[str, Sequence[str]]) -> Graph:
    """Tables of one partition."""
    return Graph(
        [Feed("feed")],
        [
            Table(name, sources=tuple(Source(source) for source in sources), feed=None if sources else "feed")
            for name, sources in reads.items()
        ],
    )


def equals(rows: list[Row], claim: str, key: str, expected: Mapping[Any, float], x: str, series: str = "") -> Finding:
    """Whether a mean is what the paper says at each point that was measured."""
    chosen = [row for row in rows if not series or row["trigger"] == series]
    found = {group[0]: value for group, value in averages(chosen, key, x).items()}
    told = ", ".join(
        f"{value:g} at {x} {at:g} (paper {expected[at]:g})" for at, value in found.items() if at in expected
    )
    return Finding(claim, all(found[at] == expected[at] for at in found if at in expected), told)


# Table 4: one change, a diamond


def _diamond(point: Any) -> list[Row]:
    reads = {"a": (), **{f"b{n}": ("a",) for n in range(point["ways"])}}
    reads["d"] = tuple(f"b{n}" for n in range(point["ways"]))
    rows = []
    for trigger in point["triggers"]:
        found = simulate(
            whole(reads),
            TRIGGERS[trigger](),
            [Arrival(0, (Backfill("a", EVERYTHING),))],
            lambda name, rng: 0.0 if name == "d" else minutes(name, rng),
            Random(point["seed"]),
        )
        rows.append(
            {
                "experiment": point["experiment"],
                "ways": point["ways"],
                "trigger": trigger,
                "seed": point["seed"],
                "updates_of_d": found.updates["d"],
                "updates": found.total,
                "duplicates": found.repeated,
                "paper": 1 if trigger != NAIVE else point["ways"],
            }
        )
    return flat(rows, point)


add(
    Experiment(
        "youtube-diamond",
        "Table 4: one change that comes by several ways",
        {"ways": (2, 3, 5, 10), "triggers": (NAIVE, COVERED, LAZY, EAGER)},
        points("youtube-diamond", "ways"),
        _diamond,
        lambda rows: (
            [
                equals(
                    rows,
                    f"{trigger}: the bottom table is updated once",
                    "updates_of_d",
                    dict.fromkeys(range(99), 1),
                    "ways",
                    trigger,
                )
                for trigger in (COVERED, LAZY, EAGER)
            ]
            + [
                equals(
                    rows,
                    "naive: once for each way (Sec. 1.1)",
                    "updates_of_d",
                    {n: n for n in range(99)},
                    "ways",
                    NAIVE,
                )
            ]
        ),
        Picture("ways", "updates_of_d", "trigger"),
    )
)


# Table 6: a day of hours, and a queue before the daily table

_PAPER_6 = {0.0: 24, 1.0: 4, 2.0: 2, 3.0: 2}


def _rollup(point: Any) -> list[Row]:
    graph = Graph(
        [Feed("feed")],
        [Table("hourly", "hour", feed="feed"), Table("daily", "day", sources=(Source("hourly", (0, 1)),))],
    )
    day = PartitionSet.of((0, DAY_US))
    hours = [Backfill("hourly", PartitionSet.of((n * HOUR_US, (n + 1) * HOUR_US))) for n in range(24)]

    def run_time(name: str, rng: Random) -> float:
        return max(1.0, rng.gauss(point["mean"], point["stdev"])) if name == "hourly" else point["daily"]

    rows = []
    for trigger in point["triggers"]:
        queue = {"daily": point["queue"] * point["stdev"]}
        arrivals = [Arrival(0.0, (hour,)) for hour in hours]
        found = simulate(
            graph,
            TRIGGERS[trigger](),
            arrivals,
            run_time,
            Random(point["seed"]),
            queue_s=queue,
            extent=lambda _: day,
            by_partition=True,
        )
        fresh, seen = [], 0
        for _, name, count in found.runs:
            if name == "hourly":
                seen += count
            else:
                fresh.append(seen)
        updates = found.updates["daily"]
        rows.append(
            {
                "experiment": point["experiment"],
                "queue": point["queue"],
                "trigger": trigger,
                "seed": point["seed"],
                "updates_of_daily": updates,
                "unneeded_share": (updates - 1) / updates,
                "fresh_inputs": ", ".join(map(str, fresh)),
                "done_s": found.ended_s,
                "paper": _PAPER_6.get(point["queue"]) if trigger == NAIVE else None,
            }
        )
    return flat(rows, point)


def _judge_rollup(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "updates_of_daily", "queue", "trigger")
    findings = []
    for queue, updates in _PAPER_6.items():
        at = found.get((queue, NAIVE))
        if at is not None:
            near = at == updates if not queue else abs(at - updates) <= 1
            findings.append(
                Finding(f"queue of {queue:g} standard deviations: {updates} updates", near, f"{at:.2f} on average")
            )
    known = [row["updates_of_daily"] for row in rows if row["trigger"] in (LAZY, EAGER)]
    findings.append(
        Finding(
            "beyond the paper: with requests that know of each other one update, without any queue",
            bool(known) and set(known) == {1},
            f"{max(known, default=0)} at most",
        )
    )
    return findings


add(
    Experiment(
        "youtube-rollup",
        "Table 6: hours into a day, with a queue of 0 to 3 standard deviations",
        {
            "queue": (0.0, 1.0, 2.0, 3.0),
            "mean": 300.0,
            "stdev": 100.0,
            "daily": 0.0,
            "triggers": (NAIVE, LAZY, EAGER),
        },
        points("youtube-rollup", "queue"),
        _rollup,
        _judge_rollup,
        Picture("queue", "updates_of_daily", "trigger"),
    )
)


# Table 12: a table that reads its yesterday

_DAYS_12 = {8: (6, 14, 22), 4: tuple(range(3, 28, 4)), 2: tuple(range(2, 29, 2))}
_PAPER_12 = {8: (60, 28), 4: (147, 35), 2: (280, 43)}


def _self(point: Any) -> list[Row]:
    graph = Graph(
        [Feed("feed")],
        [
            Table("increments", "day", feed="feed"),
            Table("so_far", "day", sources=(Source("increments", (0, 1)), Source("so_far", (-1, 0)))),
        ],
    )
    month = PartitionSet.of((0, point["days"] * DAY_US))
    every = point["every"]
    days = _DAYS_12.get(every) or tuple(range(every, point["days"] + 1, every))
    backfills = [Backfill("increments", PartitionSet.of(((day - 1) * DAY_US, day * DAY_US))) for day in days]
    campaign = plan(graph, backfills, lambda _: month)
    naive, ours = _PAPER_12.get(every, (None, None))
    rows = []
    for trigger in point["triggers"]:
        if trigger == NAIVE:
            total = campaign.separately  # each backfill makes its own way to the end of the month
        else:
            arrivals = [Arrival(0.0, (backfill,)) for backfill in backfills]
            total = simulate(
                graph,
                TRIGGERS[trigger](),
                arrivals,
                minutes,
                Random(point["seed"]),
                extent=lambda _: month,
                by_partition=True,
            ).total
        rows.append(
            {
                "experiment": point["experiment"],
                "every": every,
                "trigger": trigger,
                "seed": point["seed"],
                "backfills": len(days),
                "updates": total,
                "optimal": campaign.updates,
                "paper": naive if trigger == NAIVE else ours,
            }
        )
    return flat(rows, point)


def _judge_self(rows: list[Row]) -> list[Finding]:
    ours = {every: found[1] for every, found in _PAPER_12.items()}
    naive = {every: found[0] for every, found in _PAPER_12.items()}
    told = equals(rows, "naive: 60, 147 and 280 updates", "updates", naive, "every", NAIVE)
    why = "; if each backfill runs to the end of the month, 147 and 280 need a first one two days before the month"
    return [
        *(
            equals(rows, f"{trigger}: 28, 35 and 43 updates, the optimum", "updates", ours, "every", trigger)
            for trigger in (LAZY, EAGER)
        ),
        Finding(told.claim, told.holds, told.found + ("" if told.holds else why)),
    ]


add(
    Experiment(
        "youtube-self",
        "Table 12: a month of a table that reads its own yesterday, every N-th day backfilled",
        {"every": (8, 4, 2), "days": 30, "triggers": (NAIVE, LAZY, EAGER)},
        points("youtube-self", "every"),
        _self,
        _judge_self,
        Picture("every", "updates", "trigger"),
    )
)
