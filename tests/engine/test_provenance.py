"""Rows of base tables know their files: what is rewritten, withdrawn or declared anew touches exactly what it must."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.errors import PenstockError
from tests.conftest import Write

pytestmark = pytest.mark.spark

TOML = """
    name = "known"
    zone = "{zone}"
    [feeds.ev]
    path = "landing/ev/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v bigint"
    time = "ts"
    settle = "0s"
    partition = "{partition}"
    rules = [{rules}]
    [feeds.raw]
    path = "landing/raw/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v bigint"
    time = "ts"
    settle = "0s"
    rules = [{rules}]
    [feeds.third]
    path = "landing/third/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v bigint"
    time = "ts"
    settle = "0s"
    [feeds.other]
    path = "landing/other/*.csv"
    format = "csv"
    columns = "k string, ts timestamp, v bigint"
    time = "ts"
    settle = "0s"
"""
DAILY = """
    -- partition = "{grain}"
    -- time = "day"
    SELECT k, date_trunc('{grain}', ts) AS day, sum(v) AS v, count(*) AS n FROM {source} GROUP BY k, date_trunc('{grain}', ts)
"""
UPPER = """
    -- feed = "{feed}"
    -- partition = "day"
    SELECT upper(k) AS k, ts, v * {factor} AS v FROM {feed} WHERE v > 0
"""
FUNCTION = """
import penstock as ps


@ps.base_table(feed="raw", partition="hour")
def doubled(rows):
    return rows.selectExpr("ts", "k", "v * 2 AS v")
