"""A small network warehouse for tests: every kind of table, and what each should hold, in DuckDB's words."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2024, 3, 1, 20, 0, tzinfo=UTC)

FILES = {
    "penstock.toml": """
        name = "net"

        [feeds.stats]
        path = "landing/stats/*.csv"
        format = "csv"
        columns = "router string, ts timestamp, bytes bigint, load decimal(8,2)"
        time = "ts"
        period = "1m"
        lateness = "2m"
        partition = "hour"
        settle = "0s"

        [feeds.alerts]
        path = "landing/alerts/*.json"
        format = "json"
        columns = "router string, at timestamp, severity int"
        time = "at"
        period = "5s"
        partition = "hour"
        settle = "0s"

        [feeds.sites]
        path = "landing/sites/*.csv"
        format = "csv"
        columns = "router string, site string"
        mode = "snapshot"
        period = "1d"
        settle = "0s"
    """,
    "tables/stats_5m.sql": """
        -- partition = "5m"
        -- time = "slot"
        -- sources.stats = "containing"
        SELECT router, timestamp_seconds(300 * floor(unix_seconds(ts) / 300)) AS slot, sum(bytes) AS bytes,
               count(*) AS n, avg(bytes) AS mean, max(load) AS top
        FROM stats GROUP BY 1, 2
    """,
    "tables/stats_hour.sql": """
        -- partition = "hour"
        -- time = "hour"
        -- priority = 3
        SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes, count(*) AS n, avg(bytes) AS mean,
               sum(load) AS load, min(ts) AS first
        FROM stats GROUP BY router, date_trunc('hour', ts)
    """,
    "tables/stats_day.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT router, date_trunc('day', hour) AS day, sum(bytes) AS bytes, sum(n) AS n FROM stats_hour GROUP BY 1, 2
    """,
    "tables/loud.sql": """
        -- partition = "hour"
        -- time = "ts"
        SELECT router, ts, bytes FROM stats WHERE bytes > 500
    """,
    "tables/loud_day.sql": """
        -- partition = "day"
        -- time = "day"
        -- update = "closed"
        SELECT date_trunc('day', ts) AS day, count(*) AS n, sum(bytes) AS bytes FROM loud GROUP BY 1
    """,
    "tables/total.sql": """
        SELECT router, sum(bytes) AS bytes, count(*) AS n FROM stats GROUP BY router
    """,
    "tables/alert_stats.sql": """
        -- partition = "hour"
        -- time = "at"
        SELECT a.router, a.at, a.severity, sum(s.bytes) AS bytes
        FROM alerts a JOIN stats s ON a.router = s.router AND s.ts BETWEEN a.at - INTERVAL 5 MINUTES AND a.at
        GROUP BY a.router, a.at, a.severity
    """,
    "tables/site_hour.sql": """
        -- partition = "hour"
        -- time = "hour"
        SELECT coalesce(t.site, '?') AS site, s.hour, sum(s.bytes) AS bytes
        FROM stats_hour s LEFT JOIN sites t ON s.router = t.router GROUP BY 1, 2
    """,
    "tables/top_hour.sql": """
        -- partition = "hour"
        -- time = "hour"
        SELECT :partition_start AS hour, router, sum(bytes) AS bytes FROM stats
        GROUP BY router ORDER BY bytes DESC, router LIMIT 2
    """,
    "tables/lifetime.sql": """
        -- partition = "day"
        -- time = "day"
        -- columns = "router string, day timestamp, bytes bigint"
        -- sources.lifetime = "SELF - 1"
        SELECT router, :partition_start AS day, sum(bytes) AS bytes
        FROM (SELECT router, bytes FROM stats_day UNION ALL SELECT router, bytes FROM lifetime) GROUP BY router
    """,
    "tables/before.sql": """
        -- partition = "hour"
        -- time = "hour"
        -- sources.stats = "HOUR - 3 .. HOUR - 1"
        SELECT :partition_start AS hour, count(*) AS n, sum(bytes) AS bytes FROM stats
    """,
    "tables/views.py": """
        import penstock as ps
        from pyspark.sql import functions as F

        @ps.table(partition="hour", time="hour", sources={"alerts": "HOUR", "stats": "HOUR"})
        def pulse(alerts, stats, partition):
            calm = stats.agg(F.count("*").alias("stats")).crossJoin(alerts.agg(F.count("*").alias("alerts")))
            return calm.select(F.lit(partition.start).cast("timestamp").alias("hour"), "stats", "alerts")
    """,
}

