"""`penstock requests --savings`, on a project that is made by the stand-in of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.engine.crashing import make_site


def test_savings_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path, monkeypatch)
    site.work()
    told = CliRunner().invoke(app, ["requests", "--savings", "--json", "--project", str(site.folder)])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    by_table = {row["table"]: row for row in found["tables"]}
    assert by_table["stats"]["reasons"] >= 6 and by_table["stats"]["merged"] >= 1
    assert found["all"]["updates"] == sum(row["updates"] for row in found["tables"])
    shown = CliRunner().invoke(app, ["requests", "--savings", "--project", str(site.folder)])
    assert shown.exit_code == 0 and "duplicates" in shown.output and "hourly" in shown.output
