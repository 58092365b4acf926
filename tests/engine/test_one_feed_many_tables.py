"""Several base tables of one feed: each has its own pace, and a new one starts from what was delivered before it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.control import readiness
from penstock.engine.commands.feeds import retry
from penstock.engine.updates import baseload
from penstock.model.time import HOUR_US
from tests.engine.crashing import InlineRuntime, Site, _base_rows, make_site, stats, write_project
from tests.oracle import attach, rows

SETTINGS = """
    name = "shared"
    [run]
    tracks = 1
    policy = "fifo / chop=1"
    [feeds.stats]
    path = "landing/stats/*.csv"
    format = "csv"
    columns = "router string, ts timestamp, bytes bigint"
    time = "ts"
    partition = "hour"
    period = "1h"
    settle = "0s"
    # {tables}
"""
TABLE = """
    -- feed = "stats"
    -- partition = "hour"
    SELECT router, ts, bytes FROM stats
"""
FIRST = {
    "stats/s1.csv": stats(("a", "01T22:05", 10), ("b", "01T22:25", 9)),
    "stats/s2.csv": stats(("a", "01T22:35", 7), ("a", "01T23:10", 5)),
    "stats/s3.csv": stats(("a", "01T23:35", 3), ("b", "02T00:10", 2)),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


def declare(site: Site, *tables: str) -> None:
    for path in (site.folder / "tables").glob("*.sql"):
        path.unlink()
    made = {f"tables/{name}.sql": TABLE for name in tables}
    write_project(site.folder, {"penstock.toml": SETTINGS.format(tables=tables), **made})


def run(site: Site) -> None:
    with site.running() as process:
        process.run(until_idle=True)


def check(site: Site, *tables: str) -> None:
    """Each table has the rows of all files, once."""
    con = attach(site.folder)
    raw = rows(
        con,
        f"SELECT * FROM read_csv('{site.folder}/landing/stats/*.csv', header = true, "
        "columns = {'router': 'VARCHAR', 'ts': 'TIMESTAMPTZ', 'bytes': 'BIGINT'}) ORDER BY ALL",
    )
    for table in tables:
        assert rows(con, f"SELECT router, ts, bytes FROM lake.main.{table} ORDER BY ALL") == raw, table


def test_a_new_table_starts_from_what_the_feed_delivered_before(site: Site) -> None:
    declare(site, "first")
    site.deliver(FIRST)
    run(site)
    declare(site, "first", "second")
    run(site)
    check(site, "first", "second")
    site.deliver({"stats/s4.csv": stats(("c", "02T01:10", 1))})
    run(site)
    check(site, "first", "second")


def test_a_table_that_was_left_out_for_a_while_gets_what_it_missed(site: Site) -> None:
    declare(site, "first", "second")
    site.deliver(FIRST)
    run(site)
    declare(site, "first")
    site.deliver({"stats/s2.csv": stats(("a", "01T22:40", 70)), "stats/s4.csv": stats(("c", "02T01:10", 1))})
    run(site)
    declare(site, "first", "second")
    run(site)
    check(site, "first", "second")


def test_files_that_are_gone_and_files_that_are_bad_are_not_offered(site: Site) -> None:
    declare(site, "first")
    site.deliver({**FIRST, "stats/s5.csv": "nothing of the kind\n1\n"})
    run(site)
    (site.folder / "landing/stats/s1.csv").unlink()
    (site.folder / "landing/stats/s5.csv").unlink()
    declare(site, "first", "second")
    run(site)
    check(site, "second")


def test_a_file_that_was_away_when_a_table_was_new_is_loaded_when_it_is_back(site: Site) -> None:
    declare(site, "first")
    site.deliver(FIRST)
    run(site)
    away = site.folder / "landing/stats/s1.csv"
    away.rename(site.folder / "s1.csv")
    declare(site, "first", "second")
    run(site)
    check(site, "second")
    (site.folder / "s1.csv").rename(away)
    run(site)
    check(site, "first", "second")
    run(site)
    check(site, "first", "second")


def test_what_another_table_loaded_first_is_not_taken_twice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second table cannot load for a while. When it can, it makes a partition again before it takes the new content of
    the file that changed there, which the first table has loaded already."""
    monkeypatch.setattr(readiness, "WORTH_A_START", 0.0)  # a job takes what came within a period, no more
    declare(site, "first", "second")
    site.deliver(FIRST)
    run(site)
    with site.running() as process, held_back(process, monkeypatch, "second"):
        site.deliver({"stats/s0.csv": stats(("a", "01T22:01", 1), ("a", "02T02:00", 4))})
        process.run(until_idle=True)
        site.clock.pass_by(5 * HOUR_US)
        site.deliver({"stats/s1.csv": stats(("a", "01T22:05", 11), ("b", "01T22:25", 99), ("c", "02T03:00", 1))})
        process.run(until_idle=True)
    with site.running() as process:
        assert retry(site.warehouse, process.store, process.controller.state, [], 0).taken == ("second",)
        process.run(until_idle=True)
    check(site, "first", "second")


class held_back:
    """Loads of a table fail meanwhile."""

    def __init__(self, process: InlineRuntime, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
        self._process, self._patch, self._table = process, monkeypatch, table

    def __enter__(self) -> None:
        def refuse(session: Any, definition: Any, *rest: Any) -> Any:
            if definition.name == self._table:
                raise RuntimeError("not now")
            return _base_rows(session, definition, *rest)

        self._patch.setattr(baseload, "base_rows", refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.setattr(baseload, "base_rows", _base_rows)
