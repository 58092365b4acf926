"""What is declared anew, or moved in time, or restated: relatives of wrong rows that were found from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse

pytestmark = pytest.mark.spark

EVENTS = """
[feeds.ev]
path = "landing/ev/*.csv"
format = "csv"
columns = "k string, ts timestamp, v bigint"
time = "ts"
settle = "0s"
"""


class Site:
    """A project whose files each have a time of their own, so that what is rewritten is seen."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark, self.mtime = folder, spark, 1_700_000_000

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.mtime += 1
            os.utime(path, (self.mtime, self.mtime))

    def run(self, *queries: str, withdraw: str = "") -> list[list[tuple[Any, ...]]]:
        with Warehouse(self.folder, spark=self.spark) as warehouse:
            if withdraw:
                warehouse.withdraw(withdraw)
            warehouse.run(until_idle=True)
            assert [row.error for row in warehouse.status() if row.error] == []
            return [sorted(tuple(row) for row in warehouse.query(sql).rows) for sql in queries]


@pytest.fixture
def site(tmp_path: Path, spark: SparkSession) -> Site:
    return Site(tmp_path, spark)


def test_after_files_were_read_again_an_older_statement_still_counts_when_the_newest_goes(site: Site) -> None:
    feed = '[feeds.{name}]\npath = "landing/{name}/*.csv"\nformat = "csv"\ncolumns = "k string, day date, v bigint"\nmode = "snapshot"\nsettle = "0s"\n'
    toml = 'name = "again"\n' + feed.format(name="dated") + 'time = "day"\npartition = "day"\n{rules}\n'
    toml += feed.format(name="whole") + "{rules}\n"
    site.write({"penstock.toml": toml.format(rules="")})
    one, two = "k,day,v\na,2024-01-01,1\nc,2024-01-03,1\n", "k,day,v\na,2024-01-01,2\n"
    site.write({f"landing/{name}/1.csv": one for name in ("dated", "whole")})
    site.run()
    site.write({f"landing/{name}/2.csv": two for name in ("dated", "whole")})
    both = ("SELECT k, v FROM dated", "SELECT k, v FROM whole")
    assert site.run(*both) == [[("a", 2), ("c", 1)], [("a", 2)]]
    site.write({"penstock.toml": toml.format(rules='rules = ["v < 100"]')})
    assert site.run(*both) == [[("a", 2), ("c", 1)], [("a", 2)]]
    site.run(withdraw="landing/dated/2.csv")
    assert site.run(*both, withdraw="landing/whole/2.csv") == [[("a", 1), ("c", 1)]] * 2


def test_a_table_that_reads_itself_and_starts_anew_does_not_read_what_it_was(site: Site) -> None:
    toml = 'name = "itself"\nzone = "{zone}"\n' + EVENTS + 'partition = "day"\n'
    site.write(
        {
            "penstock.toml": toml.format(zone="UTC"),
            "tables/life.sql": '-- partition = "day"\n-- time = "day"\n-- sources.life = "SELF - 1"\n-- columns = "k string, day timestamp, v bigint"\n'
            "SELECT k, :partition_start AS day, sum(v) AS v FROM (SELECT k, v FROM ev UNION ALL SELECT k, v FROM life) GROUP BY k",
            "landing/ev/1.csv": "k,ts,v\na,2024-01-02T10:00:00Z,5\na,2024-01-03T10:00:00Z,1\n",
        }
    )
    assert site.run("SELECT v FROM life") == [[(5,), (6,)]]
    site.write({"penstock.toml": toml.format(zone="America/New_York")})
    assert site.run("SELECT v FROM life") == [[(5,), (6,)]]


