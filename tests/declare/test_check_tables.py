"""Tables against each other: names, sources, cycles, grains, columns. One project for each case, exact messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.declare.warehouse import Definitions
from penstock.model.schema import Column

from .conftest import FEEDS, Check

HOURLY = """
-- partition = "hour"
-- time = "hour"
SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes
FROM stats
GROUP BY router, date_trunc('hour', ts)
"""
NO_TIME = "but nothing that it reads has a time that it waits for, so which partitions there are is not known before its rows are; take the time from the rows, or read a table with `time`"  # fmt: skip
HAS = "`stats` has: router, ts, bytes, place"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # unknown sources
        ({"a.sql": "SELECT x\nFROM stat"}, ["tables/a.sql:2: table `a` reads `stat`, which is not declared; did you mean `stats`?"]),
        ({"a.sql": "SELECT x FROM nothing_like_it"}, ["tables/a.sql:1: table `a` reads `nothing_like_it`, which is not declared; declared: a, sites, stats"]),
        ({"a.sql": "-- About a.\n\nWITH b AS (\n  SELECT x FROM other.stats)\nSELECT x FROM b"}, ["tables/a.sql:4: table `a` reads `other.stats`, which is not declared; did you mean `stats`?"]),
        ({"a.sql": "SELECT 1 AS one"}, ["tables/a.sql:1: table `a` reads no other table, so nothing would ever update it"]),
        ({"m.py": "import penstock as ps\n@ps.table\ndef a(): ..."}, ["tables/m.py:2: table `a` reads no other table, so nothing would ever update it"]),
        ({"m.py": "import penstock as ps\n@ps.table\ndef a(stast): ..."}, ["tables/m.py:2: table `a` reads `stast`, which is not declared; did you mean `stats`?"]),
        # One mistake in a flow is one problem, however many tables it makes.
        ({"m.py": "import penstock as ps\n@ps.flow\ndef f(stast):\n  stast.into('a')\n  stast.into('b')"}, ["tables/m.py:4: flow `f` reads `stast`, which is not declared; did you mean `stats`?"]),
        ({"m.py": "import penstock as ps\n@ps.table\ndef a(stats, **more): ..."}, ["tables/m.py:2: the function of table `a` has the parameter `**more`; expected plain parameters with the names of the tables that it reads"]),
        ({"m.py": "import penstock as ps\n@ps.table\ndef a(stats, /): ..."}, ["tables/m.py:2: the function of table `a` has the parameter `stats`; expected plain parameters with the names of the tables that it reads"]),
        ({"raw.sql": "-- feed = 'stats'\n-- partition = 'hour'\nSELECT * FROM stats", "a.sql": "SELECT x\nFROM stats"},
         ["penstock.toml:8: warning: feed `stats`: `partition` has no effect, as its rows go to table `raw`; set it there",
          "tables/a.sql:2: table `a` reads `stats`, which is not declared; the rows of feed `stats` go to table `raw`: read that"]),
        ({"a.sql": "-- sources.sites = 'everything'\nSELECT router FROM stats"}, ["tables/a.sql:1: table `a` says how it reads `sites`, but does not read it; did you mean `stats`?"]),
        ({"a.sql": "-- [sources]\n-- stats = 'everything'\n-- priority = 3\nSELECT router FROM stats"}, ["tables/a.sql:3: `sources.priority` is 3; expected a text in \"quotes\""]),
        ({"a.sql": "-- [sources]\n-- stats = 'everything'\n-- partition = 'none'\nSELECT router FROM stats"}, ["tables/a.sql:3: table `a` says how it reads `partition`, but does not read it; write `partition` above [sources]"]),
        # base tables
        ({"a.sql": "-- feed = 'stts'\nSELECT * FROM stts"}, ["tables/a.sql:1: table `a` reads feed `stts`, which is not declared; did you mean `stats`?"]),
        ({"a.sql": "-- feed = 'stats'\n-- sources.stats = 'same'\nSELECT router, ts\nFROM stats JOIN sites USING (router)"},
         ["penstock.toml:8: warning: feed `stats`: `partition` has no effect, as its rows go to table `a`; set it there",
          "tables/a.sql:2: base table `a` reads its feed only; `sources` is for tables that read tables",
          "tables/a.sql:4: base table `a` reads `sites`; its SELECT can only read its feed `stats`"]),
        ({"m.py": "import penstock as ps\n@ps.base_table(feed='sites')\ndef a(sites, more): ..."}, ["tables/m.py:2: the function of base table `a` has 2 parameters; expected one, which gets the rows of its feed"]),
        ({"a.sql": "-- feed = 'sites'\nSELECT count(*) AS n FROM sites"}, ["tables/a.sql:2: base table `a`: its SELECT must work row by row, as files are loaded one after the other (incremental: one group with count); aggregate in a table that reads it"]),
        ({"a.sql": "-- feed = 'sites'\nSELECT router, site FROM sites\nWHERE sight = 'x'"}, ["tables/a.sql:3: unknown column `sight`; did you mean `site`? `sites` has: router, site"]),
        ({"a.sql": "-- feed = 'sites'\n-- partition = 'day'\nSELECT router, site FROM sites"}, ["tables/a.sql:2: table `a` has partition 'day' but no `time`: name the column that says which partition a row is in"]),
        # names
        ({"stats.sql": "SELECT router FROM sites"}, ["tables/stats.sql:1: table `stats` has the name of a feed (penstock.toml:2), whose rows it does not take; rename one of them, or write feed = \"stats\" if it is the base table"]),
        ({"a.sql": "SELECT router FROM stats", "more/a.sql": "-- More.\nSELECT router FROM stats"}, ["tables/more/a.sql:2: table `a` is declared twice, first at tables/a.sql:1"]),
        ({"a.sql": "SELECT router FROM stats", "m.py": "import penstock as ps\n\n@ps.table\ndef a(stats): ..."}, ["tables/m.py:3: table `a` is declared twice, first at tables/a.sql:1"]),
        ({"m.py": "import penstock as ps\nps.feed('stats', path='landing/stats/b*.csv', format='csv')"}, ["tables/m.py:2: feed `stats` is declared twice, first at penstock.toml:2"]),
        ({"m.py": "import penstock as ps\nps.feed('The Feed', path='landing/*.csv', format='csv')"}, ["tables/m.py:2: 'The Feed' cannot be the name of a feed; expected small letters, digits and _, beginning with a letter"]),
        ({"hourly-stats.sql": "SELECT router FROM stats"}, ["tables/hourly-stats.sql:1: 'hourly-stats' cannot be the name of a table; expected small letters, digits and _, beginning with a letter"]),
        ({"a_quarantine.sql": "SELECT router FROM stats"}, ["tables/a_quarantine.sql:1: table `a_quarantine` needs another name: names that end in _quarantine hold refused rows, those that begin with _penstock are kept for state"]),
        ({"partition.sql": "SELECT router FROM stats"}, ["tables/partition.sql:1: table `partition` needs another name: Python functions are given their partition by this one"]),
        # cycles
        ({"a.sql": "SELECT x FROM b", "b.sql": "SELECT x\nFROM c", "c.sql": "SELECT x\n\nFROM a JOIN stats"},
         ["tables/a.sql:1: tables depend on each other in a circle: a -> c -> b -> a; a table may only read its own earlier partitions, as SELF - 1"]),
        ({"a.sql": "SELECT x FROM b", "b.sql": "SELECT x FROM a", "c.sql": "SELECT x FROM d", "d.sql": "SELECT x FROM c"},
         ["tables/a.sql:1: tables depend on each other in a circle: a -> b -> a; a table may only read its own earlier partitions, as SELF - 1",
          "tables/c.sql:1: tables depend on each other in a circle: c -> d -> c; a table may only read its own earlier partitions, as SELF - 1"]),
        ({"m.py": "import penstock as ps\n@ps.table\ndef a(b): ...\n@ps.table\ndef b(a): ..."},
         ["tables/m.py:2: tables depend on each other in a circle: a -> b -> a; a table may only read its own earlier partitions, as SELF - 1"]),
        # tables that read themselves
        ({"a.sql": "SELECT x FROM a"}, ["tables/a.sql:1: table `a` reads itself, so it must say its `columns` (the first partition has none to read): columns = \"router string, day timestamp, bytes bigint\"",
                                        "tables/a.sql:1: table `a` reads no other table, so nothing would ever update it",
                                        "tables/a.sql:1: table `a`, source `a`: a table that reads itself must say which of its earlier partitions: sources = { a = \"SELF - 1\" }"]),
        ({"a.sql": "-- columns = 'router string, ts timestamp'\n-- partition = 'day'\n-- time = 'ts'\n-- sources.a = 'same'\nSELECT s.router, s.ts\nFROM stats s JOIN a USING (router)"},
         ["tables/a.sql:4: table `a`, source `a`: 'same': a table can only read its own earlier partitions, for example SELF - 1"]),
        # grains and relations
        ({"hourly.sql": HOURLY.replace('"hour"\n-- time', '"day"\n-- time'), "a.sql": "-- Fine.\n-- partition = 'hour'\n-- time = 'hour'\nSELECT hour, bytes FROM hourly"},
         ["tables/a.sql:2: table `a`, source `hourly`: the source is partitioned by day, the table by hour: say which of its partitions are read, for example 'containing' (the day around each hour) or 'everything'"]),
        ({"a.sql": "-- partition = 'day'\n-- time = 'ts'\n-- sources.stats = 'same'\nSELECT router, ts FROM stats"}, ["tables/a.sql:3: table `a`, source `stats`: 'same' needs equal partitioning, but the source has hour and the table day"]),
        ({"a.sql": "-- partition = 'day'\n-- time = 'ts'\n-- sources = { stats = 'WEEK - 1' }\nSELECT router, ts FROM stats"}, ["tables/a.sql:3: table `a`: its time `ts` says that the rows of one day come from PARTITION of `stats`, but it reads WEEK - 1; write sources.stats = \"PARTITION\""]),
        ({"a.sql": "-- partition = 'day'\n-- time = 'ts'\n-- sources = { stats = 'yesterday' }\nSELECT router, ts FROM stats"}, ["tables/a.sql:3: table `a`, source `stats`: 'yesterday' counts in YESTERDAY, but the table is partitioned by day: write DAY or PARTITION"]),
        ({"a.sql": "-- sources = { stats = 'previous' }\nSELECT router, ts FROM stats"}, ["tables/a.sql:1: table `a`, source `stats`: 'previous': the table is not partitioned, so it can only read 'everything'"]),
        ({"m.py": "import penstock as ps\n@ps.table(partition='day', time='d',\n          sources={'stats': 'DAY.days()'})\ndef a(stats): ..."}, ["tables/m.py:3: table `a`, source `stats`: 'DAY.days()' needs a source partitioned by day, but it is partitioned by hour"]),
        ({"a.sql": "-- partition = 'hour'\nSELECT router, ts FROM stats"}, ["tables/a.sql:1: table `a` has partition 'hour' but no `time`: name the column that says which partition a row is in"]),
        # SQL
        ({"a.sql": "-- One.\n-- priority = 2\n\nSELEC router\nFROM stats"}, ["tables/a.sql:4: a statement that begins with 'SELEC'; write one SELECT (it may begin with WITH)"]),
        ({"a.sql": "-- One.\nSELECT router,\nFROM stats"}, ["tables/a.sql:2: nothing between ',' and 'FROM'; expected an expression, or one comma less"]),
        ({"a.sql": "-- One.\n\nSELECT router, byts\nFROM stats\nWHERE rooter = 'x'"}, [f"tables/a.sql:3: unknown column `byts`; did you mean `bytes`? {HAS}", f"tables/a.sql:5: unknown column `rooter`; did you mean `router`? {HAS}"]),
        ({"a.sql": "SELECT router FROM (\nstats UNION ALL SELECT router FROM sites)"}, ["tables/a.sql:2: `stats` where a query belongs; expected SELECT … FROM it"]),
        ({"a.sql": "SELECT date_trunc() AS x FROM stats"}, ["tables/a.sql:1: the SQL cannot be read (Cannot convert empty name into var.); expected a SELECT in Spark's SQL"]),
        ({"a.sql": "SELECT place.town FROM stats"}, ["tables/a.sql:1: unknown field `place.town`; `place` has: city"]),
        ({"a.sql": "SELECT count(*) FROM stats"}, ["tables/a.sql:1: output column 1 has no name; give it one: … AS name"]),
        ({"a.sql": "SELECT router FROM stats WHERE ts < :partition_end"}, ["tables/a.sql:1: table `a` uses :partition_end, but is not partitioned; set `partition`"]),
        ({"a.sql": "-- partition = 'day'\n-- time = 'day'\nSELECT router, :partition_start AS day FROM sites"}, [f"tables/a.sql:3: table `a` asks for :partition_start, {NO_TIME}"]),
        ({"m.py": "import penstock as ps\n@ps.table(partition='day', time='day', columns='day timestamp')\ndef a(sites, partition): ..."}, [f"tables/m.py:2: table `a` asks for `partition`, {NO_TIME}"]),
        ({"m.py": "import penstock as ps\n@ps.flow(partition='day', time='day')\ndef a(sites):\n  sites.derive(day=':partition_start').into('a')"}, [f"tables/m.py:4: table `a` asks for :partition_start, {NO_TIME}"]),
        ({"a.sql": "-- partition = 'hour'\n-- time = 'hour'\nSELECT router, ts FROM stats"}, ["tables/a.sql:3: the time column `hour` is not among the output columns; did you mean `router`? there are: router, ts"]),
        ({"a.sql": "-- partition = 'hour'\n-- time = 'router'\nSELECT router, ts FROM stats"}, ["tables/a.sql:2: table `a`: the time column `router` has type string, expected one of timestamp, timestamp_ntz, date"]),
        ({"m.py": "import penstock as ps\n@ps.table(\n    partition='day',\n    time='day',\n    columns='d timestamp')\ndef a(stats): ..."}, ["tables/m.py:4: table `a`: the time column `day` does not exist; there are: d"]),
        # targets
        ({"a.sql": "-- partition = 'day'\n-- time = 'ts'\n-- update = 'closed'\n-- freshness = '1h'\nSELECT router, ts FROM stats", "b.sql": "-- freshness = '1h'\nSELECT router FROM a"},
         ["tables/a.sql:4: warning: table `a` cannot be kept as fresh as 1h: feed `stats` delivers every 5m, and it is made by whole partitions of a day, so it is up to 1d5m behind; write freshness = \"1d5m\" or more",
          "tables/b.sql:1: warning: table `b` cannot be kept as fresh as 1h: feed `stats` delivers every 5m, and `a` is made by whole partitions of a day, so it is up to 1d5m behind; write freshness = \"1d5m\" or more"]),
        ({"a.sql": "-- freshness = '5m'\nSELECT router FROM stats", "b.sql": "-- freshness = '1s'\nSELECT router FROM sites"}, []),
    ],
)  # fmt: skip
def test_tables(check: Check, files: dict[str, str], expected: list[str]) -> None:
    assert check({f"tables/{name}": text for name, text in files.items()}) == expected


def test_all_problems_at_once_and_a_broken_table_hides_no_other(check: Check) -> None:
    files = {
        "tables/a.sql": "-- partition = 'hours'\n-- time = 'ts'\nSELECT router, ts, byts FROM stats",
        # reads a broken table: its columns and grain are unknown, but not those of others
        "tables/b.sql": "-- partition = 'day'\n-- time = 'ts'\n-- sources.a = 'same'\nSELECT a.anything, a.ts, s.sight FROM a JOIN sites s",
        "tables/c.sql": "SELECT router, nothing FROM stats",
        "tables/d.sql": "SELECT router FRM stats",
        "tables/e.sql": "SELECT router FROM d JOIN f",
        "tables/broken.py": "import penstock as ps\n@ps.table(name='f')\ndef later(stats): ...\n@ps.table\ndef g(h): ...\nraise ValueError('no')",
    }
    toml = "[feeds.x]\nformat = 'csv'\npriority = -1\ncolumns = 'a int'\ntime = 'b'\nrules = ['c > 0']\n"
    assert check(files, toml) == [
        "penstock.toml:14: `feeds.x.path` is missing; expected the pattern of its files, such as path = \"landing/stats/*.csv\"",
        "penstock.toml:16: `feeds.x.priority` is -1; expected more than 0",
        "penstock.toml:18: feed `x`: the time column `b` does not exist; there are: a",
        "penstock.toml:19: feed `x`, rule 'c > 0': unknown column `c`; `x` has: a",
        "tables/a.sql:1: `partition`: 'hours' is not a partitioning; expected minutes such as 5m, hour, day, week, month, quarter, year or none; did you mean `hour`?",
        f"tables/a.sql:3: unknown column `byts`; did you mean `bytes`? {HAS}",
        "tables/b.sql:4: unknown column `s.sight`; did you mean `site`? `s` has: router, site",
        "tables/broken.py:4: table `g` reads `h`, which is not declared; declared: a, b, c, d, e, f, g, sites, stats, x",
        "tables/broken.py:6: cannot be imported: ValueError: no",
        f"tables/c.sql:1: unknown column `nothing`; {HAS}",
        "tables/d.sql:1: unexpected 'stats'; expected a SELECT in Spark's SQL",
    ]  # fmt: skip


def test_days_of_another_zone(check: Check) -> None:
    daily = (
        "-- partition = 'day'\n-- time = 'day'\nSELECT router, {} AS day, sum(bytes) AS bytes FROM stats GROUP BY 1, 2"
    )
    toml = FEEDS.replace('name = "net"', 'name = "net"\nzone = "Europe/Berlin"')
    files = {"penstock.toml": toml, "tables/a.sql": daily.format("date_trunc('day', ts)")}
    assert check(files) == []
    files["penstock.toml"] = toml.replace("Europe/Berlin", "America/Goose_Bay").replace('"hour"', '"30m"')
    assert check(files) == [
        "tables/a.sql:2: table `a`: clocks of America/Goose_Bay were set back over midnight, where date_trunc gives the day before the one of the partition; write :partition_start AS day"
    ]
    assert check({**files, "tables/a.sql": daily.format(":partition_start")}) == []
    hourly = daily.replace("'day'", "'hour'", 1).format("date_trunc('hour', ts)")
    files = {"penstock.toml": toml.replace("Europe/Berlin", "Asia/Kolkata"), "tables/a.sql": hourly}
    assert check(files) == []
    assert check({**files, "penstock.toml": toml.replace("Europe/Berlin", "Australia/Lord_Howe")}) == [
        "tables/a.sql:2: table `a`: clocks of Australia/Lord_Howe were set by parts of an hour, but partitions have one length; write :partition_start AS day"
    ]


def test_names_are_checked_downstream_of_types_that_only_spark_knows(check: Check) -> None:
    files = {
        "tables/a.sql": "SELECT router, parse_url(router, 'HOST') AS host, bytes FROM stats",
        "tables/b.sql": "SELECT * FROM a",
        "tables/c.sql": "SELECT hst, bytes + 1 AS more, host FROM b",
    }
    assert check(files) == ["tables/c.sql:1: unknown column `hst`; did you mean `host`? `b` has: router, host, bytes"]


Load = Callable[[dict[str, str]], Definitions]


def test_columns_with_some_unknown_types(load: Load) -> None:
    found = load(
        {
            "tables/a.sql": "SELECT router, parse_url(router, 'HOST') AS host, bytes FROM stats",
            "tables/b.sql": "SELECT host, sum(bytes) AS bytes FROM a GROUP BY host",
            "tables/c.sql": "SELECT sum(bytes) AS bytes FROM b",
        }
    ).definitions
    assert found["a"].schema is None and found["b"].schema is None
    assert [(c.name, c.type) for c in found["b"].columns or ()] == [("host", None), ("bytes", "bigint")]
    assert found["c"].schema == (Column("bytes", "bigint"),)


def test_spark_does_not_tell_cases_apart(load: Load) -> None:
    warehouse = load({"tables/a.sql": "SELECT Router, BYTES FROM STATS"})
    assert [source.table for source in warehouse.definitions["a"].table.sources] == ["stats"]


def test_a_table_of_its_own_previous_day(load: Load) -> None:
    text = """
    -- What each router ever sent.
    -- partition = "day"
    -- time = "day"
    -- sources = { total = "SELF - 1" }
    -- columns = '''
    --   router string,
    --   day timestamp,
    --   bytes bigint
    -- '''
    SELECT router, :partition_start AS day, sum(bytes) AS bytes FROM (
      SELECT router, bytes FROM hourly UNION ALL SELECT router, bytes FROM total
    ) GROUP BY router
    """
    warehouse = load({"tables/hourly.sql": HOURLY, "tables/total.sql": text})
    total = warehouse.definitions["total"]
    assert {source.table: source.window for source in total.table.sources} == {"hourly": (0, 1), "total": (-1, 0)}
    assert total.declaration.description == "What each router ever sent."
    assert warehouse.graph.chained == {"total"}


SCORES = """
kind = "external"
reads = ["stats"]
partition = "day"
time = "day"
columns = "router string, day timestamp, score double"
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SCORES, []),
        (SCORES.replace("stats", "stat"), ["tables/scores.toml:2: table `scores` reads `stat`, which is not declared; did you mean `stats`?"]),
        (SCORES + 'group = "g"', ["tables/scores.toml:6: table `scores` is made by others: `group` is for tables that are made here"]),
        (SCORES.replace("columns", "# columns"), ['tables/scores.toml:1: table `scores` is made by others, so it must say its `columns`: columns = "router string, day timestamp, score double"']),
        (SCORES.replace('time = "day"', ""), ["tables/scores.toml:3: table `scores` has partition 'day' but no `time`: name the column that says which partition a row is in"]),
        (SCORES + 'data = "file"', ["tables/scores.toml:6: `data`: 'file' is no place where rows are; expected one of files, lake, elsewhere, folder PATH, replica PATH; did you mean `files`?"]),
        (SCORES + 'data = "folder"', ["tables/scores.toml:6: `data`: 'folder' names no place; write for example \"folder exports/scores\""]),
        (SCORES + 'webhook = "localhost:9"', ["tables/scores.toml:6: `webhook`: 'localhost:9' is not an address; write for example \"http://127.0.0.1:9000/orders\""]),
        (SCORES + 'command = "x"\nwebhook = "http://h/"', ["tables/scores.toml:7: table `scores` has both a command and a webhook; its work orders go to one of them"]),
        (SCORES.replace('reads = ["stats"]', 'order_within = "1h"'), ["tables/scores.toml:2: warning: table `scores` reads no table of ours, so there are no work orders: `order_within` has no effect; say what it `reads`"]),
        (SCORES.replace("kind", "# kind"), ['tables/scores.toml:1: table `scores` says nothing of who makes it; expected kind = "external", or a SELECT in a .sql file']),
        ("kind =", ["tables/scores.toml:1: not valid TOML: Invalid value"]),
    ],
)  # fmt: skip
def test_tables_that_others_make(check: Check, settings: str, expected: list[str]) -> None:
    assert check({"tables/scores.toml": settings}) == expected


def test_who_reads_them(check: Check) -> None:
    """Rows that are elsewhere can be read by no SQL; settings of outside jobs are for their tables."""
    elsewhere = 'kind = "external"\nreads = ["stats"]\ndata = "elsewhere"\npartition = "day"\n'
    view = '-- reads = ["stats"]\nSELECT * FROM scores'
    assert check({"tables/scores.toml": elsewhere, "tables/high.sql": view}) == [
        'tables/high.sql:1: table `high`: `reads` is for tables that others make; write kind = "external", or leave it out',
        'tables/high.sql:2: table `high` reads `scores`, whose rows are elsewhere: only its versions are known; a table with kind = "external" can depend on it; or say where its rows are, with `data`',
    ]
    good = {
        "tables/scores.toml": SCORES,
        "tables/high.sql": '-- partition = "day"\n-- time = "day"\nSELECT router, day FROM scores WHERE score > 1',
        "tables/later.py": "import penstock as ps\nps.external('later', reads=['high'], data='elsewhere', partition='day')",
    }
    assert check(good) == []
