"""Wrong settings: in penstock.toml, in headers of SQL files, in Python. One project for each case, exact messages."""

from __future__ import annotations

import pytest

from .conftest import Check

GRAINS = "expected minutes such as 5m, hour, day, week, month, quarter, year or none"
FEED_KEYS = "path, format, columns, time, zone, period, lateness, late, jitter, punctuation, mode, order, key, change, history, reasons, options, rules, settle, look_every, follow_links, max_ahead, partition, priority, freshness, guarantee, cost, recovery, restated, queue, keep_versions, keep_days, owner, tags"
TABLE_KEYS = "name, feed, partition, time, sources, priority, period, freshness, update, history_weight, attempts, propagate, overrun, absent, waits, columns, code_version, reason, keep_versions, keep_days, chop, guarantee, cost, recovery, group, patience, late_cost, owner, tags, restated, queue, kind, reads, data, command, webhook, order_within"


def test_a_project_as_it_should_be(check: Check) -> None:
    assert check() == []


# The lines count from the top of FEEDS, which has 13 lines.
@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[run]\ntracks = 0", "penstock.toml:15: `run.tracks` is 0; expected at least 1"),
        ("[run]\ntracks = 5000", "penstock.toml:15: `run.tracks` is 5000; expected at most 1000"),
        ("[run]\ntracks = 1.5", "penstock.toml:15: `run.tracks` is 1.5; expected a whole number"),
        ("[run]\n\ntrack = 3", "penstock.toml:16: unknown key `run.track`; did you mean `tracks`? (known: tracks, patience, late_cost, policy, grace, driver_bytes)"),
        ("[storage]\nkeep_days = -1", "penstock.toml:15: `storage.keep_days` is -1; expected more than 0"),
        ("[storage]\nkeep_versions = true", "penstock.toml:15: `storage.keep_versions` is true; expected a whole number"),
        ("[storage]\npath = 's3://bucket/x'", "penstock.toml:15: `storage.path`: 's3://bucket/x': s3:// cannot be used; expected a folder of this machine"),
        ("[store]\nurl = 'mysql://x'", "penstock.toml:15: `store.url`: 'mysql://x' is not a store; expected sqlite:///path/to/file.db or postgresql://user@host/database"),
        ("[store]\nurl = 'postgresql://$PENSTOCK_NO_SUCH@x/y'", "penstock.toml:15: `store.url`: the environment variable PENSTOCK_NO_SUCH is not set"),
        ("[spark]\nmaster = 'local[2]'\ndriver.memory = 1.5", "penstock.toml:16: `spark.driver.memory`: 1.5 cannot be an option; expected a text, a whole number, true or false"),
        ("[sprak]\nmaster = 'local'", "penstock.toml:14: unknown key `sprak`; did you mean `spark`? (known: name, zone, tables, storage, store, run, flows, queries, serve, log, profiles, spark, feeds, replicas)"),
    ],
)  # fmt: skip
def test_project(check: Check, toml: str, expected: str) -> None:
    assert check(toml=toml) == [expected]


def test_policy(check: Check) -> None:
    (problem,) = check(toml="[run]\npolicy = 'max-benefits'")
    assert problem.startswith("penstock.toml:15: `run.policy`: 'max-benefits' is not a policy")
    assert "max-benefit" in problem.split(";")[-1]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("", "penstock.toml:1: `name` is missing; expected a name for the project, such as name = \"netops\""),
        ("name = '1st'", "penstock.toml:1: `name` is '1st'; expected letters, digits, - and _, beginning with a letter"),
        ("name = 'x'\nzone = 'Mars/Base'", "penstock.toml:2: `zone`: 'Mars/Base' is not a time zone; write for example Europe/Berlin"),
        ("name = 'x'\n\ntables = 'views'", "penstock.toml:3: `tables` names the folder 'views', which does not exist"),
        ("name = net", "penstock.toml:1: not valid TOML: Invalid value, column 8; a text is written in quotes: \"net\""),
        ("name = 'x'\nname = 'y'", "penstock.toml:2: not valid TOML: a key stands twice"),
        ("name = 'x'\nfeeds = 3", "penstock.toml:2: `feeds` is 3; expected a table of settings"),
        ("name = 'x'", "penstock.toml:1: warning: no feed and no table is declared: nothing would ever run"),
    ],
)  # fmt: skip
def test_top_of_the_file(check: Check, first: str, expected: str) -> None:
    assert check({"penstock.toml": first})[:1] == [expected]