def test_rows_that_are_moved_in_time_are_made_wherever_they_lie(site: Site) -> None:
    moved = '-- partition = "day"\n-- time = "t"\nSELECT k, ts {by} AS t FROM {source}'
    toml = 'name = "moved"\n' + EVENTS + 'partition = "day"\n' + EVENTS.replace("ev", "raw").replace("lraw", "lev")
    site.write(
        {
            "penstock.toml": toml,
            "tables/later.sql": moved.format(by="+ INTERVAL 1 DAY", source="ev"),
            "tables/later_whole.sql": moved.format(by="+ INTERVAL 40 DAYS", source="raw"),
            "tables/earlier_whole.sql": moved.format(by="- INTERVAL 40 DAYS", source="raw"),
            "tables/closed_whole.sql": '-- update = "closed"\n' + moved.format(by="+ INTERVAL 1 DAY", source="raw"),
        }
    )
    counts = [f"SELECT k, to_date(t) FROM {name}" for name in ("later", "later_whole", "earlier_whole", "closed_whole")]

    def told(day: int) -> None:
        site.write(
            {f"landing/{name}/{day}.csv": f"k,ts,v\nk{day},2024-03-{day:02}T05:00:00Z,1\n" for name in ("ev", "raw")}
        )

    told(1)
    site.run()
    told(3)
    found = [[(k, day.isoformat()) for k, day in rows] for rows in site.run(*counts)]
    assert found == [
        [("k1", "2024-03-02"), ("k3", "2024-03-04")],
        [("k1", "2024-04-10"), ("k3", "2024-04-12")],
        [("k1", "2024-01-21"), ("k3", "2024-01-23")],
        [("k1", "2024-03-02")],
    ]


def test_a_restated_partition_takes_rows_back_that_were_used_already(site: Site) -> None:
    """Its new rows lie beyond what is complete, the ones that are gone before it."""
    toml = 'name = "restated"\n' + EVENTS + 'mode = "snapshot"\npartition = "day"\npunctuation = "landing/ev/*.mark"\n'
    daily = '-- partition = "month"\n-- time = "month"\nSELECT k, date_trunc(\'month\', ts) AS month, count(*) AS n FROM ev GROUP BY 1, 2'
    site.write(
        {"penstock.toml": toml, "tables/monthly.sql": daily, "landing/ev/1.csv": "k,ts,v\na,2024-03-01T05:00:00Z,1\n"}
    )
    site.write({"landing/ev/1.mark": "2024-03-01T10:00:00Z"})
    assert site.run("SELECT k, n FROM monthly") == [[("a", 1)]]
    site.write({"landing/ev/2.csv": "k,ts,v\nb,2024-03-01T20:00:00Z,1\n"})
    assert site.run("SELECT k, n FROM monthly") == [[]]


def test_a_file_is_rewritten_while_a_backfill_is_asked_for(site: Site) -> None:
    site.write({"penstock.toml": 'name = "both"\n' + EVENTS + EVENTS.replace("ev", "dated") + 'partition = "day"\n'})
    for name in ("ev", "dated"):
        site.write({f"landing/{name}/1.csv": "k,ts,v\na,2024-03-01T05:00:00Z,1\n"})
        site.write({f"landing/{name}/2.csv": "k,ts,v\nb,2024-03-01T06:00:00Z,1\nc,2024-03-02T06:00:00Z,1\n"})
    both = ("SELECT k FROM ev", "SELECT k FROM dated")
    assert site.run(*both) == [[("a",), ("b",), ("c",)]] * 2
    for name in ("ev", "dated"):
        site.write({f"landing/{name}/2.csv": "k,ts,v\nd,2024-03-01T06:00:00Z,1\n"})
        with Warehouse(site.folder) as warehouse:
            warehouse.backfill(name, "2024-03-01" if name == "dated" else None)
    assert site.run(*both) == [[("a",), ("d",)]] * 2


