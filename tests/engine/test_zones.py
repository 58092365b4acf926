"""A project with a zone: dates, times without offset, days that have 23 or 25 hours."""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.model.time import instant, parse_instant
from tests.conftest import Write

NEW_YORK = ZoneInfo("America/New_York")
TOML = """
    name = "city"
    zone = "America/New_York"

    [feeds.rain]
    path = "landing/rain-*.csv"
    format = "csv"
    columns = "day date, mm double"
    time = "day"
    partition = "day"
    settle = "0s"

    [feeds.wall]
    path = "landing/wall-*.csv"
    format = "csv"
    columns = "at timestamp_ntz, n bigint"
    time = "at"
    partition = "day"
    settle = "0s"

    [feeds.here]
    path = "landing/here-*.csv"
    format = "csv"
    time = "ts"
    partition = "day"
    settle = "0s"

    [feeds.berlin]
    path = "landing/berlin-*.json"
    format = "json"
    columns = "ts timestamp, n bigint"
    time = "ts"
    zone = "Europe/Berlin"
    punctuation = "landing/berlin.until-*"
    partition = "day"
    settle = "0s"

    [feeds.plain]
    path = "landing/plain-*.parquet"
    format = "parquet"
    columns = "ts timestamp, n bigint, deep struct<x:int,at:array<timestamp>>, by map<timestamp,timestamp>"
    time = "ts"
    zone = "Europe/Berlin"
    partition = "day"
    settle = "0s"
"""
MONTHLY = """
    -- partition = "month"
    -- time = "month"
    SELECT trunc(day, 'month') AS month, round(sum(mm), 1) AS mm FROM rain GROUP BY trunc(day, 'month')
"""
DAILY = """
    -- partition = "day"
    -- time = "day"
    SELECT date_trunc('day', {time}) AS day, count(*) AS n, sum(n) AS total, min(hour({time})) AS first_hour
    FROM {source} GROUP BY date_trunc('day', {time})
"""
FUNCTION = """
    import penstock
    @penstock.table(partition="day", time="day", columns="day date, n bigint, began string")
    def by_date(here, partition):
        from pyspark.sql import functions as F
        assert partition.start.tzinfo.key == "America/New_York" and partition.start.hour == 0
        rows = here.groupBy(F.to_date("ts").alias("day")).agg(F.count("*").alias("n"))
        return rows.withColumn("began", F.lit(partition.start.isoformat()))
"""


