"""The experiments on queries, at a small size, and how their claims are judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.papers.queries.unit import BASELINES, at_least_as_good, clearly_better, margins
from penstock.queries.policies import DEFAULT, POLICIES

SMALL = ["--set", "scale=0.003", "--seeds", "101..102", "--jobs", "1"]


def run(*arguments: str, code: int = 0):
    result = CliRunner().invoke(app, ["experiment", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", ["unit-fig3", "unit-fig4", "unit-fig5", "unit-fig6"])
def test_every_figure_runs(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    shown = run(name, *SMALL, "--plot", str(picture)).output
    assert ("holds" in shown or "does not" in shown) and "not measured" not in shown
    assert "<svg" in picture.read_text()


def test_all_settings_with_all_weights() -> None:
    some = ["--set", "traces=low-unif;high-pos", "--set", "weightings=naive;high C_fm > 1"]
    rows = json.loads(run("unit-all", *SMALL, *some, "--json").stdout)["rows"]
    assert len(rows) == 2 * 2 * 2 * len(POLICIES)
    for row in rows:
        assert row["success"] + row["rejected"] + row["missed"] + row["stale"] == pytest.approx(1)
    naive = [row for row in rows if row["weighting"] == "naive"]
    assert all(row["usm"] == row["success"] for row in naive)
    # Paired: policies that do not look at the weights have the same run under all of them.
    same = {(r["trace"], r["seed"], r["policy"]): r["success"] for r in naive if r["policy"] == "qmf"}
    assert all(same[r["trace"], r["seed"], "qmf"] == r["success"] for r in rows if r["policy"] == "qmf")


def test_what_is_asked_for_must_exist() -> None:
    assert "traces=medium: expected some of low-unif" in run("unit-fig4", "--set", "traces=medium", code=1).output


def row(policy: str, seed: int, usm: float, trace: str = "high-unif") -> dict[str, object]:
    return {"trace": trace, "weighting": "naive", "policy": policy, "seed": seed, "usm": usm}


def test_how_claims_are_judged() -> None:
    # Against qmf, the best of the others on average: 0.02 and 0.0, so 0.01 with a standard error of 0.01.
    rows = [
        row(DEFAULT, 1, 0.5),
        row(DEFAULT, 2, 0.4),
        row("qmf", 1, 0.48),
        row("qmf", 2, 0.4),
        row("unit", 1, 0.6),
        row("unit", 2, 0.1),
    ]
    (gap, error, best) = margins(rows, DEFAULT, BASELINES)["high-unif", "naive"]
    assert (round(gap, 9), round(error, 9), best) == (0.01, 0.01, "qmf")
    assert at_least_as_good(rows, DEFAULT, BASELINES, "all").holds
    assert not clearly_better(rows, DEFAULT, BASELINES, 0.05).holds
    # Behind by 0.01 with an error of 0.01: a tie. By 0.03: not.
    assert at_least_as_good([row(DEFAULT, 1, 0.461), row(DEFAULT, 2, 0.4), *rows[2:4]], DEFAULT, BASELINES, "all").holds
    assert not at_least_as_good(
        [row(DEFAULT, 1, 0.44), row(DEFAULT, 2, 0.38), *rows[2:4]], DEFAULT, BASELINES, "all"
    ).holds
