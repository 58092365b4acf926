"""A planned outage in a scenario, under the adaptive policy."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app

SCENARIO = """
tracks = 2
horizon = 4000
[tables.a]
period = 60
alpha = 2
[tables.b]
period = 60
alpha = 2
[tables.of_a]
sources = ["a"]
alpha = 4
[[outages]]
table = "a"
start = 1000
end = 2000
"""


def test_the_table_of_the_feed_falls_behind_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "cut.toml").write_text(SCENARIO)
    found = CliRunner().invoke(app, ["simulate", str(tmp_path / "cut.toml"), "--policy", "adaptive", "--json"])
    assert found.exit_code == 0, found.output
    for row in json.loads(found.stdout):
        stale = row["staleness_s"]
        # A ramp up to 1000 s is 500 s on average in a quarter of the time: 125 s. The 17 files that then come take 8 s
        # each, while one comes every 60 s: 154 s more with 500 s on average, which is 19 s of all.
        assert 144 < stale["a"] < 144 + 60 and stale["b"] < 60
        assert 144 < stale["of_a"] < 144 + 120
        assert row["failures"] == 0
