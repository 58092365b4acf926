"""`penstock simulate` and `penstock experiment` from the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.papers import load_all
from penstock.papers.scheduling.families import FAMILIES
from penstock.sim.read import scenario_of
from penstock.sim.scenario import ScenarioError

SCENARIO = """
name = "small"
tracks = 2
horizon = "2h"
jitter = 0.3
failures = 0.05
policies = ["max-benefit", "fifo"]
[slowdown]
cycle = "30m"
[tables.clicks]
count = 3
period = "1m"
priority = 5
alpha = "2s"
[tables.orders]
period = "10m"
arrivals = "jittered"
late_share = 0.3
late = "1h"
[tables.burst]
period = "5m"
arrivals = "bursty"
[tables.trace]
arrivals = "traced"
trace = [60, "10m", "50m"]
[tables.per_click]
count = 3
sources = ["clicks"]
[tables.all]
sources = ["per_click-0", "orders", "burst"]
[[outages]]
start = "20m"
end = "40m"
table = "orders"
[[backfills]]
at = "1h"
table = "orders"
start = 0
end = "30m"
"""


def run(*arguments: str, code: int = 0):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return path


def test_a_scenario(file: Path) -> None:
    rows = json.loads(run("simulate", str(file), "--seeds", "2", "--jobs", "1", "--json").stdout)
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("max-benefit", 1),
        ("fifo", 1),
        ("max-benefit", 2),
        ("fifo", 2),
    ]
    for row in rows:
        assert row["relative_lateness"] >= 0.999 and row["failures"] > 0 and 0 < row["utilisation"] < 1
        assert set(row["staleness_s"]) >= {"clicks-0", "per_click-2", "all", "trace"}


def test_a_scenario_as_a_table_and_a_picture(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    shown = run(
        "simulate", str(file), "--policy", "edf / chop=2", "--seeds", "3,4", "--jobs", "1", "--plot", str(picture)
    )
    assert "edf / chop=2" in shown.output and "relative lateness" in shown.output
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_policies_of_the_project(file: Path) -> None:
    (file.parent / "policies.py").write_text(
        "from penstock.scheduling.policies import IndexPolicy, register\n"
        "@register('smallest-first')\n"
        "class Smallest(IndexPolicy):\n"
        "    def index(self, job):\n"
        "        return -job.expected_s, 0.0\n"
        "    def why(self, job, value):\n"
        "        return 'it is done soonest'\n"
    )
    name = "proportional(all) / smallest-first"
    rows = json.loads(run("simulate", str(file), "--policy", name, "--seeds", "1", "--jobs", "1", "--json").stdout)
    assert rows[0]["policy"] == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tracks = 0\n[tables.a]", "`tracks` is 0; expected at least 1"),
        ("[tables.a]\nperid = 3", "unknown key `tables.a.perid`; did you mean `period`?"),
        ("[tables.a]\nsources = ['b']", "table 'a' reads 'b', which is not in the scenario"),
        ("[tables.a]\nperiod = '5x'", "`tables.a.period`: '5x' is not a duration"),
        ("[[outages]]\nstart=1\nend=2\ntable='x'\n[tables.a]", "there is no table 'x' in the scenario"),
    ],
)
def test_wrong_scenarios(text: str, message: str) -> None:
    import tomllib

    with pytest.raises(ScenarioError) as error:
        scenario_of(tomllib.loads(text), "file")
    assert message in str(error.value)


def test_circles() -> None:
    with pytest.raises(ScenarioError, match="circle"):
        _ = scenario_of({"tables": {"a": {"sources": ["b"]}, "b": {"sources": ["a"]}}})[0].graph


def test_wrong_commands(file: Path) -> None:
    assert "is not a policy" in run("simulate", str(file), "--policy", "best", code=1).output
    assert "there is no file" in run("simulate", "nowhere.toml", code=1).output
    assert "did you mean 'golab-fig4'" in run("experiment", "golab_fig4", code=1).output
    assert "has no parameter 'track'" in run("experiment", "golab-fig4", "--set", "track=1", code=1).output
    assert "expected a whole number" in run("experiment", "golab-fig4", "--set", "tracks=a", code=1).output
    assert "write how many" in run("experiment", "golab-fig4", "--seeds", "x", code=1).output


POLICY_EXPERIMENTS = sorted(name for name, e in load_all().items() if {"events", "utilisation"} <= set(e.parameters))


@pytest.mark.parametrize("name", POLICY_EXPERIMENTS)
def test_every_experiment_with_policies_runs(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    small = ["--set", "events=400", "--set", "utilisation=0.7,1.0", "--seeds", "1..2", "--jobs", "1"]
    if name == "one-for-all":
        small += ["--set", "figures=golab-fig6;golab-fig8"]
    shown = run("experiment", name, *small, "--plot", str(picture))
    assert "holds" in shown.output or "does not" in shown.output
    assert "<svg" in picture.read_text()
    found = json.loads(run("experiment", name, *small, "--json").stdout)
    rows = found["rows"]
    assert found["claims"] and all(isinstance(claim["found"], str) for claim in found["claims"])
    assert all(isinstance(value, str | int | float) for row in rows for value in row.values())
    assert {row["utilisation"] for row in rows} == {0.7, 1.0} and {row["seed"] for row in rows} == {1, 2}


def test_a_claim_that_fails_fails_the_command_if_asked_for() -> None:
    """FIFO is no match for the paper's policies where priorities differ by powers of ten."""
    small = ["--set", "events=600", "--set", "runs=1", "--set", "families=priorities", "--seeds", "1..3", "--jobs", "1"]
    worse = [*small, "--set", "policy=fifo", "--set", "against=max-benefit"]
    run("experiment", "any-workload", *worse)
    found = json.loads(run("experiment", "any-workload", *worse, "--json", "--strict", code=5).stdout)
    assert any(claim["holds"] is False for claim in found["claims"])
    better = [*small, "--seeds", "1", "--set", "policy=max-benefit", "--set", "against=fifo"]
    run("experiment", "any-workload", *better, "--strict")


def test_every_family_of_workloads_runs_and_says_where_the_policy_loses() -> None:
    small = ["--set", "events=200", "--set", "runs=1", "--seeds", "1", "--jobs", "1"]
    found = json.loads(run("experiment", "any-workload", *small, "--set", "against=max-benefit;fifo", "--json").stdout)
    assert {row["family"] for row in found["rows"]} == set(FAMILIES)
    assert all(row["times_as_late"] > 0 and set(row["relative_lateness"]) >= {"fifo"} for row in found["rows"])
    assert "at worst" in found["claims"][0]["found"]
    assert "did you mean `clusters`" in run("experiment", "any-workload", "--set", "families=cluster", code=1).output


@pytest.mark.parametrize("name", ["aus-examples", "aus-section7", "aus-fig9"])
def test_experiments_of_recovery_run(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    shown = run("experiment", name, "--seeds", "1", "--jobs", "1", "--plot", str(picture))
    assert "holds" in shown.output
    assert "<svg" in picture.read_text()


def test_the_list() -> None:
    listed = run("experiment", "--list").output
    assert all(f"golab-fig{number}" in listed for number in range(4, 12))
