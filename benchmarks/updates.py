"""Small updates through Penstock against hand-written PySpark that does the same reads and writes in the same warm session.

Runs are interleaved, so that all see the same machine; the figure is the median of the ratios of neighbouring runs. The
hand-written jobs are what a good engineer would write: schemas given, one file out, the roll-up folded incrementally into
the hour's file. One writes with Spark, one collects its small results and writes them with pyarrow, as Penstock does. What they
do not do is what Penstock adds: bad rows counted and kept, versions, one transaction, statistics, and knowing what to run.

`arrival` is the time from a file's arrival to the commit of the third level: `run` as it runs, against a loop that looks at the folder.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.flow_variants import cpu_s
from penstock.app import Warehouse
from penstock.control.events import UpdateFinished
from penstock.engine.runtime import Runtime
from penstock.engine.spark.session import start_spark

WARM_UP = int(os.environ.get("PENSTOCK_BENCH_WARM_UP", "15"))
REPEATS = int(os.environ.get("PENSTOCK_BENCH_REPEATS", "25"))
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
        one, three = {"hourly": HOURLY}, {"hourly": HOURLY, "daily": DAILY, "total": TOTAL}
        return [
            *_compare(spark, "one small update (1k rows, base and one aggregate)", one, (0.65, 1.1)),
            *_compare(spark, "a file through three levels of views", three, (0.55, None)),
            _arrivals(spark, three, 0.5),
        ]


@dataclass
class Took:
    """What one side of a comparison took, run by run."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def _compare(
    spark: SparkSession, name: str, tables: dict[str, str], limits: tuple[float, float | None]
) -> list[dict[str, object]]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with _warehouse(spark, folder, tables) as (runtime, warehouse):
            hands = [
                kind(warehouse.spark.newSession(), folder / kind.__name__, len(tables)) for kind in (Hand, ArrowHand)
            ]
            took = [Took(), Took(), Took()]
            for number in range(WARM_UP + REPEATS):
                file = _write(folder / "landing", number)
                works: list[Callable[[], object]] = [partial(runtime.run, until_idle=True)]
                works += [partial(hand.run, file, number) for hand in hands]
                # Who goes first takes turns.
                for side in (number % 3, (number + 1) % 3, (number + 2) % 3):
                    cpu, wall = cpu_s(spark), perf_counter()
                    works[side]()
                    if number >= WARM_UP:
                        took[side].wall_s.append(perf_counter() - wall)
                        took[side].cpu_s.append(cpu_s(spark) - cpu)
            ours = _rows(warehouse.table(list(tables)[-1]))
            same = [ours == _rows(hand.result()) for hand in hands]
        return [
            {"benchmark": name, "against": against, **_ratios(took[0], theirs), **_limit(limit), "same_rows": equal}
            for against, theirs, limit, equal in zip(
                ("a script with Spark's writer", "a script with pyarrow's"), took[1:], limits, same, strict=True
            )
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _limit(limit: float | None) -> dict[str, object]:
    return {} if limit is None else {"limit": limit}


def _ratios(ours: Took, theirs: Took) -> dict[str, object]:
    return {
        "penstock_s": median(ours.wall_s),
        "other_s": median(theirs.wall_s),
        "ratio": median(a / b for a, b in zip(ours.wall_s, theirs.wall_s, strict=True)),
        "penstock_cpu_s": sum(ours.cpu_s) / len(ours.cpu_s),
        "cpu_ratio": sum(ours.cpu_s) / sum(theirs.cpu_s),
    }


def _arrivals(spark: SparkSession, tables: dict[str, str], limit: float) -> dict[str, object]:
    """One file after the other, each when the one before has come through on both sides; they take turns."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    took = [Took(), Took()]
    through = threading.Event()
    try:
        with _warehouse(spark, folder, tables) as (runtime, warehouse):
            runtime.on_event = lambda _, event: (
                through.set() if isinstance(event, UpdateFinished) and event.table == list(tables)[-1] else None
            )
            loop = Loop(Hand(warehouse.spark.newSession(), folder / "hand", len(tables)), folder / "other", through.set)
            (folder / "other").mkdir()
            running = threading.Thread(target=runtime.run)
            for thread in (running, loop):
                thread.start()
            for number in range(WARM_UP + REPEATS):
                for side in (0, 1) if number % 2 else (1, 0):
                    sleep(random.Random(number).random())  # whenever either looks
                    through.clear()
                    cpu, wall = cpu_s(spark), perf_counter()
                    _write(folder / ("landing", "other")[side], number)
                    if not through.wait(120):
                        raise TimeoutError("the file did not come through")
                    if number >= WARM_UP:
                        took[side].wall_s.append(perf_counter() - wall)
                        took[side].cpu_s.append(cpu_s(spark) - cpu)
            loop.ended.set()
            runtime.stop()
            for thread in (running, loop):
                thread.join()
            same = _rows(warehouse.table(list(tables)[-1])) == _rows(loop.hand.result())
        return {
            "benchmark": "from a file's arrival to the third level",
            "against": "a script in a loop that looks every 100 ms",
            **_ratios(took[0], took[1]),
            "limit": limit,
            "same_rows": same,
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Loop(threading.Thread):
    """What people write: look at the folder, do what is new, sleep."""

    def __init__(self, hand: Hand, folder: Path, done: Callable[[], None]) -> None:
        super().__init__()
        self.hand = hand
        self.folder = folder
        self.done = done
        self.ended = threading.Event()

    def run(self) -> None:
        seen: set[str] = set()
        while not self.ended.wait(0.1):
            for file in sorted(self.folder.glob("[0-9]*.csv")):
                if file.name not in seen:
                    seen.add(file.name)
                    self.hand.run(file, int(file.stem))
                    self.done()


@contextmanager
def _warehouse(spark: SparkSession, folder: Path, tables: dict[str, str]) -> Iterator[tuple[Runtime, Warehouse]]:
    (folder / "landing").mkdir()
    (folder / "tables").mkdir()
    (folder / "penstock.toml").write_text(TOML)
    for name, sql in tables.items():
        (folder / "tables" / f"{name}.sql").write_text(sql)
    with Warehouse(folder, spark=spark) as warehouse, warehouse.running() as runtime:
        yield runtime, warehouse


def _write(folder: Path, number: int) -> Path:
    """A minute of statistics, put in place by renaming."""
    chance = random.Random(number)
    lines = ["router,ts,bytes"]
    for row in range(ROWS):
        second = number * 60 + row * 60 // ROWS
        clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(f"r{row % 50},2024-01-01T{clock}Z,{chance.randrange(1000)}")
    staged = folder / f".{number:05d}.csv"
    staged.write_text("\n".join(lines) + "\n")
    return staged.rename(folder / f"{number:05d}.csv")


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
        self._load(rows, new)
        self._hourly(new, number)
        if self.levels == 3:
            self._summed("daily", "hourly", F.date_trunc("day", "hour").alias("day"), number)
            self._summed("total", "daily", None, number)

    def _load(self, rows: DataFrame, new: Path) -> None:
        rows.withColumn("p", F.date_trunc("hour", "ts")).coalesce(1).write.partitionBy("p").parquet(str(new))

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
        self._written(rows.coalesce(1), place)
        old = self.done.get(name)
        self.done[name] = place
        if old is not None:
            shutil.rmtree(old)

    def _written(self, rows: DataFrame, place: Path) -> None:
        rows.write.parquet(str(place))

    def result(self) -> DataFrame:
        name = "total" if self.levels == 3 else "hourly"
        return self.session.read.parquet(str(self.done[name]))


class ArrowHand(Hand):
    """The same; what is small comes into this process, and pyarrow writes it."""

    def _load(self, rows: DataFrame, new: Path) -> None:
        self._written(rows.coalesce(1), new)  # of one hour, as all files are

    def _written(self, rows: DataFrame, place: Path) -> None:
        found = rows.toArrow()
        place.mkdir(parents=True)
        pq.write_table(found, place / "part-0.parquet")
