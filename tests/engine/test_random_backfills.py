"""Random graphs, corrections and backfills on Spark, of fixed seeds: overlapping, downstream or not, cancelled, with and
without patience. At rest every table equals what DuckDB computes from the files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.conftest import Write
from tests.control.replay import replay
from tests.engine.test_backfill import day, made, run
from tests.oracle import assert_same, attach

pytestmark = pytest.mark.spark

DAYS = 9
# What is read, and which days of the source that is for the day `d`.
WINDOWS = {
    "DAY": "its = d",
    "DAY - 1": "its = d - to_days(1)",
    "DAY - 2 .. DAY": "its BETWEEN d - to_days(2) AND d",
    "DAY, DAY - 3": "its IN (d, d - to_days(3))",
    "WEEK - 1, DAY": "(its = d OR date_trunc('week', its) = date_trunc('week', d) - to_days(7))",
}


@dataclass
class RandomShop:
    """Two feeds by day; each view adds up what it reads of one or two tables above it, in windows of days."""

    rng: Random
    patience: str
    reads: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        above = ["b0", "b1"]
        for number in range(self.rng.choice([4, 5])):
            sources = self.rng.sample(above[-4:], self.rng.choice([1, 2, 2]))
            windows = ["DAY", "DAY", self.rng.choice(list(WINDOWS))]
            self.reads[f"v{number}"] = {source: self.rng.choice(windows) for source in sources}
            above.append(f"v{number}")

    def files(self) -> dict[str, str]:
        found = {"penstock.toml": f'name = "random"\n[run]\npatience = "{self.patience}"\n'}
        for feed in ("b0", "b1"):
            found["penstock.toml"] += (
                f'[feeds.{feed}]\npath = "landing/{feed}/*.csv"\nformat = "csv"\ncolumns = "day timestamp, k string, v bigint"\n'
                'time = "day"\npartition = "day"\nsettle = "0s"\n'
            )
        for name, sources in self.reads.items():
            rows = " UNION ALL ".join(f"SELECT k, v + {n} AS v FROM {each}" for n, each in enumerate(sources))
            header = "".join(f'-- sources.{source} = "{window}"\n' for source, window in sources.items())
            chop = f"-- chop = {self.rng.choice([2, 3])}\n" if self.rng.random() < 0.3 else ""
            found[f"tables/{name}.sql"] = (
                f'-- partition = "day"\n-- time = "day"\n{header}{chop}'
                f"SELECT :partition_start AS day, k, sum(v) AS v FROM ({rows}) GROUP BY k\n"
            )
        return found

    def deliver(self, folder: Path, feed: str, number: int, *, silently: bool = False) -> None:
        """The file of a day; again with other numbers, so that it shows as a correction, or so that it does not."""
        path = folder / "landing" / feed / f"{number:03}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat() if silently else None
        rows = [f"{day(number)}T{at:02}:00:00Z,{k},{self.rng.randrange(100, 1000)}" for at, k in enumerate("ab")]
        staged = path.with_name(f".{path.name}")
        staged.write_text("\n".join(["day,k,v", *rows]) + "\n")
        if before is not None:
            os.utime(staged, ns=(before.st_atime_ns, before.st_mtime_ns))
        staged.replace(path)

    def check(self, folder: Path) -> None:
        """All days but the last few, whose rows may still wait for others."""
        con = attach(folder)
        for feed in ("b0", "b1"):
            con.execute(
                f"CREATE VIEW {feed} AS SELECT day::TIMESTAMPTZ AS day, k, v::BIGINT AS v "
                f"FROM read_csv('{folder}/landing/{feed}/*.csv', header=true, all_varchar=true)"
            )
        con.execute(f"CREATE TABLE days AS SELECT TIMESTAMPTZ '{day(0)}' + to_days(n::INT) AS d FROM range(30) t(n)")
        last = f"TIMESTAMPTZ '{day(DAYS - 1)}'"
        for name, sources in self.reads.items():
            parts = " UNION ALL ".join(
                f"SELECT d, k, v + {n} AS v FROM days "
                f"JOIN (SELECT *, date_trunc('day', day) AS its FROM {source}) ON {WINDOWS[window]}"
                for n, (source, window) in enumerate(sources.items())
            )
            con.execute(f"CREATE VIEW {name} AS SELECT d AS day, k, sum(v)::BIGINT AS v FROM ({parts}) GROUP BY 1, 2")
            published, expected = (f"SELECT * FROM {place}{name} WHERE day < {last}" for place in ("lake.", ""))
            assert_same(con, published, expected, f"{name} reads {sources}")
        con.close()


def wishes(shop: RandomShop, warehouse: Warehouse, folder: Path) -> int:
    """Corrections that files show, corrections that only a backfill of their days brings, and backfills of views."""
    rng = shop.rng
    for _ in range(rng.choice([1, 2])):
        first = rng.randrange(DAYS - 4)
        last = first + rng.randrange(3)
        feed = rng.choice(["b0", "b1"])
        for number in range(first, last + 1):
            shop.deliver(folder, feed, number, silently=True)
        warehouse.backfill(feed, f"{day(first)}..{day(last)}", reason="correction")
    for _ in range(rng.choice([1, 2, 3])):
        first = rng.randrange(DAYS - 4)
        span = f"{day(first)}..{day(first + rng.randrange(4))}"
        asked = warehouse.backfill(rng.choice(list(shop.reads)), span, downstream=rng.random() < 0.7)
        if rng.random() < 0.2:
            warehouse.cancel(asked.request.request)
    if rng.random() < 0.5:
        shop.deliver(folder, rng.choice(["b0", "b1"]), rng.randrange(DAYS - 4))
        return 1
    return 0


@pytest.mark.parametrize(("seed", "patience"), [(6, "3s"), pytest.param(1, "0s", marks=pytest.mark.soak)])
def test_random_requests(project: Write, spark: SparkSession, seed: int, patience: str) -> None:
    ask_at_random(project, spark, seed, patience, rounds=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 15))
def test_more_random_requests(project: Write, spark: SparkSession, seed: int) -> None:
    ask_at_random(project, spark, seed, f"{seed % 4 * 10}s", rounds=3)


def ask_at_random(project: Write, spark: SparkSession, seed: int, patience: str, rounds: int) -> None:
    shop = RandomShop(Random(seed), patience)
    folder = project(shop.files())
    for feed in ("b0", "b1"):
        for number in range(DAYS):
            shop.deliver(folder, feed, number)
    with Warehouse(folder, spark=spark) as warehouse:
        run(warehouse)
        shop.check(folder)
        for _ in range(rounds):
            before = warehouse.state().applied
            corrections = wishes(shop, warehouse, folder)
            run(warehouse)
            shop.check(folder)
            assert all(each.finished_us is not None for each in warehouse.requests())
            # All that was asked for is one reason; a corrected file that is noticed meanwhile is another.
            assert max(made(warehouse, before).values(), default=0) <= 1 + corrections
        with warehouse.store.read() as conn:
            assert replay(list(warehouse.store.events(conn))) == []
