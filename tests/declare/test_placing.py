"""From which partitions of a source the rows of a partition come: proved, widened, or asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.declare.source_partitions import by_partitions, keeps
from penstock.declare.sql.facts import Shifted, Within
from penstock.declare.warehouse import Definitions
from penstock.model.grain import parse_grain
from tests.declare.conftest import FEEDS, Check

HOUR = 3_600_000_000


def view(select: str, partition: str = "hour", sources: str = "") -> dict[str, str]:
    said = f"-- sources.stats = '{sources}'\n" if sources else ""
    return {"tables/a.sql": f"-- partition = '{partition}'\n-- time = 't'\n{said}{select}"}


@pytest.mark.parametrize(
    ("select", "partition", "window", "folds"),
    [
        ("SELECT ts AS t FROM stats", "hour", (0, 1), True),
        ("SELECT TS AS T FROM stats", "day", (0, 1), True),
        ("SELECT date_trunc('hour', ts) AS t, count(*) AS n FROM stats GROUP BY 1", "hour", (0, 1), True),
        ("SELECT date_trunc('HOUR', s.ts) AS t, max(ts) AS last FROM stats s GROUP BY ALL", "day", (0, 1), True),
        ("SELECT to_date(ts) AS t, count(*) AS n FROM stats GROUP BY to_date(ts)", "day", (0, 1), True),
        ("SELECT cast(ts AS date) AS t FROM stats", "week", (0, 1), True),
        ("SELECT trunc(ts, 'MM') AS t FROM stats", "month", (0, 1), True),
        ("SELECT last_day(ts) AS t FROM stats", "month", (0, 1), True),
        ("SELECT x AS t FROM (SELECT ts AS x FROM stats) s", "hour", (0, 1), True),
        ("WITH s(x) AS (SELECT ts FROM stats) SELECT * FROM s AS s(t)", "hour", (0, 1), True),
        ("SELECT CASE WHEN bytes > 1 THEN ts ELSE date_trunc('minute', ts) END AS t FROM stats", "hour", (0, 1), True),
        ("SELECT coalesce(NULL, ts) AS t FROM stats", "hour", (0, 1), True),
        ("SELECT timestamp_seconds(900 * floor(unix_seconds(ts) / 900)) AS t FROM stats", "hour", (0, 1), True),
        ("SELECT timestamp_seconds(unix_seconds(ts) div 900 * 900) AS t FROM stats", "hour", (0, 1), True),
        ("SELECT timestamp_seconds(cast(floor(unix_timestamp(ts) / 300) * 300 AS bigint)) AS t FROM stats", "hour", (0, 1), True),
        # later: rows come from earlier partitions, too
        ("SELECT ts + INTERVAL 5 MINUTES AS t FROM stats", "hour", (-1, 1), False),
        ("SELECT INTERVAL '90' MINUTE + ts AS t FROM stats", "hour", (-2, 1), False),
        ("SELECT ts + INTERVAL '1 day 2 hours' AS t FROM stats", "hour", (-26, 1), False),
        ("SELECT ts + INTERVAL 1 DAY 2 HOURS AS t FROM stats", "day", (-2, 1), False),
        ("SELECT timestampadd(MINUTE, 5, ts) AS t FROM stats", "hour", (-1, 1), False),
        ("SELECT date_trunc('hour', ts) + INTERVAL 1 HOUR AS t, count(*) AS n FROM stats GROUP BY 1", "hour", (-1, 1), False),
        ("SELECT date_add(to_date(ts), 7) AS t FROM stats", "day", (-7, 1), False),
        ("SELECT last_day(ts) AS t FROM stats", "day", (-31, 1), False),
        ("SELECT add_months(ts, 1) AS t FROM stats", "month", (-2, 1), False),
        ("SELECT ts AS t FROM stats UNION ALL SELECT ts + INTERVAL 1 HOUR FROM stats", "hour", (-1, 1), False),
        # one of several rows of one partition
        ("SELECT router, min(ts) AS t FROM stats GROUP BY router, date_trunc('hour', ts)", "hour", (0, 1), False),
        ("SELECT max(ts) OVER (PARTITION BY to_date(ts)) AS t FROM stats", "day", (0, 1), False),
        ("SELECT :partition_start AS t, count(*) AS n FROM stats", "day", (0, 1), False),
        ("SELECT :partition_end - INTERVAL 1 SECOND AS t, count(*) AS n FROM stats", "day", (0, 1), False),
    ],
)  # fmt: skip
def test_where_rows_come_from(
    load: Callable[[dict[str, str]], Definitions], select: str, partition: str, window: tuple[int, int], folds: bool
) -> None:
    table = load(view(select, partition)).graph.tables["a"]
    assert (table.sources[0].window, table.foldable) == (window, folds)


SAY = 'say which it reads: sources.stats = "PARTITION" (the same hour), "PARTITION - 7 .. PARTITION" or "everything"'
FROM = "table `a`: its time `t` does not say from which partitions of `stats` the rows of one hour come: "
GROUPED = "is taken from rows that may lie in several partitions"
STRUCTS = "router string, ts timestamp, bytes bigint, sent timestamp, at struct<ts:timestamp>"


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("SELECT router, max(ts) AS t FROM stats GROUP BY router", f"MAX(ts) {GROUPED}"),
        ("SELECT max(ts) AS t FROM stats", f"MAX(ts) {GROUPED}"),
        ("SELECT max(ts) + INTERVAL 1 MINUTE AS t FROM stats", f"MAX(ts) + INTERVAL '1' MINUTE {GROUPED}"),
        ("SELECT t FROM (SELECT router, max(ts) AS t FROM stats GROUP BY router)", f"MAX(ts) {GROUPED}"),
        ("SELECT min(ts) AS t FROM stats GROUP BY to_date(ts)", f"MIN(ts) {GROUPED}"),
        ("SELECT lag(ts) OVER (ORDER BY ts) AS t FROM stats", f"LAG(ts) OVER (ORDER BY ts) {GROUPED}"),
        ("SELECT sent AS t FROM stats", "`sent` is not the time of `stats` (that is `ts`)"),
        ("SELECT coalesce(sent, ts) AS t FROM stats", "`sent` is not the time of `stats` (that is `ts`)"),
        ("SELECT at.ts AS t FROM stats", "what at.ts is for rows of a given time is not known"),
        ("SELECT ts + make_interval(0, 0, 0, 0, 1) AS t FROM stats", "what ts + MAKE_INTERVAL(0, 0, 0, 0, 1) is for rows of a given time is not known"),
        ("SELECT timestamp'2024-01-01' AS t FROM stats", "what CAST('2024-01-01' AS TIMESTAMP) is for rows of a given time is not known"),
    ],
)  # fmt: skip
def test_what_must_be_said(check: Check, select: str, why: str) -> None:
    toml = FEEDS.replace("router string, ts timestamp, bytes bigint, place struct<city:string>", STRUCTS)
    assert check({"penstock.toml": toml, **view(select)}) == [f"tables/a.sql:2: {FROM}{why}; {SAY}"]
    assert check({"penstock.toml": toml, **view(select, sources="everything")}) == []
    assert check({"penstock.toml": toml, **view(select, sources="PARTITION")}) == []


@pytest.mark.parametrize(
    ("select", "sources", "expected"),
    [
        ("SELECT ts - INTERVAL 5 MINUTES AS t FROM stats", "",
         "tables/a.sql:2: table `a`: its time `t` says that the rows of one hour come from PARTITION .. PARTITION + 1 of `stats`, but it reads PARTITION; "
         'write sources.stats = "PARTITION .. PARTITION + 1", and it waits until those are complete'),
        ("SELECT ts + INTERVAL 5 MINUTES AS t FROM stats", "PARTITION",
         "tables/a.sql:3: table `a`: its time `t` says that the rows of one hour come from PARTITION - 1 .. PARTITION of `stats`, but it reads PARTITION; "
         'write sources.stats = "PARTITION - 1 .. PARTITION"'),
        ("SELECT ts AS t FROM stats", "previous",
         "tables/a.sql:3: table `a`: its time `t` says that the rows of one hour come from PARTITION of `stats`, but it reads PARTITION - 1; "
         'write sources.stats = "PARTITION"'),
        ("SELECT to_date(ts) AS t, count(*) AS n FROM stats GROUP BY 1", "",
         "tables/a.sql:2: table `a`: its time `t` is that of a day, so that all its rows would be in its first hour; write partition = \"day\", or another `time`"),
        ("SELECT :partition_end AS t, count(*) AS n FROM stats", "",
         "tables/a.sql:2: table `a`: its time `t` does not lie in the partition that is being made; write :partition_start AS t"),
    ],
)  # fmt: skip
def test_what_leaves_rows_out(check: Check, select: str, sources: str, expected: str) -> None:
    assert check(view(select, sources=sources)) == [expected]


def test_moved_by_partitions() -> None:
    hour, day = parse_grain("hour"), parse_grain("day", "Europe/Berlin")
    later = Shifted(micros=(HOUR, HOUR))
    assert by_partitions([later], hour, "UTC") == (1, 1)
    assert by_partitions([later], day, "Europe/Berlin") == (0, 1)
    assert by_partitions([Shifted(days=(1, 1))], day, "Europe/Berlin") == (0, 2)  # days of 23 and 25 hours
    assert by_partitions([Shifted(micros=(-HOUR, -HOUR))], hour, "UTC") == (-1, -1)
    assert by_partitions([Within("day"), Shifted(days=(0, 30))], parse_grain("day"), "UTC") == (0, 30)
    # hours of India are not hours of UTC, but they lie in days of India
    assert not keeps("hour", hour, "Asia/Kolkata")
    assert keeps("hour", parse_grain("day", "Asia/Kolkata"), "Asia/Kolkata")
    assert keeps("hour", hour, "Europe/Berlin")


def test_what_can_hardly_be_meant(check: Check) -> None:
    near = "SELECT a.ts AS t, count(*) AS n FROM stats a JOIN stats b ON b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts GROUP BY a.ts"
    ranges = (
        "table `a` joins rows by a range of time, but reads one hour at a time, so that none are found across its ends; "
        'say how far it looks: sources.stats = "PARTITION - 1 .. PARTITION"'
    )
    assert check(view(near)) == [f"tables/a.sql:3: warning: {ranges}"]
    assert check(view(near, sources="PARTITION - 1 .. PARTITION")) == []
    clock = "SELECT ts AS t FROM stats WHERE ts > current_timestamp() - INTERVAL 1 DAY"
    assert check(view(clock)) == [
        "tables/a.sql:3: warning: table `a`: current_timestamp gives another answer each time, and its rows keep what that was "
        "when they were made; use a column of its source, or :partition_start"
    ]