def test_no_project(check: Check, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from .conftest import found

    message = "there is no such file; make a project with `penstock init`, or name its folder with --project"
    assert found(tmp_path) == [f"{tmp_path}/penstock.toml:1: {message}"]


# The settings of a third feed, [feeds.x] at line 14. Its path is at line 15 and its format at line 16.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("perod = '5m'", f"penstock.toml:17: unknown key `feeds.x.perod`; did you mean `period`? (known: {FEED_KEYS})"),
        ("period = 60", "penstock.toml:17: `feeds.x.period`: 60 has no unit; write for example \"60s\" or \"60m\""),
        ("period = '5 minuets'", "penstock.toml:17: `feeds.x.period`: '5 minuets' is not a duration; write for example 30s, 5m, 1h30m or 2d"),
        ("period = '0s'", "penstock.toml:17: `feeds.x.period` is '0s'; expected more than 0"),
        ("lateness = '-5m'", "penstock.toml:17: `feeds.x.lateness`: '-5m' is not a duration; write for example 30s, 5m, 1h30m or 2d"),
        ("settle = true", "penstock.toml:17: `feeds.x.settle`: True is not a duration; write for example \"30s\", \"5m\", \"1h30m\" or \"2d\""),
        ("mode = 'apend'", "penstock.toml:17: `feeds.x.mode` is 'apend'; expected one of append, snapshot, changes, upsert; did you mean `append`?"),
        ("priority = 0", "penstock.toml:17: `feeds.x.priority` is 0; expected more than 0"),
        ("priority = 'high'", "penstock.toml:17: `feeds.x.priority` is 'high'; expected a number"),
        ("priority = nan", "penstock.toml:17: `feeds.x.priority` is nan; expected a finite number"),
        ("priority = inf", "penstock.toml:17: `feeds.x.priority` is inf; expected a finite number"),
        ("keep_versions = 0", "penstock.toml:17: `feeds.x.keep_versions` is 0; expected at least 1"),
        ("partition = 'hourly'", f"penstock.toml:17: `feeds.x.partition`: 'hourly' is not a partitioning; {GRAINS}; did you mean `hour`?"),
        ("partition = '7m'", "penstock.toml:17: `feeds.x.partition`: '7m' does not divide a day; use 1, 2, 3, 5, 10, 15, 20, 30 … minutes, or day"),
        ("rules = 'a > 0'", "penstock.toml:17: `feeds.x.rules` is 'a > 0'; expected a list, such as [\"bytes >= 0\"]"),
        ("rules = [\n  'a > 0',\n  5,\n]", "penstock.toml:19: `feeds.x.rules.1` is 5; expected a text in \"quotes\""),
        ("options = { sep = ';', x = [1] }", "penstock.toml:17: `feeds.x.options.x`: [1] cannot be an option; expected a text, a whole number, true or false"),
        ("options = 'sep'", "penstock.toml:17: `feeds.x.options` is 'sep'; expected a table, such as { sep = \";\" }"),
        ("options = { sep = '||' }", "penstock.toml:17: feed `x`: option `sep` is '||'; expected one character"),
        ("options = { encoding = 'utf8000' }", "penstock.toml:17: feed `x`: option `encoding` is 'utf8000', which is not an encoding; write for example \"utf-8\" or \"latin-1\""),
        ("options = { mode = 'FAILFAST' }", "penstock.toml:17: feed `x`: option `mode` is set by Penstock; leave it out"),
        ("options = { header = 'no' }", "penstock.toml:17: feed `x`: option `header` is 'no'; expected true or false"),
        ("columns = 5", "penstock.toml:17: `feeds.x.columns` is 5; expected a text in \"quotes\""),
        ("columns = 'a int, b datetime, c'", ["penstock.toml:17: feed `x`: column `b`: 'datetime' is not a type of Spark; write timestamp",
                                              "penstock.toml:17: feed `x`: column `c` has no type; write for example `c string`"]),
        ("columns = '''\na int,\nb bigit,\n\na string'''", ["penstock.toml:19: feed `x`: column `b`: 'bigit' is not a type of Spark; write bigint",
                                                           "penstock.toml:21: feed `x`: column `a` stands twice"]),
        ("columns = 'a int, at timestamp'\ntime = 'when'", "penstock.toml:18: feed `x`: the time column `when` does not exist; there are: a, at"),
        ("columns = 'a int, stamp timestamp'\ntime = 'stmp'", "penstock.toml:18: feed `x`: the time column `stmp` does not exist; did you mean `stamp`?"),
        ("columns = 'a int, at string'\ntime = 'at'", "penstock.toml:18: feed `x`: the time column `at` has type string, expected one of timestamp, timestamp_ntz, date"),
        ("columns = 'd date'\ntime = 'd'\npartition = 'hour'", "penstock.toml:18: warning: feed `x`: the time column `d` is a date, so all rows of a day fall into its first hour; partition by day, or use a timestamp"),
        ("partition = 'hour'", "penstock.toml:17: feed `x` has `partition` but no `time`: name the column that holds the event time"),
        ("lateness = '5m'", "penstock.toml:17: feed `x` has `lateness` but no `time`: name the column that holds the event time"),
        ("time = 'at'\npunctuation = 'landing/x/*.csv'", "penstock.toml:18: feed `x`: `punctuation` is the same pattern as `path`, so that every file would be a marker; give marker files names of their own, such as *.done"),
        ("time = 'at'\nmode = 'snapshot'\nlateness = '1h'", "penstock.toml:19: warning: feed `x`: `lateness` has no effect, as each snapshot replaces the whole table"),
        ("columns = 'a int'\nrules = [\n 'a > 0',\n 'b > 0',\n]", "penstock.toml:20: feed `x`, rule 'b > 0': unknown column `b`; `x` has: a"),
        ("columns = 'a int'\nrules = ['a >']", "penstock.toml:18: feed `x`, rule 'a >': unexpected ')'; expected a condition such as \"bytes >= 0\""),
        ("columns = 'a int'\nrules = ['a + 1']", "penstock.toml:18: feed `x`, rule 'a + 1' gives a int; expected a condition, which is true for good rows"),
        ("columns = 'a int'\nrules = ['max(a) < 9']", "penstock.toml:18: feed `x`, rule 'max(a) < 9': a rule looks at one row at a time, so it cannot use max(…)"),
        ("columns = 'a int'\nrules = ['a = row_number() over (order by a)']", "penstock.toml:18: feed `x`, rule 'a = row_number() over (order by a)': a rule looks at one row at a time, so it cannot use row_number(…)"),
        ("columns = 'a int'\nrules = ['a in (select router from stats)']", "penstock.toml:18: feed `x`, rule 'a in (select router from stats)': a rule looks at one row at a time, so it cannot read tables"),
        ("restated = 'Mo 25:00'", "penstock.toml:17: `feeds.x.restated`: 'Mo 25:00' is not a time that comes again; write for example \"Mon 02:00\", \"Mon, Thu 02:00..02:45\", \"02:00\" (every day) or \"1st 06:00\""),
        ("restated = 'Moonday 02:00'", "penstock.toml:17: `feeds.x.restated`: 'Moonday 02:00': 'Moonday' is no day of a week or month; write for example \"Mon 02:00\", \"Mon, Thu 02:00..02:45\", \"02:00\" (every day) or \"1st 06:00\""),
        ("rules = ['']", "penstock.toml:17: feed `x`, rule '': expected a condition such as \"bytes >= 0\""),
        ("time = 'at'\nperiod = '5m'\nlateness = '10m'\nfreshness = '1m'", "penstock.toml:20: warning: table `x` cannot be kept as fresh as 1m: feed `x` delivers every 5m and may be 10m late, so it is up to 15m behind; write freshness = \"15m\" or more"),
    ],
)  # fmt: skip
def test_feed(check: Check, tmp_path, settings: str, expected: str | list[str]) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "landing/x").mkdir(parents=True)
    toml = f"[feeds.x]\npath = 'landing/x/*.csv'\nformat = 'csv'\n{settings}\n"
    assert check(toml=toml) == ([expected] if isinstance(expected, str) else expected)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "`path` is ''; expected a pattern such as landing/x/*.csv"),
        ("landing/", "`path` is 'landing/', a folder; name its files: landing/*.csv"),
        ("landing/stats", "`path` is 'landing/stats', a folder; name its files: landing/stats/*.csv"),
        ("s3://bucket/*.csv", "`path` is 's3://bucket/*.csv'; s3:// cannot be watched, expected files of this machine"),
        ("~/in/*.csv", "`path` is '~/in/*.csv'; ~ and variables are not expanded, write the path itself"),
        ("landing/{a,b}/*.csv", "`path` is 'landing/{a,b}/*.csv'; {a,b} is not a pattern here, expected *, ?, [abc] and **"),
        ("landing/[ab/*.csv", "`path` is 'landing/[ab/*.csv'; [ is not closed, expected for example [0-9]"),
        ("landing/**.csv", "`path` is 'landing/**.csv'; ** stands for folders and must stand alone, as in landing/**/*.csv"),
        ("landing/..", "`path` is 'landing/..', a folder; name its files: landing/../*.csv"),
        ("landing/_x*.csv", "`path` is 'landing/_x*.csv'; such files are taken for unfinished and never loaded (names that begin with . or _ or end in .tmp, .part, .partial, .crdownload, .inprogress)"),
        ("warehouse/main/*.csv", "`path` is 'warehouse/main/*.csv', which lies in Penstock's own folder warehouse; deliver files elsewhere"),
        ("nowhere/*.csv", "warning: `path` is 'nowhere/*.csv', but the folder nowhere does not exist yet"),
        ("landing/x.csv", "warning: `path` is 'landing/x.csv', one file only; if each delivery replaces it, write mode = \"snapshot\", else a pattern"),
        ("landing/*.json", "warning: `path` is 'landing/*.json', but its `format` is 'csv'"),
    ],
)  # fmt: skip
def test_pattern(check: Check, path: str, expected: str) -> None:
    mark, _, message = expected.rpartition("warning: ")
    mark = "warning: " if "warning: " in expected else mark
    toml = f"[feeds.x]\npath = '{path}'\nformat = 'csv'\n"
    assert check(toml=toml) == [f"penstock.toml:15: {mark}feed `x`: {message}"]


