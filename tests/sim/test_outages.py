"""A planned outage in a scenario, under the adaptive policy."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.scheduling.policies import find_policy
from penstock.sim import lean, runtime
from penstock.sim.scenario import Outage, Scenario, SimTable
from penstock.sim.whatif.replay import Changes, FeedOutage

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


def test_one_outage_may_lead_into_the_next_in_whatever_order_they_are_told() -> None:
    tables = (SimTable("a", period_s=10, phase_s=5, alpha_s=1),)
    first, second = Outage(100, 200), Outage(200, 300)
    found = [
        runtime.simulate(Scenario(tables, horizon_s=1000, outages=outages), find_policy("fifo"), 1).staleness_s["a"]
        for outages in ((first, second), (second, first), (Outage(100, 300),))
    ]
    assert found[0] == found[1] == found[2]
    told = (FeedOutage(20, 30), FeedOutage(10, 20))
    assert Changes(outages=told).delayed_us("a", 15) == Changes(outages=told[::-1]).delayed_us("a", 15) == 30


def test_of_a_job_that_outlasts_the_run_only_a_part_counts() -> None:
    scenario = Scenario((SimTable("a", period_s=100, phase_s=40, alpha_s=1000),), tracks=2, horizon_s=100)
    for simulate in (runtime.simulate, lean.simulate):
        assert simulate(scenario, find_policy("fifo"), 1).utilisation == 60 / 200
