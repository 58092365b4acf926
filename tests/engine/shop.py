"""A small warehouse that is fed and asked at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.runtime import Pace, Runtime

TOML = """
    name = "shop"

    [run]
    tracks = 2

    [profiles.board]
    within = "20s"
    fresh = "1h"
    share = 3.0

    [profiles.audit]
    lag = 0
    stale = "withhold"
    missed = 2.0

    [feeds.sales]
    path = "landing/sales/*.csv"
    format = "csv"
    columns = "shop string, ts timestamp, amount bigint"
    time = "ts"
    period = "10s"
    partition = "hour"
    settle = "0s"

    [feeds.shops]
    path = "landing/shops/*.csv"
    format = "csv"
    columns = "shop string, city string"
    mode = "snapshot"
    period = "1d"
    settle = "0s"
"""
HOURLY = """
    -- partition = "hour"
    -- time = "hour"
    SELECT shop, date_trunc('hour', ts) AS hour, sum(amount) AS amount, count(*) AS n
    FROM sales GROUP BY shop, date_trunc('hour', ts)
"""
DAILY = """
    -- partition = "day"
    -- time = "day"
    SELECT shop, date_trunc('day', hour) AS day, sum(amount) AS amount, sum(n) AS n
    FROM hourly GROUP BY shop, date_trunc('day', hour)
"""
FILES = {"penstock.toml": TOML, "tables/hourly.sql": HOURLY, "tables/daily.sql": DAILY}


def put(folder: Path, feed: str, name: str, lines: list[str]) -> None:
    """A file, whole at once."""
    header = {"sales": "shop,ts,amount", "shops": "shop,city"}[feed]
    place = folder / "landing" / feed
    place.mkdir(parents=True, exist_ok=True)
    staged = place / f".{name}"
    staged.write_text("\n".join((header, *lines)) + "\n")
    staged.rename(place / f"{name}.csv")


def sales(at: datetime, rows: int = 3, amount: int = 10, shop: str = "berlin") -> list[str]:
    return [f"{shop},{(at - timedelta(seconds=n)).astimezone(UTC).isoformat()},{amount}" for n in range(rows)]


class Hand:
    """A clock that stands still until someone moves it; waiting takes no time."""

    speed = 1.0

    def __init__(self, now_us: int) -> None:
        self.at_us = now_us

    def now_us(self) -> int:
        return self.at_us

    def wall_s(self, duration_us: int) -> float:
        return 0.01


@contextmanager
def living(folder: Path, spark: SparkSession) -> Iterator[tuple[Warehouse, Runtime]]:
    """The warehouse with its loop in a thread."""
    with Warehouse(folder, spark=spark) as warehouse, warehouse.running(Pace(0.05, 0.05)) as runtime:
        thread = threading.Thread(target=runtime.run)
        thread.start()
        try:
            yield warehouse, runtime
        finally:
            runtime.stop()
            thread.join()
