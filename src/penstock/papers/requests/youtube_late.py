"""What it gains to weigh lateness against cost (Xu, Gao, Davidson 2023, Sec. 4.2), on the controller that users run: with `patience` alone
late work waits whenever that saves an update; with `late_cost` only where what is saved costs more than the lateness.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from penstock.model.time import SECOND_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.live import Arrival, flat, minutes, points, run_live, whole
from penstock.papers.requests.youtube_queue import BUSINESS, LOADED, STAGES
from penstock.sim.outcome import Row, averages

NEVER, ALWAYS, WEIGHED = "never", "if it saves", "if it pays"


def _lateness(point: Any) -> list[Row]:
    rng = Random(point["seed"])
    at, arrivals = 0.0, []
    for _ in range(point["changes"]):
        at += rng.expovariate(1.0 / point["interval"])
        arrivals.append(Arrival(at, rng.choice(LOADED), file=True))
    # The same price for all that is read: the tables between have none of their own.
    price = dict.fromkeys(BUSINESS, point["price"])
    rows: list[Row] = []
    for waits in (NEVER, ALWAYS, WEIGHED):
        tables = [
            replace(
                table,
                patience_us=0 if waits == NEVER else int(point["patience"] * SECOND_US),
                late_cost=price.get(table.name, 0.0) if waits == WEIGHED else 0.0,
            )
            for table in whole(STAGES)
        ]
        found = run_live(tables, arrivals, minutes, Random(point["seed"]), rounds=20)
        late = sum(price.get(name, 0.0) * seconds / 3600.0 for name, seconds in found.late_s.items())
        rows.append(
            {"waits": waits, "updates": found.total, "run_s": found.run_s, "late_s": late, "cost_s": found.run_s + late}
        )
    return flat(rows, point)


def _judge(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "cost_s", "price", "waits")
    prices = sorted({price for price, _ in found})
    best = [min(found[price, NEVER], found[price, ALWAYS]) for price in prices]
    told = ", ".join(f"{found[p, WEIGHED] / least - 1:+.1%} at {p:g}" for p, least in zip(prices, best, strict=True))
    near = all(found[price, WEIGHED] <= 1.02 * least for price, least in zip(prices, best, strict=True))
    gains = {
        other: sum(found[p, other] for p in prices) / sum(found[p, WEIGHED] for p in prices) - 1
        for other in (NEVER, ALWAYS)
    }
    said = ", ".join(f"{gain:.1%} less than waiting {other}" for other, gain in gains.items())
    return [
        Finding(
            "at each price weighing costs at most 2 % more than the better of the two rules that do not", near, told
        ),
        Finding("over all prices it costs less than either", min(gains.values()) > 0, said),
    ]


add(
    Experiment(
        "youtube-lateness",
        "Sec. 4.2: a 3-1-3 pipeline with a price of lateness, in seconds of updates for an hour",
        {"price": (0.0, 300.0, 1000.0, 3000.0), "changes": 200, "interval": 90.0, "patience": 600.0},
        points("youtube-lateness", "price"),
        _lateness,
        _judge,
        Picture("price", "cost_s", "waits"),
    )
)
