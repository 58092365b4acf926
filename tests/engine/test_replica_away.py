"""A replica that cannot be reached: everything else goes on, and it is told what is wrong. DuckDB is in the place of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.crashing import Points, Site, without_spark, write_project
from tests.engine.test_external import PROJECT, day, opened, rows, run

REPLICAS = """
[replicas.wrong]
path = "nosuch://here/there"
[replicas.away]
path = "blocked/there"
[replicas.good]
path = "good"
"""


def test_a_bad_address_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "project", PROJECT)
    without_spark(monkeypatch)
    site = Site(tmp_path / "project", Points())
    toml = site.folder / "penstock.toml"
    toml.write_text(toml.read_text() + REPLICAS)
    (site.folder / "blocked").write_text("a file where a folder should be")
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        warehouse.publish("scores", order=warehouse.orders()[0].order, files=[])
        found = {row.replica: row for row in warehouse.replicas() if row.table == "daily"}
        assert "nosuch" in (found["wrong"].problem or "") and found["away"].problem
        assert (found["good"].problem, found["good"].waiting) == (None, 0)
        assert found["away"].waiting == 1
    (site.folder / "blocked").unlink()
    with opened(site) as warehouse:
        again = {row.replica: row for row in warehouse.replicas(sync=True) if row.table == "daily"}
        assert (again["away"].problem, again["away"].waiting) == (None, 0) and again["wrong"].problem
    assert rows(site, "scores") == []