def test_dates_and_times_without_offset_are_those_of_the_zone(spark: SparkSession, project: Write) -> None:
    folder = project(
        {
            "penstock.toml": TOML,
            "tables/rain_monthly.sql": MONTHLY,
            "tables/here_daily.sql": DAILY.format(source="here", time="ts"),
            "tables/wall_daily.sql": DAILY.format(source="wall", time="at"),
            "tables/berlin_daily.sql": DAILY.format(source="berlin", time="ts"),
            "tables/by_date.py": FUNCTION,
            "landing/rain-1.csv": "day,mm\n2013-01-31,1.5\n2013-02-01,2\n2013-02-28,3\n2013-03-01,4\n",
            # Clocks were set forward on 10 March 2013 at 02:00, and back on 3 November at 02:00.
            "landing/wall-1.csv": "at,n\n2013-03-09 23:30:00,1\n2013-03-10 02:30:00,2\n2013-03-10 23:59:59,3\n2013-03-11 00:00:00,4\n",
            "landing/here-1.csv": "ts,n\n2013-11-03 00:30:00,1\n2013-11-03 01:30:00,2\n2013-11-03 23:30:00,3\n2013-11-04T04:59:59Z,4\n2013-11-04T05:00:00Z,5\n",
            "landing/berlin-1.json": '{"ts": "2013-11-04 05:59:59", "n": 1}\n{"ts": "2013-11-04 06:00:00", "n": 2}\n{"ts": "2013-11-04T05:00:00Z", "n": 3}\n',
            "landing/berlin.until-1": "2013-11-04 07:00",
        }
    )
    naive = [datetime(2013, 11, 4, 5, 59, 59), datetime(2013, 11, 4, 6, 0)]
    clock = pa.timestamp("us")
    deep = pa.struct([("other", clock), ("at", pa.list_(clock)), ("x", pa.int32())])
    plain = {
        "ts": naive,
        "n": [1, 2],
        "deep": pa.array([None, {"at": [naive[1], None], "x": 5}], deep),
        "by": pa.array([None, [(naive[1], naive[1])]], pa.map_(clock, clock)),
    }
    pq.write_table(pa.table(plain), folder / "landing/plain-1.parquet")
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        complete = {row.table: row.complete_us for row in warehouse.status()}
        assert complete["rain"] == complete["rain_monthly"] == _instant(2013, 3, 1) + 1
        assert complete["wall_daily"] == _instant(2013, 3, 11) + 1
        assert complete["berlin_daily"] == parse_instant("2013-11-04T06:00Z")
        assert _rows(warehouse, "select month, mm from rain_monthly order by 1") == [
            (date(2013, 1, 1), 1.5), (date(2013, 2, 1), 5.0), (date(2013, 3, 1), 4.0)
        ]  # fmt: skip
        daily = "select to_date(day), n, total, first_hour from {}_daily order by day"
        march, november = [date(2013, 3, day) for day in (9, 10, 11)], [date(2013, 11, day) for day in (3, 4)]
        assert _rows(warehouse, daily.format("wall")) == [
            (march[0], 1, 1, 23), (march[1], 2, 5, 2), (march[2], 1, 4, 0)
        ]  # fmt: skip
        assert _rows(warehouse, daily.format("here")) == [(november[0], 4, 10, 0), (november[1], 1, 5, 0)]
        assert _rows(warehouse, daily.format("berlin")) == [(november[0], 1, 1, 23), (november[1], 2, 5, 0)]
        assert _rows(warehouse, "select to_date(ts), n from plain order by n") == [(november[0], 1), (november[1], 2)]
        deeper = "select deep.x, deep.at[0] = ts, deep.at[1], map_keys(by)[0] = ts, by[ts] = ts from plain order by n"
        assert _rows(warehouse, deeper) == [(None,) * 5, (5, True, None, True, True)]
        began = [(day, n, f"{day}T00:00:00-0{off}:00") for day, n, off in ((november[0], 4, 4), (november[1], 1, 5))]
        assert _rows(warehouse, "select * from by_date order by day") == began
        # What is filtered by a date or a time without offset is not lost to pruning either.
        assert _rows(warehouse, "select n from here where ts >= '2013-11-04' order by n") == [(5,)]
        assert _rows(warehouse, "select n from here where to_date(ts) = '2013-11-03' order by n") == [
            (n,) for n in (1, 2, 3, 4)
        ]
        assert _rows(warehouse, "select n from wall where at = '2013-03-11'") == [(4,)]
        # Every partition has exactly its rows: made again, nothing changes.
        before = _every(warehouse)
        for table, span in (("rain_monthly", "2013-02"), ("wall_daily", "2013-03-10"), ("here_daily", "2013-11-03")):
            warehouse.backfill(table, span)
        (folder / "landing/rain-2.csv").write_text("day,mm\n2013-01-31,0\n")
        warehouse.run(until_idle=True)
        assert _every(warehouse) == before
        assert _rows(warehouse, "select count(*) from rain") == [(5,)]


def _every(warehouse: Warehouse) -> list[object]:
    tables = ("rain_monthly", "wall_daily", "here_daily", "berlin_daily", "by_date")
    return [sorted(_rows(warehouse, f"select * from {table}")) for table in tables]


def _rows(warehouse: Warehouse, sql: str) -> list[tuple[object, ...]]:
    return warehouse.query(sql).rows


def _instant(*day: int) -> int:
    return instant(datetime(*day, tzinfo=NEW_YORK))  # type: ignore[arg-type, misc]


def test_clocks_set_back_over_midnight(spark: SparkSession, project: Write) -> None:
    """St. John's, 7 November 2010: at 00:01 the clock showed 23:01 of the day before again."""
    toml = """
        name = "island"
        zone = "America/St_Johns"

        [feeds.ev]
        path = "landing/*.csv"
        format = "csv"
        columns = "ts timestamp, n bigint"
        time = "ts"
        partition = "day"
        settle = "0s"
    """
    # 02:30 is midnight, 02:31 the change, 03:30 midnight again
    times = ["01:00:00", "02:30:00", "02:30:30", "02:31:00", "02:45:00", "03:29:59", "03:30:00", "12:00:00"]
    rows = "".join(f"2010-11-07T{at}Z,{n}\n" for n, at in enumerate(times))
    daily = """
        -- partition = "day"
        -- time = "day"
        SELECT :partition_start AS day, count(*) AS n, sum(n) AS total FROM ev
    """
    folder = project({"penstock.toml": toml, "tables/daily.sql": daily, "landing/1.csv": "ts,n\n" + rows})
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        found = [(1, 0), (7, 28)]
        assert _rows(warehouse, "select n, total from daily order by day") == found
        for span in ("2010-11-06", "2010-11-07"):
            warehouse.backfill("daily", span)
            warehouse.run(until_idle=True)
            assert _rows(warehouse, "select n, total from daily order by day") == found


