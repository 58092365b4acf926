"""The experiments on requests, with fixed seeds: the numbers that must come out whatever the run times, and what the
findings say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.papers import load_all
from penstock.papers.experiment import Finding
from penstock.sim.outcome import Row

EXPERIMENTS = load_all()


def run(name: str, *settings: str, seeds: tuple[int, ...] = (1, 2)) -> tuple[list[Row], dict[str, Finding]]:
    found = EXPERIMENTS[name]
    rows = [row for task in found.tasks(found.with_settings(settings), seeds) for row in found.work(task)]
    return rows, {finding.claim: finding for finding in found.judge(rows)}


def means(rows: list[Row], key: str, *by: str) -> dict[Any, float]:
    groups: dict[Any, list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by) if len(by) > 1 else row[by[0]], []).append(row[key])
    return {group: sum(values) / len(values) for group, values in groups.items()}


def test_a_diamond_is_updated_once() -> None:
    rows, findings = run("youtube-diamond")
    assert all(finding.holds for finding in findings.values()), findings
    assert {row["updates_of_d"] for row in rows if row["way"] != "naive"} == {1}


def test_hours_into_a_day() -> None:
    rows, findings = run("youtube-rollup", seeds=tuple(range(1, 9)))
    assert all(finding.holds for finding in findings.values()), findings
    files = [row for row in rows if row["way"] == "files"]
    assert {row["unneeded_share"] for row in files if not row["queue"]} == {23 / 24}  # 96 %
    assert means(files, "updates_of_daily", "queue")[3.0] <= 2.5


def test_a_tree() -> None:
    rows, findings = run("youtube-tree", "backfills=5,10", "levels=20", seeds=(1, 2))
    for row in rows:
        assert row["processed"] == row["optimal"] + row["unneeded"]
        assert row["unneeded"] == 0 if row["way"] == "queue 1m" else row["unneeded"] / row["optimal"] < 0.03
    assert findings["with a queue of a minute: no unneeded update"].holds
    assert 0.1 < means(rows, "duplicate_share", "backfills")[10] < 0.4


def test_yesterday_of_itself() -> None:
    rows, findings = run("youtube-self", seeds=(1,))
    expected = {8: 28, 4: 35, 2: 43}
    for row in rows:
        if row["way"] != "naive":
            assert row["updates"] == row["optimal"] == expected[row["every"]]
    assert not findings["naive: 60, 147 and 280 updates"].holds
    assert "need a first one two days before the month" in findings["naive: 60, 147 and 280 updates"].found


def test_a_pipeline_takes_fewer_updates_the_longer_it_may_wait() -> None:
    rows, findings = run("youtube-pipeline", seeds=tuple(range(1, 13)))
    assert all(finding.holds for finding in findings.values()), findings
    assert all(row["updates"] >= row["least"] for row in rows)
    assert all(row["updates"] == row["least"] for row in rows if "queue" in row["way"])


def test_a_claim_of_the_pipeline_can_fail() -> None:
    rows, _ = run("youtube-pipeline", "changes=20", seeds=(1,))
    failed = [finding for finding in EXPERIMENTS["youtube-pipeline"].judge(rows) if not finding.holds]
    assert any("default, by files: 16 updates" in finding.claim for finding in failed)


def test_an_uneven_budget_is_better_and_misses_no_target() -> None:
    _, findings = run("youtube-budget", "changes=100", "interval=15,60", "ways=even,first,uneven,auto", seeds=(1, 2, 3))
    assert all(finding.holds for finding in findings.values()), findings


def test_what_weighing_lateness_gains() -> None:
    rows, findings = run("youtube-lateness", "price=0,1000,3000", seeds=(1, 2))
    assert all(finding.holds for finding in findings.values()), findings
    # Where lateness has no price both wait alike.
    free = [row for row in rows if row["price"] == 0 and row["waits"] != "never"]
    assert len({(row["seed"], row["updates"]) for row in free}) == 2


def test_the_exact_closure_is_never_worse() -> None:
    rows, findings = run("youtube-closure", "graphs=40", "tables=5,20", seeds=(1,))
    assert [finding.holds for finding in findings.values()] == [True, False, False]
    assert any(row["worse_share"] > 0.3 for row in rows)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("youtube-")])
def test_every_experiment_is_a_command(name: str) -> None:
    small = {
        "youtube-tree": ["backfills=3", "levels=6"],
        "youtube-budget": ["changes=20"],
        "youtube-closure": ["graphs=3"],
        "youtube-lateness": ["changes=20"],
    }
    arguments = ["experiment", name, "--seeds", "1,2", "--jobs", "1"]
    for setting in small.get(name, []):
        arguments += ["--set", setting]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "holds" in result.output or "does not" in result.output
    rows = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["rows"]
    assert rows and all(row["experiment"] == name for row in rows)
    assert all(isinstance(value, str | int | float) for row in rows for value in row.values())