def test_feeds_with_the_same_files(check: Check) -> None:
    toml = "[feeds.x]\npath = './landing//stats/*.json'\nformat = 'json'\n[feeds.y]\npath = 'landing/*/a*.csv'\nformat='csv'\n"
    toml += "[feeds.z]\npath = 'landing/sites/*'\nformat = 'json'\n[feeds.all]\npath = 'landing/*/*'\nformat = 'csv'\n"
    assert check(toml=toml) == [
        "penstock.toml:3: warning: every file of feed `stats` is also one of feed `all` (penstock.toml:24), and is loaded twice",
        "penstock.toml:10: warning: every file of feed `sites` is also one of feed `all` (penstock.toml:24), and is loaded twice",
        "penstock.toml:10: warning: every file of feed `sites` is also one of feed `z` (penstock.toml:21), and is loaded twice",
        "penstock.toml:15: feed `x` has the same `path` as feed `stats` (penstock.toml:3): 'landing/stats/*.json'; one feed can fill several tables: give them feed = \"stats\"",
        "penstock.toml:18: warning: every file of feed `y` is also one of feed `all` (penstock.toml:24), and is loaded twice",
        "penstock.toml:21: warning: every file of feed `z` is also one of feed `all` (penstock.toml:24), and is loaded twice",
    ]  # fmt: skip


