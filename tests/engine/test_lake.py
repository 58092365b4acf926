"""Commits of another DuckDB, a process of its own, to the catalogue: they are seen and told to the readers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.crashing import Points, Site, _duckdb, without_spark, write_project
from tests.engine.test_external import PROJECT, day, opened, rows, run

SCORES = """
    kind = "external"
    data = "lake"
    partition = "day"
    time = "day"
    columns = "router string, day timestamp, score double"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    write_project(tmp_path / "project", PROJECT | {"tables/scores.toml": SCORES})
    without_spark(monkeypatch)
    _duckdb()  # which brings the extensions
    return Site(tmp_path / "project", Points())


def duck(site: Site, *statements: str) -> None:
    """Another process with a DuckDB of its own."""
    sql = [f"ATTACH 'ducklake:{site.lake}' AS lake", "SET TimeZone = 'UTC'", "USE lake", *statements]
    code = f"import duckdb\ncon = duckdb.connect()\nfor sql in {sql!r}: con.execute(sql)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=site.folder)


CREATE = "CREATE TABLE scores (router VARCHAR, day TIMESTAMPTZ, score DOUBLE)"


def test_what_another_duckdb_writes_is_followed(site: Site) -> None:
    run(site)
    duck(
        site,
        CREATE,
        "INSERT INTO scores VALUES ('a', '2024-03-01', 0.9), ('b', '2024-03-02', 0.1), ('c', '2024-03-02', 0.8)",
    )
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-01", 0.9), ("c", "2024-03-02", 0.8)]
    # While no process runs: rows of one day more, and of one that was there.
    duck(
        site, "INSERT INTO scores VALUES ('d', '2024-03-03', 0.7)", "INSERT INTO scores VALUES ('e', '2024-03-01', 0.6)"
    )
    run(site)
    expected = [("a", "2024-03-01", 0.9), ("c", "2024-03-02", 0.8), ("d", "2024-03-03", 0.7), ("e", "2024-03-01", 0.6)]
    assert rows(site, "alarms") == sorted(expected)
    with opened(site) as warehouse:
        (last, *_) = warehouse.versions("scores")
        assert "by another program" in last.why
        assert warehouse.state().tables["alarms"].consistent
        made = warehouse.state().tables["alarms"].counts.updates
    run(site)
    with opened(site) as warehouse:
        assert warehouse.state().tables["alarms"].counts.updates == made
    # A whole partition taken away and written again, as DuckDB does it.
    duck(
        site,
        "DELETE FROM scores WHERE day = '2024-03-01'",
        "INSERT INTO scores VALUES ('a', '2024-03-01', 0.95)",
        "CALL ducklake_rewrite_data_files('lake', 'scores', delete_threshold => 0)",
    )
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-01", 0.95), ("c", "2024-03-02", 0.8), ("d", "2024-03-03", 0.7)]


def test_a_table_of_theirs_that_was_there_before(site: Site) -> None:
    (site.folder / "tables/scores.toml").rename(site.folder / "scores.toml")
    (site.folder / "tables/alarms.sql").rename(site.folder / "alarms.sql")
    run(site, day(1, ("a", 10)))
    duck(site, CREATE, "INSERT INTO scores VALUES ('a', '2024-03-01', 0.9)")
    run(site)
    (site.folder / "scores.toml").rename(site.folder / "tables/scores.toml")
    (site.folder / "alarms.sql").rename(site.folder / "tables/alarms.sql")
    (site.folder / "penstock.toml").write_text((site.folder / "penstock.toml").read_text() + "\n")
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-01", 0.9)]


def test_what_another_duckdb_does_to_a_table_of_ours_is_told_to_its_readers(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    duck(site, "INSERT INTO stats SELECT router, ts + INTERVAL 1 MINUTE, 90 FROM stats WHERE router = 'a'")
    run(site)
    con = _duckdb()
    con.execute(f"ATTACH 'ducklake:{site.lake}' AS lake (READ_ONLY)")
    try:
        assert con.execute("SELECT bytes FROM lake.daily WHERE router = 'a'").fetchall() == [(100,)]
    finally:
        con.execute("DETACH lake")
