"""What Spark gets of the machine, and how a job runs by its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.engine.spark import machine
from penstock.engine.spark.session import session_in, spark_settings
from penstock.engine.spark.sizing import MB, SMALL_BYTES, Sizing, settings_for
from penstock.engine.spark.work import worth_merging
from penstock.engine.updates.rows import Writer
from penstock.model.grain import parse_grain

GB = 1 << 30
SHUFFLE, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"


@pytest.fixture
def nobody_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("SPARK_DRIVER_MEMORY", "SPARK_EXECUTOR_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


@pytest.mark.parametrize(("there", "driver"), [(2 * GB, "1024m"), (24 * GB, "8192m"), (1024 * GB, "24576m")])
def test_the_driver_has_a_third_of_the_machine(nobody_says: Path, there: int, driver: str) -> None:
    assert machine.memory_settings("local[2]", there) == {"spark.driver.memory": driver}
    workers = machine.memory_settings("local-cluster[2,1,768]", there)
    assert workers == {"spark.driver.memory": driver, "spark.executor.memory": "768m"}


def test_what_others_say_of_memory_counts(nobody_says: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_says.write_text("# mine\nspark.driver.memory   3g\nspark.driver.memoryOverhead=1g\n")
    assert machine.memory_settings("local-cluster[2,1,768]", GB) == {"spark.executor.memory": "768m"}
    nobody_says.write_text("spark.driver.memoryOverhead 1g\n")
    assert machine.memory_settings("local", 6 * GB) == {"spark.driver.memory": "2048m"}
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "3g")
    assert machine.memory_settings("local", GB) == {}


def test_a_container_is_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = machine.memory_bytes()
    (tmp_path / "max").write_text("max\n")
    monkeypatch.setattr(machine, "_LIMITS", (str(tmp_path / "none"), str(tmp_path / "max")))
    assert machine.memory_bytes() >= whole
    (tmp_path / "max").write_text("500000000\n")
    assert machine.memory_bytes() == 500_000_000


def test_executors_find_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    assert machine.address_settings("local[4]") == both
    assert machine.address_settings("spark://127.0.0.1:7077") == both
    assert machine.address_settings("spark://nowhere.invalid:7077") == {}
    assert machine.address_settings("yarn") == {} == machine.address_settings("k8s://https://cluster:443")
    monkeypatch.setattr(machine, "_address_towards", lambda host: {"one.example": "10.0.0.7"}[host])
    found = spark_settings("spark://one.example:7077,two.example:7077")
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "10.0.0.7"
    assert not found.keys() & {"spark.default.parallelism", "spark.network.timeout", "spark.authenticate"}


def test_a_large_job_is_cut_by_its_bytes() -> None:
    one = settings_for(GB, 2)
    assert one[ADAPTIVE] == "true" and one[SHUFFLE] == "64"  # 1 GB / 16 MB
    assert one["spark.sql.adaptive.advisoryPartitionSizeInBytes"] == str(256 * MB)  # 1 GB / (2 x 2 slots)
    assert one["spark.sql.adaptive.autoBroadcastJoinThreshold"] == str(GB // 50)
    more = settings_for(1000 * GB, 64)
    assert more[SHUFFLE] == "4096" and more["spark.sql.adaptive.autoBroadcastJoinThreshold"] == str(64 * MB)
    assert more["spark.sql.adaptive.advisoryPartitionSizeInBytes"] == str(768 * MB)
    assert (one["spark.sql.files.maxPartitionBytes"], more["spark.sql.files.maxPartitionBytes"]) == (
        str(128 * MB),
        str(512 * MB),
    )
    assert settings_for(SMALL_BYTES + 1, 64)[SHUFFLE] == "128"


def test_settings_are_those_of_the_job_that_runs(spark: SparkSession) -> None:
    own = session_in(spark, "UTC")
    sizing = Sizing(own, ["spark.sql.maxConcurrentOutputFileWriters"])
    keys = [*settings_for(GB, 2)]
    before = {key: own.conf.get(key, None) for key in keys}
    assert not sizing.fit(SMALL_BYTES) and {key: own.conf.get(key, None) for key in keys} == before
    assert sizing.fit(GB) and sizing.fit(4 * GB)
    assert own.conf.get(ADAPTIVE) == "true" and own.conf.get(SHUFFLE) == "256"
    assert own.conf.get("spark.sql.maxConcurrentOutputFileWriters") == "64"
    assert not sizing.fit(1) and {key: own.conf.get(key, None) for key in keys} == before


def test_a_large_write_has_one_file_for_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    own = session_in(spark, "UTC")
    rows = own.range(0, 240, 1, 4).selectExpr("id", "timestamp_micros((id % 3) * 86400000000L) as at")
    found = Writer(0).stage(rows, tmp_path / "t" / "job", str(tmp_path / "t"), "at", parse_grain("day", "UTC"), GB)
    assert [file.records for file in found.files] == [80, 80, 80]
    assert len({file.partition_us for file in found.files}) == 3


def test_small_files_are_merged_by_their_bytes() -> None:
    assert not worth_merging(1, 1000) and not worth_merging(2, 5 * MB) and not worth_merging(0, 0)
    assert worth_merging(2, 4 * MB) and worth_merging(3, 3 * MB) and worth_merging(8, 240 * MB)
