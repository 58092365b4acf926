"""Two warehouses, each a process of its own kind: one reads tables of the other from a replica of it, and joins them consistently. DuckDB is in
the place of Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from tests.engine.crashing import Points, Site, _duckdb, stats, without_spark, write_project
from tests.engine.test_external import PROJECT, day, opened, run

THEIRS = {name: text for name, text in PROJECT.items() if name in ("penstock.toml", "tables/daily.sql")}
REPLICA = '\n[replicas.branch]\npath = "../branch"\nkeep_versions = 2\n'
OURS = {
    "penstock.toml": 'name = "ours"\n',
    "tables/stats.toml": """
        kind = "external"
        data = "replica ../branch"
        partition = "hour"
        time = "ts"
        columns = "router string, ts timestamp, bytes bigint"
    """,
    "tables/daily.toml": """
        kind = "external"
        data = "replica ../branch"
        partition = "day"
        time = "day"
        columns = "router string, day timestamp, bytes bigint"
    """,
    "tables/hours.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT router, date_trunc('day', ts) AS day, sum(bytes) AS bytes FROM stats GROUP BY 1, 2
    """,
    # Nothing, as long as both are of one state.
    "tables/odd.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT d.router, d.day, d.bytes - h.bytes AS difference FROM daily d JOIN hours h ON d.router = h.router AND d.day = h.day
    """,
}


def asked(site: Site, sql: str) -> list[tuple[object, ...]]:
    con = _duckdb()
    con.execute(f"ATTACH 'ducklake:{site.lake}' AS lake (READ_ONLY)")
    try:
        return sorted(con.execute(sql).fetchall())
    finally:
        con.execute("DETACH lake")


def test_two_warehouses_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "theirs", THEIRS)
    write_project(tmp_path / "ours", OURS)
    without_spark(monkeypatch)
    theirs, ours = Site(tmp_path / "theirs", Points()), Site(tmp_path / "ours", Points())
    toml = theirs.folder / "penstock.toml"
    toml.write_text(toml.read_text() + REPLICA)
    run(ours)
    with opened(ours) as warehouse:
        assert any("no replica in it" in line for line in warehouse.explain("daily").lines)
    run(theirs, day(1, ("a", 10), ("b", 20)))
    run(ours)
    total = "SELECT router, day::DATE::VARCHAR, bytes FROM lake.{}"
    assert asked(ours, total.format("daily")) == asked(theirs, total.format("daily"))
    assert asked(ours, "SELECT DISTINCT difference FROM lake.odd") == [(0,)]
    for number in range(3):
        run(theirs, (f"stats/late{number}.csv", stats(("a", "01T11:00", 5 + number))), day(2 + number, ("c", number)))
        run(ours)
        assert asked(ours, total.format("daily")) == asked(theirs, total.format("daily"))
        assert asked(ours, total.format("hours")) == asked(ours, total.format("daily"))
        assert asked(ours, "SELECT DISTINCT difference FROM lake.odd") == [(0,)]
        with opened(ours) as warehouse:
            assert warehouse.state().tables["odd"].consistent
            (version, *_) = warehouse.versions("daily")
            assert "of project outside" in version.why
            with pytest.raises(PenstockError, match="follows what others publish"):
                warehouse.publish("daily", "2024-03-01", files=[])
    # Nothing new, nothing done; and one that is away stops nothing.
    with opened(ours) as warehouse:
        made = warehouse.state().tables["odd"].counts.updates
    run(ours)
    shutil.move(tmp_path / "branch", tmp_path / "away")
    run(ours)
    with opened(ours) as warehouse:
        assert warehouse.state().tables["odd"].counts.updates == made
        assert any("could not be followed" in line for line in warehouse.explain("daily").lines)
