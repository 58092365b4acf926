"""Whatever the machine says about Spark, in files of defaults, variables, or a session that is there already: tables hold the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.spark.session import OURS, settings_kept, settings_of
from tests.conftest import Write
from tests.engine.test_kill import QUICK_START, command
from tests.oracle import attach, rows
from tests.waiting import LONG_S

pytestmark = pytest.mark.spark

BAD = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.extensions": "no.such.Extension",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.sources.default": "json",
    "spark.executorEnv.TZ": "Asia/Tokyo",
}
FILES = {
    "penstock.toml": """
        name = "anywhere"
        [feeds.events]
        path = "landing/*.csv"
        format = "csv"
        columns = "k string, ts timestamp, v int"
        time = "ts"
        partition = "day"
        settle = "0s"
    """,
    "tables/days.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT K, date_trunc('DAY', Ts) AS day, cast(min(ts) AS string) AS said, '${env:HOME}' AS home, sum(v) AS v
        FROM events GROUP BY K, date_trunc('DAY', Ts)
    """,
    "tables/wrong.sql": """
        -- attempts = 1
        SELECT cast(k AS int) AS number FROM events
    """,
    "tables/hours.py": """
        import penstock as ps
        from pyspark.sql import functions as F


        @ps.table(partition="day", time="ts")
        def hours(events):
            events.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
            hour = F.udf(lambda at: at.hour, "int")
            return events.select("k", "ts", hour("ts").alias("hour"))
    """,
    "landing/1.csv": "k,ts,v\na,2024-03-01T00:30:00Z,1\na,2024-03-01T23:30:00Z,2\n",
}


def check(folder: Path) -> None:
    con = attach(folder)
    days = "SELECT k, cast(day AT TIME ZONE 'UTC' AS VARCHAR), said, home, v FROM lake.days"
    assert rows(con, days) == [("a", "2024-03-01 00:00:00", "2024-03-01 00:30:00", "${env:HOME}", 3)]
    assert rows(con, "SELECT hour FROM lake.hours ORDER BY hour") == [(0,), (23,)]
    with Warehouse(folder) as warehouse:
        state = warehouse.state()
    assert "CAST_INVALID_INPUT" in (state.tables["wrong"].error or "")
    assert {name for name, table in state.tables.items() if table.error} == {"wrong"}


def test_files_of_defaults_and_variables_change_nothing(project: Write, tmp_path: Path) -> None:
    folder = project({**FILES, "penstock.toml": FILES["penstock.toml"].replace("\n        ", "\n") + QUICK_START})
    settings = {**BAD, "spark.hadoop.fs.s3a.endpoint": "http://localhost:1"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "SPARK_ANSI_SQL_MODE": "false", "TZ": "Asia/Tokyo"}
    options = {"capture_output": True, "text": True, "timeout": LONG_S, "check": False, "env": environment}
    ran = subprocess.run(command(folder, "--until-idle"), **options)
    check(folder)
    told = (folder / ".penstock" / "spark.log").read_text()
    left_out = re.findall(r"Penstock leaves out (\S+) = (\S+), which can change what tables hold", told)
    assert dict(left_out) == {key: BAD[key] for key in ("spark.sql.extensions", "spark.sql.legacy.sizeOfNull")}, ran


OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
from penstock.app import Warehouse

bad = dict(pair.split("=") for pair in sys.argv[2:])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", 1)
for key, value in bad.items():
    builder = builder.config(key, value)
mine = builder.getOrCreate()
with Warehouse(sys.argv[1]) as warehouse:
    warehouse.run(until_idle=True)
assert all(mine.conf.get(key) == value for key, value in bad.items()), "my own session is as I had it"
mine.conf.set("spark.sql.ansi.enabled", "false")
with Warehouse(sys.argv[1], spark=mine) as warehouse:
    print(warehouse.query("select cast(max(ts) as string) as at from events").rows)
"""


def test_a_session_that_is_there_changes_nothing(project: Write, tmp_path: Path) -> None:
    folder = project(FILES)
    bad = [
        f"{key}={value}" for key, value in BAD.items() if key not in ("spark.sql.extensions", "spark.executorEnv.TZ")
    ]
    run = [sys.executable, "-c", OWN_SESSION, str(folder), *bad]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(run, capture_output=True, text=True, timeout=LONG_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[('2024-03-01 23:30:00',)]"
    check(folder)


def test_what_a_function_sets_is_gone_when_it_returns(spark: SparkSession) -> None:
    before = settings_of(spark)
    assert before.items() >= OURS.items()
    with settings_kept(spark):
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.conf.set("spark.sql.legacy.sizeOfNull", "true")
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert settings_of(spark) == before