HEADER_SQL = "SELECT router, ts, bytes FROM stats\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("partition = hour", "1: `partition = hour` looks like a setting, but is not valid TOML: Invalid value, column 13; a text is written in quotes: \"hour\""),
        ("Rows.\n-- partitoin = 'hour'", f"2: unknown key `partitoin`; did you mean `partition`? (known: {TABLE_KEYS})"),
        ("priority = 1\n--\n-- priority = 2", "3: not valid TOML: a key stands twice"),
        ("priority = -2", "1: `priority` is -2; expected more than 0"),
        ("partition: hour", "1: warning: `partition: hour` is read as description; a setting is written as `-- partition = \"hour\"`"),
        ("update = 'close'", "1: `update` is 'close'; expected one of continuous, closed; did you mean `closed`?"),
        ("update = 'closed'", "1: warning: table `t`: update = \"closed\" has no effect, as the table has no partitions"),
        ("name = 'My Table'", "1: `name`: 'My Table' cannot be a name; expected small letters, digits and _, beginning with a letter"),
        ("freshness = 5", "1: `freshness`: 5 has no unit; write for example \"5s\" or \"5m\""),
        ("attempts = 0", "1: `attempts` is 0; expected at least 1"),
        ("chop = 0", "1: `chop` is 0; expected at least 1"),
        ("history_weight = -0.1", "1: `history_weight` is -0.1; expected at least 0"),
        ("code_version = 1.5", "1: `code_version` is 1.5; expected a text in \"quotes\""),
        ("sources = 'stats'", "1: `sources` is 'stats'; expected a table, such as { stats = \"previous\" }"),
        ("sources = { stats = 'same',\n--   sites = 'everything' }", "1: `sources = { stats = 'same',` is not closed; a table in { } stands on one line; or write a line for each: `-- sources.stats = \"previous\"`"),
        ("columns = '''\n-- router string,\n-- ts datetime,\n-- bytes bigint\n-- '''", "3: table `t`: column `ts`: 'datetime' is not a type of Spark; write timestamp"),
        ("columns = 'router string, ts timestamp, bites int'", ["1: table `t`: `columns` names `bites`, which its SELECT does not give",
                                                                "1: table `t`: its SELECT gives `bytes`, which `columns` does not name"]),
        ("columns = 'router string, ts timestamp, bytes int'", "1: table `t`: column `bytes` is bigint in its SELECT, but int in `columns`; change one, for example with CAST(bytes AS int)"),
    ],
)  # fmt: skip
def test_header(check: Check, header: str, expected: str | list[str]) -> None:
    lines = [expected] if isinstance(expected, str) else expected
    assert check({"tables/t.sql": f"-- {header}\n{HEADER_SQL}"}) == [f"tables/t.sql:{line}" for line in lines]