def test_a_change_that_needs_a_file_which_is_gone_can_be_undone(site: Site) -> None:
    upper = '-- feed = "ev"\nSELECT upper(k) AS k, ts, v{more} AS v FROM ev'
    site.write({"penstock.toml": 'name = "undone"\n' + EVENTS, "tables/loud.sql": upper.format(more="")})
    for name in ("a", "b"):
        site.write({f"landing/ev/{name}.csv": f"k,ts,v\n{name},2024-03-01T05:00:00Z,1\n"})
    assert site.run("SELECT k, v FROM loud") == [[("A", 1), ("B", 1)]]
    (site.folder / "landing/ev/a.csv").unlink()
    site.write({"tables/loud.sql": upper.format(more=" + 1")})
    with Warehouse(site.folder, spark=site.spark) as warehouse:
        warehouse.run(until_idle=True)
        (row,) = warehouse.status()
        assert row.error and "landing/ev/a.csv is no longer there" in row.error
    site.write({"tables/loud.sql": upper.format(more="")})
    with Warehouse(site.folder, spark=site.spark) as warehouse:
        warehouse.retry(["loud"])
    assert site.run("SELECT k, v FROM loud") == [[("A", 1), ("B", 1)]]


def test_edges_follow_the_rows_that_are_there(site: Site) -> None:
    """Rows that were ahead are taken back, or rewritten: what had become complete by them is so no longer."""
    toml = 'name = "edges"\n' + EVENTS + 'lateness = "1d"\npartition = "day"\n'
    daily = (
        '-- partition = "day"\n-- time = "day"\nSELECT date_trunc(\'day\', ts) AS day, count(*) AS n FROM ev GROUP BY 1'
    )
    site.write({"penstock.toml": toml, "tables/daily.sql": daily})
    site.write({"landing/ev/1.csv": "k,ts,v\na,2024-03-01T05:00:00Z,1\nb,2024-03-02T05:00:00Z,1\n"})
    count = "SELECT sum(n) FROM daily"
    assert site.run(count) == [[(1,)]]
    site.write({"landing/ev/2.csv": "k,ts,v\nc,2024-05-01T05:00:00Z,1\n"})
    assert site.run(count) == [[(2,)]]
    assert site.run(count, withdraw="landing/ev/2.csv") == [[(1,)]]
    site.write({"landing/ev/3.csv": "k,ts,v\nd,2024-06-01T05:00:00Z,1\n"})
    assert site.run(count) == [[(2,)]]
    site.write({"landing/ev/3.csv": "k,ts,v\nd,2024-03-02T06:00:00Z,1\n"})
    assert site.run(count) == [[(1,)]]
    with Warehouse(site.folder) as warehouse:
        edges = {row.table: row.complete_us for row in warehouse.status()}
    assert edges["ev"] == edges["daily"] == 1_709_272_800_000_001  # 2024-03-01T06:00:00.000001Z


def test_markers_without_offset_are_those_of_the_zone_of_now(site: Site) -> None:
    toml = 'name = "marks"\nzone = "{zone}"\n' + EVENTS + 'punctuation = "landing/ev/*.mark"\n'
    site.write({"penstock.toml": toml.format(zone="UTC"), "landing/ev/1.mark": "2024-03-01 12:00:00"})
    site.write({"landing/ev/1.csv": "k,ts,v\na,2024-03-01T05:00:00Z,1\n"})
    for zone, edge in (("UTC", 1_709_294_400), ("Asia/Tokyo", 1_709_294_400 - 9 * 3600), ("UTC", 1_709_294_400)):
        site.write({"penstock.toml": toml.format(zone=zone)})
        site.run()
        with Warehouse(site.folder) as warehouse:
            assert [row.complete_us for row in warehouse.status()] == [edge * 1_000_000], zone


def test_other_partitions_of_a_snapshot_feed_are_what_its_files_state(site: Site) -> None:
    toml = 'name = "stated"\n' + EVENTS + 'mode = "snapshot"\npartition = "{partition}"\n'
    site.write({"penstock.toml": toml.format(partition="none")})
    for day in (13, 6, 7):
        site.write({f"landing/ev/{day}.csv": f"k,ts,v\nk{day},2025-01-{day:02}T05:00:00Z,1\n"})
        found = site.run("SELECT k FROM ev")
    assert found == [[("k7",)]]
    for partition, expected in (("week", ["k13", "k7"]), ("day", ["k13", "k6", "k7"]), ("none", ["k7"])):
        site.write({"penstock.toml": toml.format(partition=partition)})
        assert site.run("SELECT k FROM ev") == [[(k,) for k in expected]], partition