"""


class Project:
    def __init__(self, folder: Path, spark: SparkSession, write: Write) -> None:
        self.folder, self.spark, self.write = folder, spark, write
        self.settings = {"zone": "UTC", "partition": "day", "rules": ""}
        self.views = {"grain": "day", "source": "ev"}
        self.base = {"feed": "raw", "factor": "10"}

    def declare(self, **changed: str) -> None:
        for settings in (self.settings, self.views, self.base):
            settings.update({name: value for name, value in changed.items() if name in settings})
        self.write(
            {
                "penstock.toml": TOML.format(**self.settings),
                "tables/daily.sql": DAILY.format(**self.views),
                "tables/upper.sql": UPPER.format(**self.base),
                "tables/doubled.py": FUNCTION,
            }
        )

    def deliver(self, name: str, *rows: tuple[str, str, int]) -> None:
        for place in (name, name.replace("ev/", "raw/")):
            path = self.folder / "landing" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("k,ts,v\n" + "".join(f"{k},2024-03-{day}:00Z,{v}\n" for k, day, v in rows))

    def run(self) -> None:
        with Warehouse(self.folder, spark=self.spark) as warehouse:
            warehouse.run(until_idle=True)
            assert not [row for row in warehouse.status() if row.error], warehouse.status()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with Warehouse(self.folder, spark=self.spark) as warehouse:
            return sorted(tuple(row) for row in warehouse.query(sql).rows)

    def check(self, expected: Mapping[str, tuple[str, str, int]] | list[tuple[str, str, int]]) -> None:
        """All tables follow from these rows of the feed."""
        rows = list(expected)
        good = [(k, day, v) for k, day, v in rows]
        assert self.rows("select k, date_format(ts, 'dd HH') d, v from ev") == sorted(
            (k, day[:5].replace("T", " "), v) for k, day, v in good
        )
        source = good
        assert self.rows("select k, v from doubled") == sorted((k, 2 * v) for k, _, v in good)
        factor = int(self.base["factor"])
        if self.base["feed"] == "raw":
            assert self.rows("select k, v from upper") == sorted((k.upper(), factor * v) for k, _, v in good if v > 0)
        sums: dict[tuple[str, str], list[int]] = {}
        for k, day, v in source:
            cut = {"day": 2, "hour": 5, "month": 0}[self.views["grain"]]
            sums.setdefault((k, day[:cut]), []).append(v)
        if self.views["source"] == "ev":
            found = self.rows("select k, v, n from daily")
            assert found == sorted((k, sum(vs), len(vs)) for (k, _), vs in sums.items())


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, project: Write) -> Project:
    made = Project(tmp_path, spark, project)
    made.declare()
    return made


A = [("a", "01T10:00", 1), ("b", "01T11:00", 2)]
B = [("a", "02T10:00", 4), ("a", "01T10:30", 8)]
C = [("c", "03T10:00", 16), ("a", "03T23:30", 32)]


def test_a_corrected_or_withdrawn_file_touches_its_own_rows_and_needs_no_other(project: Project) -> None:
    for name, rows in (("ev/a.csv", A), ("ev/b.csv", B), ("ev/c.csv", C)):
        project.deliver(name, *rows)
    project.run()
    project.check([*A, *B, *C])
    # Files may be archived once they are loaded.
    for name in ("ev/a.csv", "ev/c.csv", "raw/a.csv", "raw/c.csv"):
        (project.folder / "landing" / name).unlink()
    corrected = [("a", "02T10:00", 5), ("d", "02T12:00", 64)]
    project.deliver("ev/b.csv", *corrected)
    before = _updates(project)
    project.run()
    project.check([*A, *corrected, *C])
    # The third day has nothing of that file.
    assert _made(project, before, "daily") == {"2024-03-01", "2024-03-02"}
    with Warehouse(project.folder, spark=project.spark) as warehouse:
        gone = warehouse.withdraw(["landing/ev/c.csv", "landing/raw/c.csv"], reason="sent by mistake")
        assert all(each.changed for each in gone) and [each.tables for each in gone] == [("ev",), ("doubled", "upper")]
        with pytest.raises(PenstockError, match=r"did you mean landing/ev/b\.csv"):
            warehouse.withdraw("landing/ev/bb.csv")
    project.run()
    project.check([*A, *corrected])
    # The next file is loaded as ever; a withdrawn one that still lies there is not.
    project.deliver("ev/e.csv", ("e", "05T01:00", 7))
    with Warehouse(project.folder, spark=project.spark) as warehouse:
        warehouse.withdraw(["landing/ev/b.csv", "landing/raw/b.csv"])
    project.run()
    project.check([*A, ("e", "05T01:00", 7)])
    with Warehouse(project.folder, spark=project.spark) as warehouse:
        warehouse.give_back(["landing/ev/b.csv", "landing/raw/b.csv"])
    project.run()
    project.check([*A, *corrected, ("e", "05T01:00", 7)])


def test_a_withdrawn_file_that_brought_no_rows_is_no_error(project: Project) -> None:
    """Nothing is published between two updates that change nothing: each is on record all the same."""
    project.deliver("ev/a.csv", *A)
    for name in ("ev/b.csv", "ev/c.csv"):
        project.deliver(name)
    project.run()
    for name in ("ev/b.csv", "ev/c.csv"):
        with Warehouse(project.folder, spark=project.spark) as warehouse:
            warehouse.withdraw(f"landing/{name}")
        project.run()
    project.check(A)


def test_changed_declarations_leave_nothing_of_the_old_ones(project: Project) -> None:
    every = [*A, *B, *C]
    project.deliver("ev/a.csv", *A)
    project.deliver("ev/b.csv", *B, *C)
    project.run()
    for change in (
        {"partition": "day", "grain": "month"},
        {"partition": "hour", "grain": "hour"},
        {"partition": "month", "grain": "month"},
        {"partition": "day", "grain": "day"},
        {"factor": "3"},
    ):
        project.declare(**change)
        project.run()
        project.check(every)
        late = ("z", f"0{len(every) % 9 + 1}T05:00", len(every))
        every.append(late)
        project.deliver(f"ev/{len(every)}.csv", late)
        project.run()
        project.check(every)


def test_other_sources_zones_and_rules(project: Project) -> None:
    project.deliver("ev/a.csv", *A, ("bad", "02T03:00", -1))
    project.deliver("other/o.csv", ("o", "01T00:00", 9))
    project.run()
    project.deliver("third/o.csv", ("o", "01T00:00", 9))
    project.declare(source="other", feed="third")
    project.run()
    assert project.rows("select k, v, n from daily") == [("o", 9, 1)]
    assert project.rows("select k, v from upper") == [("O", 90)]
    project.declare(source="ev", feed="raw", rules='"v > 0"')
    project.run()
    project.check(A)
    quarantined = "select file, reason from ev_quarantine"
    assert project.rows(quarantined) == [("landing/ev/a.csv", "breaks the rule: v > 0")]
    project.declare(zone="America/New_York", rules='"v > 0", "k <> \'b\'"', partition="day")
    project.run()
    assert project.rows("select k, v, n from daily") == [("a", 1, 1)]
    assert len(project.rows(quarantined)) == 2
    with Warehouse(project.folder, spark=project.spark) as warehouse:
        assert next(row for row in warehouse.status() if row.table == "ev").quarantined_rows == 2
    # Without its files, rows stay that keep the rules of now.
    shutil.rmtree(project.folder / "landing/ev")
    (project.folder / "tables/upper.sql").unlink()
    (project.folder / "tables/doubled.py").unlink()
    project.settings.update({"rules": '"v > 1"'})
    project.write({"penstock.toml": TOML.format(**project.settings)})
    project.run()
    assert project.rows("select k, v from ev") == []


def _updates(project: Project) -> int:
    with Warehouse(project.folder, spark=project.spark) as warehouse, warehouse.store.read() as conn:
        return warehouse.store.last_number(conn)


def _made(project: Project, after: int, table: str) -> set[str]:
    """The days for which a table was made since then."""
    from penstock.control.events import UpdateStarted
    from penstock.model.time import DAY_US, format_instant

    found = set()
    with Warehouse(project.folder, spark=project.spark) as warehouse, warehouse.store.read() as conn:
        for _, event in warehouse.store.events(conn, after):
            if isinstance(event, UpdateStarted) and event.job.table == table:
                for piece in event.job.pieces:
                    for start in range(piece.start_us, piece.end_us, DAY_US):
                        found.add(format_instant(start)[:10])
    return found
