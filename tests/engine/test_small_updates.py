"""What a small update costs beside its data: questions to the JVM, and programs that Spark compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.updates.rows import rows_between
from tests.conftest import Write
from tests.oracle import attach, rows

TOML = """
name = "small"
[feeds.c]
path = "landing/*.csv"
format = "csv"
columns = "k string, ts timestamp, _metadata int"
time = "ts"
partition = "day"
settle = "0s"
lateness = "1m"
"""
SUMS = """-- partition = "day"
-- time = "day"
SELECT date_trunc('day', ts) AS day, k, sum(_metadata) AS v FROM c GROUP BY 1, 2
"""


@pytest.mark.spark
def test_a_small_update_asks_little_and_compiles_nothing(
    project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({"penstock.toml": TOML, "tables/sums.sql": SUMS})
    (folder / "landing").mkdir()
    asked: list[str] = []
    send = JavaClient.send_command

    def counted(self: JavaClient, command: str, *args: Any, **more: Any) -> Any:
        asked.append(command)
        return send(self, command, *args, **more)

    jvm: Any = spark.sparkContext._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    with Warehouse(folder, spark=spark) as warehouse, warehouse.running() as runtime:
        for number in range(6):
            before = compiled.getCount()
            with monkeypatch.context() as patch:
                patch.setattr(JavaClient, "send_command", counted)
                asked.clear()
                # The last of them waits for the lateness of its feed, and is used by the update after.
                lines = [f"a,2024-01-01T10:0{number}:{second:02d}Z,{second}" for second in range(60)]
                put(folder, number, *lines)
                runtime.run(until_idle=True)
        calls = [command for command in asked if not command.startswith("m")]  # those only free memory
        assert compiled.getCount() == before, "an update like the one before is another program"
        # About 125 in a session of its own; a few more where others worked in it before.
        assert len(calls) < 150, f"{len(calls)} questions to the JVM by a load and an aggregate"
    db = attach(folder)
    assert rows(db, "select count(*), sum(_metadata) from lake.c") == [(360, 6 * 1770)]
    assert rows(db, "select k, sum(v) from lake.sums group by 1") == [("a", 5 * 1770)]


def put(folder: Path, number: int, *lines: str) -> None:
    staged = folder / "landing" / f".{number}"
    staged.write_text("\n".join(("k,ts,_metadata", *lines)) + "\n")
    staged.rename(folder / "landing" / f"{number}.csv")


def test_rows_between_two_instants() -> None:
    times = pa.array([1, 2, None, 3], pa.timestamp("us", "UTC"))
    found = pa.table({"At": times, "n": [1, 2, 3, 4]})
    assert rows_between(found, "at", 2, 3)["n"].to_pylist() == [2]  # type: ignore[index]
    assert rows_between(found, "at", None, 3)["n"].to_pylist() == [1, 2]  # type: ignore[index]
    # What a clock shows is an instant in a zone only.
    assert rows_between(pa.table({"at": times.cast(pa.timestamp("us"))}), "at", None, 3) is None
    assert rows_between(pa.table({"at": times.cast(pa.date32(), safe=False)}), "at", None, 3) is None