def test_new_rows_change_older_ones_of_their_partition_and_finer_readers_see_it(site: Site) -> None:
    counted = '-- partition = "month"\n-- time = "ts"\nSELECT k, ts, count(*) OVER (PARTITION BY k) AS n FROM {source}'
    read = '-- partition = "day"\n-- time = "ts"\n-- sources = {{ {source} = "containing" }}\nSELECT k, ts, n FROM {source}'
    toml = 'name = "finer"\n' + EVENTS + 'partition = "day"\n' + EVENTS.replace("ev", "raw").replace("lraw", "lev")
    site.write({"penstock.toml": toml})
    for source in ("ev", "raw"):
        site.write({f"tables/{source}_n.sql": counted.format(source=source)})
        site.write({f"tables/{source}_day.sql": read.format(source=f"{source}_n")})
    for day in (3, 20):
        for name in ("ev", "raw"):
            site.write({f"landing/{name}/{day}.csv": f"k,ts,v\na,2024-03-{day:02}T05:00:00Z,1\n"})
        found = site.run("SELECT n FROM ev_day", "SELECT n FROM raw_day")
    assert found == [[(2,), (2,)]] * 2


def test_a_column_of_another_type_is_taken_along_where_its_files_are_gone(site: Site) -> None:
    """As if they were read again; what would be another value is refused, and nothing is lost."""
    toml = 'name = "typed"\nzone = "Europe/Berlin"\n[feeds.s]\npath = "landing/s/*.csv"\nformat = "csv"\ncolumns = "{}"\nsettle = "0s"\n'
    columns = "n bigint, x float, at timestamp, w timestamp_ntz, e string, i int"
    site.write(
        {
            "penstock.toml": toml.format(columns),
            "landing/s/1.csv": "n,x,at,w,e,i\n7,0.1,2024-01-01 00:00:00,2024-01-01 00:00:00, 1e3,7\n",
        }
    )
    site.run()
    (site.folder / "landing/s/1.csv").unlink()
    exact = "SELECT cast(n AS string), cast(x AS string), cast(at AS string), cast(w AS string), cast(e AS string), cast(i AS string) FROM s"
    other = "n string, x decimal(5,2), at date, w date, e int, i int"
    for changed in ("n int, x double, at timestamp_ntz, w timestamp, e double, i decimal(6,2)", other):
        site.write({"penstock.toml": toml.format(changed)})
        ((row,),) = site.run(exact)
        assert [float(row[0]), float(row[1]), row[2][:10], row[3][:10]] == [7, 0.1, "2024-01-01", "2024-01-01"]
        assert [float(value) for value in row[4:]] == [1000, 7]
    for changed, said in (
        (other.replace("5,2", "5,0"), "x was decimal(5,2) and is decimal(5,0) now, but {} has 0.10: put it back"),
        (other.replace("w date", "w int"), "w was date and is int now, but {} has 2024-01-01: put it back"),
    ):
        site.write({"penstock.toml": toml.format(changed)})
        with Warehouse(site.folder, spark=site.spark) as warehouse:
            warehouse.run(until_idle=True)
            (error,) = [row.error or "" for row in warehouse.status()]
            assert error.startswith(said.format("landing/s/1.csv, of which only the rows are left,"))
            assert error.endswith("or undo the change")
    site.write({"penstock.toml": toml.format(other)})
    assert site.run("SELECT n FROM s") == [[("7",)]]
    site.write({"penstock.toml": toml.format(changed)})
    with Warehouse(site.folder, spark=site.spark) as warehouse:
        warehouse.withdraw("landing/s/1.csv")
        warehouse.run(until_idle=True)
        assert [row.error for row in warehouse.status()] == [None]


