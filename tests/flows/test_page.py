"""What the page on flows shows is true."""

from __future__ import annotations

import re

import pytest

from penstock.cli.flow import EXAMPLES, app
from penstock.papers import find_experiment, load_all
from penstock.papers.flows.policies import OPERATOR_POLICIES
from tests.docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs/flows.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = next(body for body in blocks(PAGE, "python") if "plan_staging" in body)
    names: dict[str, object] = {}
    exec(example, names)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "total_cost reads releases" and shown[-1] == "cost_of_part reads total_cost releases total_cost"
    assert names["walk"].done  # type: ignore[attr-defined]


def test_names_options_and_experiments_of_the_page_exist() -> None:
    text = PAGE.read_text()
    for name in re.findall(r"penstock flow plan ([a-z][\w-]+)", text):
        assert name.replace("-", "_") in EXAMPLES
    for name in OPERATOR_POLICIES:
        assert f"| `{name}` |" in text
    known = load_all()
    for name in known:
        assert not name.startswith("etl") or f"| `{name}` |" in text
    for name, settings in re.findall(r"penstock experiment (etl-[\w-]+)(.*)", text):
        find_experiment(name, known).with_settings(
            [part.strip('"') for part in re.findall(r"--set (\"[^\"]*\"|\S+)", settings)]
        )
    options = {option for parameter in _plan_options() for option in parameter}
    for option in re.findall(r"^\| `(--\w+)", text, re.MULTILINE):
        assert option in options


def _plan_options() -> list[list[str]]:
    import typer.main

    command = typer.main.get_command(app)
    # A group of one command is that command.
    plan = command.commands["plan"] if hasattr(command, "commands") else command
    return [list(parameter.opts) for parameter in plan.params]