# {e}: rows before the table's edge. s = stats, a = alerts, t = newest sites file.
EXPECTED = {
    "stats": "SELECT * FROM s",
    "alerts": "SELECT * FROM a",
    "stats_5m": "SELECT router, time_bucket(INTERVAL '5 minutes', ts), sum(bytes)::BIGINT, count(*), avg(bytes), max(load) FROM s WHERE ts < {e} GROUP BY 1, 2",
    "stats_hour": "SELECT router, date_trunc('hour', ts), sum(bytes)::BIGINT, count(*), avg(bytes), sum(load)::DECIMAL(18,2), min(ts) FROM s WHERE ts < {e} GROUP BY 1, 2",
    "stats_day": "SELECT router, date_trunc('day', ts), sum(bytes)::BIGINT, count(*) FROM s WHERE ts < {e} GROUP BY 1, 2",
    "loud": "SELECT router, ts, bytes FROM s WHERE ts < {e} AND bytes > 500",
    "loud_day": "SELECT date_trunc('day', ts), count(*), sum(bytes)::BIGINT FROM s WHERE ts < {e} AND bytes > 500 GROUP BY 1",
    "total": "SELECT router, sum(bytes)::BIGINT, count(*) FROM s WHERE ts < {e} GROUP BY 1",
    "alert_stats": """SELECT a.router, a.seen, a.severity, sum(s.bytes)::BIGINT FROM a JOIN s ON a.router = s.router AND s.ts BETWEEN a.seen - INTERVAL 5 MINUTES AND a.seen
        AND date_trunc('hour', s.ts) = date_trunc('hour', a.seen) WHERE a.seen < {e} AND s.ts < {e} GROUP BY 1, 2, 3""",
    "site_hour": "SELECT coalesce(t.site, '?'), date_trunc('hour', ts), sum(bytes)::BIGINT FROM s LEFT JOIN t USING (router) WHERE ts < {e} GROUP BY 1, 2",
    "top_hour": """SELECT hour, router, bytes FROM (SELECT date_trunc('hour', ts) AS hour, router, sum(bytes)::BIGINT AS bytes FROM s WHERE ts < {e} GROUP BY 1, 2)
        QUALIFY row_number() OVER (PARTITION BY hour ORDER BY bytes DESC, router) <= 2""",
    "lifetime": """SELECT router, day, (SELECT sum(bytes)::BIGINT FROM s WHERE s.router = r.router AND ts < day + INTERVAL 1 DAY AND ts < {e})
        FROM (SELECT DISTINCT router FROM s) r, (SELECT unnest(generate_series(date_trunc('day', (SELECT min(ts) FROM s)), {e} - INTERVAL 1 MICROSECOND, INTERVAL 1 DAY)) AS day)
        WHERE EXISTS (SELECT 1 FROM s WHERE s.router = r.router AND ts < day + INTERVAL 1 DAY AND ts < {e})""",
    "before": """SELECT hour, (SELECT count(*) FROM s WHERE ts >= hour - INTERVAL 3 HOURS AND ts < hour), (SELECT sum(bytes)::BIGINT FROM s WHERE ts >= hour - INTERVAL 3 HOURS AND ts < hour)
        FROM (SELECT DISTINCT date_trunc('hour', ts) + INTERVAL 1 HOUR * unnest([1, 2, 3]) AS hour FROM s) WHERE hour < {e}""",
    "pulse": """SELECT hour, (SELECT count(*) FROM s WHERE date_trunc('hour', ts) = hour AND ts < {e}), (SELECT count(*) FROM a WHERE date_trunc('hour', seen) = hour AND seen < {e})
        FROM (SELECT date_trunc('hour', ts) AS hour FROM s UNION SELECT date_trunc('hour', seen) FROM a) WHERE hour < {e}""",
}


class Feeds:
    """Writes files of the three feeds: in order, late, twice, and many at once."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.now = START
        self.number = 0
        for name in ("stats", "alerts", "sites"):
            (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
        self.sites()

    def advance(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def _name(self) -> str:
        self.number += 1
        return f"{self.number:05d}"

    def stats(self, rows: int = 12, late: timedelta = timedelta(0), span_s: int = 60) -> Path:
        path = self.folder / "landing" / "stats" / f"{self._name()}.csv"
        lines = ["router,ts,bytes,load"]
        for _ in range(rows):
            ts = self.now - late + timedelta(seconds=self.random.randrange(span_s))
            value = self.random.choice(["", str(self.random.randrange(1000))])
            lines.append(
                f"r{self.random.randrange(4)},{ts:%Y-%m-%dT%H:%M:%SZ},{value or 7},{self.random.randrange(10000) / 100}"
            )
        self._write(path, "\n".join(lines) + "\n")
        return path

    def alerts(self, rows: int = 3, late: timedelta = timedelta(0)) -> Path:
        path = self.folder / "landing" / "alerts" / f"{self._name()}.json"
        lines = []
        for _ in range(rows):
            at = self.now - late + timedelta(seconds=self.random.randrange(60))
            lines.append(
                json.dumps(
                    {
                        "router": f"r{self.random.randrange(4)}",
                        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
                        "severity": self.random.randrange(5),
                    }
                )
            )
        self._write(path, "\n".join(lines) + "\n")
        return path

    def sites(self) -> Path:
        path = self.folder / "landing" / "sites" / f"{self._name()}.csv"
        rows = [f"r{n},site{self.random.randrange(3)}" for n in range(3)]
        self._write(path, "router,site\n" + "\n".join(rows) + "\n")
        return path

    def again(self) -> None:
        """Deliver a file a second time, unchanged."""
        path = self.random.choice(sorted((self.folder / "landing" / "stats").glob("*.csv")))
        self._write(path, path.read_text())

    def _write(self, path: Path, text: str) -> None:
        staged = path.with_name("." + path.name)
        staged.write_text(text)
        staged.rename(path)