def test_what_orders_snapshots_is_taken_out(site: Site) -> None:
    toml = 'name = "ordered"\n[feeds.people]\npath = "landing/*.csv"\nformat = "csv"\ncolumns = "id bigint, city string"\nmode = "snapshot"\nsettle = "0s"\n'
    order = 'order = "name ([0-9]+)"\n'
    flow = 'import penstock as ps\n@ps.flow\ndef dims(people):\n    people.scd1("latest", key="id")\n'
    site.write({"penstock.toml": toml + order, "tables/f.py": flow, "landing/3.csv": "id,city\n1,three\n"})
    site.run()
    site.write({"landing/1.csv": "id,city\n1,one\n"})
    both = ("SELECT city FROM people", "SELECT city FROM latest")
    assert site.run(*both) == [[("three",)], [("three",)]]
    site.write({"penstock.toml": toml})
    assert site.run(*both) == [[("one",)], [("one",)]]
    # By name the other file counts, of which the table has no rows any more.
    (site.folder / "landing/3.csv").unlink()
    site.write({"penstock.toml": toml + order})
    with Warehouse(site.folder, spark=site.spark) as warehouse:
        warehouse.run(until_idle=True)
        (error,) = [row.error or "" for row in warehouse.status() if row.table == "people"]
        assert "3.csv" in error and "no longer there" in error
    site.write({"penstock.toml": toml})
    assert site.run(both[0]) == [[("one",)]]


def test_a_source_that_was_done_without_and_is_waited_for_now(site: Site) -> None:
    toml = 'name = "absent"\n' + EVENTS + 'partition = "day"\n' + EVENTS.replace("ev", "late") + 'partition = "day"\n'
    view = '-- partition = "day"\n-- time = "ts"\n{absent}SELECT e.ts, e.v, l.v AS w FROM ev e LEFT JOIN late l ON e.ts = l.ts'
    rows = [f"a,2024-03-0{day}T10:00:00Z,{day}" for day in (1, 2, 3)]
    head = "k,ts,v\n"
    site.write({"penstock.toml": toml, "tables/j.sql": view.format(absent='-- absent.late = "empty"\n')})
    site.write({"landing/ev/1.csv": head + "\n".join(rows), "landing/late/1.csv": head + rows[0]})
    asked = "SELECT v, w FROM j"
    assert site.run(asked) == [[(1, 1), (2, None), (3, None)]]
    site.write({"tables/j.sql": view.format(absent="")})
    assert site.run(asked) == [[(1, 1)]]
    site.write({"landing/late/2.csv": head + rows[1]})
    assert site.run(asked) == [[(1, 1), (2, 2)]]


def test_other_markers_promise_other_things(site: Site) -> None:
    toml = 'name = "marks"\n' + EVENTS + 'partition = "day"\npunctuation = "landing/ev/*.{}"\n'
    rows = [f"a,2024-03-0{day}T10:00:00Z,{day}" for day in (1, 2, 3)]
    site.write({"tables/n.sql": "SELECT count(*) AS n FROM ev", "landing/ev/1.csv": "k,ts,v\n" + "\n".join(rows)})
    site.write({"landing/ev/a.mark": "2024-03-04T00:00:00Z\n", "landing/ev/a.ready": "2024-03-02T00:00:00Z\n"})
    for pattern, expected in (("mark", 3), ("ready", 1), ("mark", 3)):
        site.write({"penstock.toml": toml.format(pattern)})
        assert site.run("SELECT n FROM n") == [[(expected,)]]


def test_a_row_of_an_archived_file_without_the_time_of_now_is_set_aside(site: Site) -> None:
    toml = 'name = "other"\n' + EVENTS.replace("v bigint", "t2 timestamp")
    site.write({"penstock.toml": toml, "landing/ev/1.csv": "k,ts,t2\na,2024-03-01,2024-04-01\nb,2024-03-02,\n"})
    assert site.run("SELECT k FROM ev") == [[("a",), ("b",)]]
    (site.folder / "landing/ev/1.csv").unlink()
    site.write({"penstock.toml": toml.replace('time = "ts"', 'time = "t2"')})
    rows, refused = site.run("SELECT k FROM ev", "SELECT reason FROM ev_quarantine")
    assert (rows, refused) == ([("a",)], [("the event time t2 is null",)])