def test_files_that_cannot_be_read(check: Check, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/odd.sql").write_bytes(b"select \xff")
    assert check({"tables/empty.sql": "-- partition = 'hour'\n-- time = 'ts'\n", "tables/none.sql": "", "tables/reader.sql": "SELECT * FROM empty JOIN odd"}) == [
        "tables/empty.sql:2: there is no SELECT below the header",
        "tables/none.sql:1: there is no SELECT below the header",
        "tables/odd.sql:1: not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 7: invalid start byte",
    ]  # fmt: skip


PYTHON = """
import penstock as ps

ps.feed(
    "alerts",
    path="landing/stats/a/*.json",
    format="jsn",
    options={
        "sep": ";",
        "mode": "FAILFAST",
    },
    lateness=30,
)

@ps.table(
    partition="hourly",
    columns="a int, "
            "b foo",
    sources={
        "stats": "same",
        "sties": "everything",
    },
    colour="red",
)
def context(stats, sites, alerts):
    return stats
"""


def test_python(check: Check) -> None:
    assert check({"tables/views.py": PYTHON}) == [
        "tables/views.py:5: warning: feed `alerts`: `path` is 'landing/stats/a/*.json', but the folder landing/stats/a does not exist yet",
        "tables/views.py:6: `format` is 'jsn'; expected one of csv, json, parquet, orc, xml, fixed; did you mean `json`?",
        "tables/views.py:9: feed `alerts`: option `mode` is set by Penstock; leave it out",
        "tables/views.py:11: `lateness`: 30 has no unit; write for example \"30s\" or \"30m\"",
        f"tables/views.py:15: `partition`: 'hourly' is not a partitioning; {GRAINS}; did you mean `hour`?",
        "tables/views.py:16: table `context`: column `b`: 'foo' is not a type of Spark; expected one of boolean, tinyint, smallint, int, bigint, float, double, string, binary, date, timestamp, timestamp_ntz, decimal(p,s), array<…>, map<…,…>, struct<name:type,…>",
        "tables/views.py:20: table `context` says how it reads `sties`, but does not read it; did you mean `sites`?",
        f"tables/views.py:22: unknown key `colour`; did you mean `columns`? (known: {TABLE_KEYS})",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import penstock as ps\n\n@ps.table(\ndef x(): pass\n", "3: not valid Python: '(' was never closed"),
        ("import penstock\nimport no_such_thing.deep\n", "2: cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'; install it where penstock runs, or put no_such_thing.py beside this file"),
        ("def helper():\n    return 1 / 0\n\nhelper()\n", "2: cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('bye')\n", "2: cannot be imported: SystemExit: bye"),
        ("import penstock as ps\nps.table(partition='hour')(5)\n", "2: cannot be imported: TypeError: @table is written above a function, not above int"),
        ("import penstock as ps\n@ps.base_table()\ndef x(rows): return rows\n", "2: cannot be imported: TypeError: base_table() missing 1 required keyword-only argument: 'feed'"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_imported(check: Check, text: str, expected: str) -> None:
    assert check({"tables/m.py": text}) == [f"tables/m.py:{expected}"]
