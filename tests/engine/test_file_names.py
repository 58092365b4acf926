"""A name is a name, whatever is in it: of delivered files, and of the folder of a project."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.spark.links import Links
from penstock.engine.updates.load import TAG, FeedReader
from penstock.model.schema import parse_ddl
from penstock.requests.job import FeedFile
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

PROJECT = {
    "penstock.toml": """
        name = "names"
        [feeds.c]
        path = "landing/**/*.[cC]*"
        format = "csv"
        columns = "k string, ts timestamp, v int"
        time = "ts"
        partition = "day"
        settle = "0s"
    """,
    "tables/sums.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT date_trunc('day', ts) AS day, sum(v) AS v FROM c GROUP BY 1
    """,
}
NAMES = [
    "st2A.csv", "st2*.csv", "{st2A,st2A}.csv", "st2?.csv", "[s]t2A.csv", "b\\s.csv", "co:lon.csv", "sp ace .csv", "per%20cent.csv",
    "per cent.csv", "ha#sh?.csv", "new\nline.csv", "ü.csv", "u\u0308.csv", "st2a.csv", "l" * 240 + ".csv", "eq=1.csv", "a,b.csv", "-.csv",
    "'q'.csv", '"q".csv', "`t`.csv", "x=1/y.csv", "d[0]/*/z.csv", "t:o/c.csv", "~.csv", "$HOME.csv", "tab\t.csv", " .csv",
]  # fmt: skip


def _row(name: str, number: int) -> str:
    return f'k,ts,v\n"{number}",2024-01-{1 + number % 3:02d}T10:00:00Z,{number}\n'


def test_any_name_is_one_file(project: Write, spark: SparkSession, tmp_path: Path) -> None:
    """Every file gives its own row once, in a project whose own folder has such a name too; corrected, it changes that row."""
    root = project({f"p [x] y*{{a,b}}\\: %20#é/{name}": text for name, text in PROJECT.items()})
    folder = next(root.iterdir())
    for number, name in enumerate(NAMES):
        path = folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_row(name, number))
    more = len(NAMES)
    (folder / "landing/packed.csv.GZ").write_bytes(gzip.compress(_row("", more).encode()))
    (folder / "landing/packed.CSV.bz2").write_bytes(bz2.compress(_row("", more + 1).encode()))
    bad = folder / "landing/{bad,good}*.csv"
    bad.write_text(_row("", more + 2) + "x,2024-01-01T10:00:00Z,many\n")
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert not state.quarantine
        expected = {str(number): number for number in range(more + 3)}
        con = attach(folder)
        assert dict(rows(con, "SELECT k, v FROM lake.c")) == expected
        assert rows(con, "SELECT count(*), sum(v) FROM lake.c") == [(len(expected), sum(expected.values()))]
        assert rows(con, "SELECT sum(v) FROM lake.sums") == [(sum(expected.values()),)]
        assert rows(con, "SELECT file, line FROM lake.c_quarantine") == [("landing/{bad,good}*.csv", 3)]
        (folder / "landing/st2*.csv").write_text("k,ts,v\n1,2024-01-02T10:00:00Z,1001\n")
        warehouse.run(until_idle=True)
        con = attach(folder)
        assert dict(rows(con, "SELECT k, v FROM lake.c")) == expected | {"1": 1001}
        assert rows(con, "SELECT sum(v) FROM lake.sums") == [(sum(expected.values()) + 1000,)]
    assert not list((folder / ".penstock/reading").glob("*"))


def test_a_row_knows_which_file_it_is_of(spark: SparkSession, project: Write, tmp_path: Path) -> None:
    folder = project({name: text for name, text in PROJECT.items() if name == "penstock.toml"})
    with Warehouse(folder, spark=spark) as warehouse:
        feed = warehouse.declared.feeds["c"]
    files = []
    for number, name in enumerate([*NAMES, "wide.csv"]):
        path = folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _row(name, number)
        path.write_text(text if number % 2 else "v,k,ts\n{2},{0},{1}\n".format(*text.split("\n")[1].split(",")))
        files.append(FeedFile(f"landing/{name}", "", 1, 0))
    links = Links(tmp_path / "links")
    reader = FeedReader(feed, parse_ddl("k string, ts timestamp, v int"), folder, links)
    found = reader.frame(spark, files[::-1], tagged=True).select("k", "v", TAG).collect()
    assert sorted(map(tuple, found)) == sorted((str(n), n, len(files) - 1 - n) for n in range(len(files)))
    links.clear()
    assert not (tmp_path / "links").exists()
