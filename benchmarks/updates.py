"""Small updates through Penstock against hand-written PySpark that does the same reads and writes in the same warm session.

Runs are interleaved, so that both see the same machine; the figure is the median of the ratios of neighbouring runs. The
hand-written jobs are what a good engineer would write: schemas given, one file out, the roll-up folded incrementally into
the hour's file. What they do not do is what Penstock adds: bad rows counted and kept, versions, one transaction,
statistics, and knowing what to run.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.app import Warehouse
from penstock.engine.runtime import Runtime
from penstock.engine.spark.session import start_spark

WARM_UP = 15
REPEATS = 25
ROWS = 1000

TOML = """
name = "bench"
[feeds.stats]
path = "landing/*.csv"
format = "csv"
columns = "router string, ts timestamp, bytes bigint"
time = "ts"
partition = "hour"
settle = "0s"
"""
HOURLY = """
-- partition = "hour"
-- time = "hour"
SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes, count(*) AS n FROM stats GROUP BY 1, 2
"""
DAILY = """
-- partition = "day"
-- time = "day"
SELECT router, date_trunc('day', hour) AS day, sum(bytes) AS bytes, sum(n) AS n FROM hourly GROUP BY 1, 2
"""
TOTAL = """
SELECT router, sum(bytes) AS bytes, sum(n) AS n FROM daily GROUP BY 1
"""


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-spark-") as scratch:
        spark = start_spark("bench", Path(scratch), {})
        return [
            _compare(spark, "one small update (1k rows, base and one aggregate)", {"hourly": HOURLY}, 1, 1.25),
            _compare(
                spark,
                "a file through three levels of views",
                {"hourly": HOURLY, "daily": DAILY, "total": TOTAL},
                3,
                1.3,
            ),
        ]


def _compare(spark: SparkSession, name: str, tables: dict[str, str], levels: int, limit: float) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with _warehouse(spark, folder, tables) as (runtime, warehouse):
            hand = Hand(warehouse.spark.newSession(), folder / "hand", levels)
            pairs = []
            for number in range(WARM_UP + REPEATS):
                _write(folder / "landing", number)
                both: list[Callable[[], float]] = [
                    lambda: _timed(lambda: runtime.run(until_idle=True)),
                    lambda number=number: _timed(lambda: hand.run(folder / "landing" / f"{number:05d}.csv", number)),
                ]
                # Who goes first alternates.
                first, second = (0, 1) if number % 2 else (1, 0)
                took = {first: both[first](), second: both[second]()}
                if number >= WARM_UP:
                    pairs.append((took[0], took[1]))
            last = list(tables)[-1]
            same = _rows(warehouse.table(last)) == _rows(hand.result())
        ours, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
        return {
            "benchmark": name,
            "against": "hand-written PySpark, same session",
            "penstock_s": ours,
            "other_s": theirs,
            "ratio": median(a / b for a, b in pairs),
            "limit": limit,
            "same_rows": same,
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


@contextmanager
def _warehouse(spark: SparkSession, folder: Path, tables: dict[str, str]) -> Iterator[tuple[Runtime, Warehouse]]:
    (folder / "landing").mkdir()
    (folder / "tables").mkdir()
    (folder / "penstock.toml").write_text(TOML)
    for name, sql in tables.items():
        (folder / "tables" / f"{name}.sql").write_text(sql)
    with Warehouse(folder, spark=spark) as warehouse, warehouse.running() as runtime:
        yield runtime, warehouse


def _write(folder: Path, number: int) -> None:
    """A minute of statistics, put in place by renaming."""
    chance = random.Random(number)
    lines = ["router,ts,bytes"]
    for row in range(ROWS):
        second = number * 60 + row * 60 // ROWS
        clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(f"r{row % 50},2024-01-01T{clock}Z,{chance.randrange(1000)}")
    staged = folder / f".{number:05d}.csv"
    staged.write_text("\n".join(lines) + "\n")
    staged.rename(folder / f"{number:05d}.csv")


def _rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


class Hand:
    """The same work by hand: one folder per table and hour, replaced by renaming."""

    def __init__(self, session: SparkSession, folder: Path, levels: int) -> None:
        self.session = session
        self.folder = folder
        self.levels = levels
        self.done: dict[str, Path] = {}

    def run(self, file: Path, number: int) -> None:
        new = self.folder / "stats" / f"{number}"
        rows = (
            self.session.read.schema("router string, ts timestamp, bytes bigint, _bad string")
            .options(header=True, columnNameOfCorruptRecord="_bad")
            .csv(str(file))
            .where("_bad is null and ts is not null")
            .drop("_bad")
        )
        rows.withColumn("p", F.date_trunc("hour", "ts")).coalesce(1).write.partitionBy("p").parquet(str(new))
        self._hourly(new, number)
        if self.levels == 3:
            self._summed("daily", "hourly", F.date_trunc("day", "hour").alias("day"), number)
            self._summed("total", "daily", None, number)

    def _hourly(self, new: Path, number: int) -> None:
        rows = self.session.read.schema("router string, ts timestamp, bytes bigint").parquet(str(new))
        keys = ["router", F.date_trunc("hour", "ts").alias("hour")]
        folded = rows.groupBy(*keys).agg(F.sum("bytes").alias("bytes"), F.count("*").alias("n"))
        if "hourly" in self.done:
            schema = "router string, hour timestamp, bytes bigint, n bigint"
            stored = self.session.read.schema(schema).parquet(str(self.done["hourly"]))
            folded = (
                stored.unionAll(folded)
                .groupBy("router", "hour")
                .agg(F.sum("bytes").alias("bytes"), F.sum("n").alias("n"))
            )
        self._put("hourly", folded, number)

    def _summed(self, name: str, source: str, key: object, number: int) -> None:
        column = {"hourly": "hour", "daily": "day"}[source]
        schema = f"router string, {column} timestamp, bytes bigint, n bigint"
        rows = self.session.read.schema(schema).parquet(str(self.done[source]))
        keys = ["router", *([key] if key is not None else [])]
        self._put(name, rows.groupBy(*keys).agg(F.sum("bytes").alias("bytes"), F.sum("n").alias("n")), number)

    def _put(self, name: str, rows: DataFrame, number: int) -> None:
        place = self.folder / name / f"{number}"
        rows.coalesce(1).write.parquet(str(place))
        old = self.done.get(name)
        self.done[name] = place
        if old is not None:
            shutil.rmtree(old)

    def result(self) -> DataFrame:
        name = "total" if self.levels == 3 else "hourly"
        return self.session.read.parquet(str(self.done[name]))