def test_tables_of_a_zone_can_be_read_elsewhere(spark: SparkSession, project: Write, tmp_path: Path) -> None:
    """What is stored are instants: another tool sees the same ones."""
    toml = 'name = "x"\nzone = "Asia/Kolkata"\n[feeds.ev]\npath = "in/*.csv"\nformat = "csv"\ncolumns = "ts timestamp"\ntime = "ts"\npartition = "hour"\nsettle = "0s"\n'
    hourly = """
        -- partition = "hour"
        -- time = "hour"
        SELECT date_trunc('hour', ts) AS hour, count(*) AS n FROM ev GROUP BY date_trunc('hour', ts)
    """
    folder = project(
        {
            "penstock.toml": toml,
            "tables/hourly.sql": hourly,
            "in/1.csv": "ts\n2024-03-01 10:05:00\n2024-03-01 10:55:00\n",
        }
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        (folder / "in/2.csv").write_text("ts\n2024-03-01 10:15:00\n2024-03-01 11:00:00\n")
        warehouse.run(until_idle=True)
        assert _rows(warehouse, "select hour(hour), minute(hour), n from hourly order by 1") == [(10, 0, 3), (11, 0, 1)]
        warehouse.backfill("hourly", "2024-03-01T10:00")
        warehouse.run(until_idle=True)
        assert _rows(warehouse, "select hour(hour), minute(hour), n from hourly order by 1") == [(10, 0, 3), (11, 0, 1)]
        files = sorted((folder / "warehouse").rglob("*hourly*/**/*.parquet"))
        found = {instant(row["hour"]) for file in files for row in pq.read_table(file).select(["hour"]).to_pylist()}
        assert found == {parse_instant("2024-03-01T04:30Z"), parse_instant("2024-03-01T05:30Z")}


def test_the_hour_that_clocks_show_twice_is_two_partitions(spark: SparkSession, project: Write) -> None:
    times = [f"2024-11-03T{hour:02d}:30:00Z" for hour in range(3, 9)]
    folder = project(
        {
            "penstock.toml": """
                name = "twice"
                zone = "America/New_York"
                [feeds.ev]
                path = "landing/*.csv"
                format = "csv"
                columns = "ts timestamp"
                time = "ts"
                partition = "hour"
                settle = "0s"
            """,
            "tables/hourly.sql": """
                -- partition = "hour"
                -- time = "begins"
                SELECT :partition_start AS begins, :PARTITION_END AS ends, ':partition_start' AS said, count(*) AS n FROM ev
            """,
            "landing/1.csv": "ts\n" + "\n".join(times) + "\n",
        }
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        rows = warehouse.query("SELECT unix_micros(begins), unix_micros(ends), said, n FROM hourly ORDER BY 1").rows
    hours = [parse_instant(f"2024-11-03T{hour:02d}:00:00Z") for hour in range(3, 10)]
    assert [tuple(row) for row in rows] == [(begin, end, ":partition_start", 1) for begin, end in pairwise(hours)]


def test_a_feed_of_another_zone_reads_times_of_any_precision(spark: SparkSession, project: Write) -> None:
    folder = project(
        {
            "penstock.toml": """
                name = "london"
                [feeds.ev]
                path = "landing/*.csv"
                format = "csv"
                columns = "ts timestamp"
                time = "ts"
                zone = "Europe/London"
                settle = "0s"
            """,
            "landing/1.csv": "ts\n2024-07-01\n2024-07-01 10:30\n2024-07-01T10:30:01\n2024-07-01 10:30:01.5\n",
        }
    )
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        rows = warehouse.query("SELECT cast(ts AS string) FROM ev ORDER BY 1").rows
    assert [text for (text,) in rows] == [
        "2024-06-30 23:00:00",
        "2024-07-01 09:30:00",
        "2024-07-01 09:30:01",
        "2024-07-01 09:30:01.5",
    ]
