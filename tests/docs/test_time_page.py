"""The page about time: its project is loaded, its commands print what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.app import Warehouse
from penstock.cli.main import app
from tests.docs.test_docs import ROOT, blocks, commands, write_files

PAGE = ROOT / "docs/time.md"


def words(text: str) -> list[list[str]]:
    text = re.sub(r"\d+d(?: \d+h)? ago", "ago", text)
    return [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]


@pytest.mark.spark
def test_the_page(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(PAGE, tmp_path)
    for body in blocks(PAGE, "csv"):
        name, _, text = body.partition("\n")
        file = tmp_path / name.removeprefix("# file: ")
        file.parent.mkdir(parents=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    run = CliRunner()
    for command, output in commands(PAGE):
        done = run.invoke(app, command[1:])
        assert done.exit_code == 0, done.output
        assert words(re.sub(r"request \d+", "request 4", done.stdout)) == words(output), command
    said = run.invoke(app, ["query", "select started from rides where minutes >= 9 order by 1", "--json"])
    assert json.loads(said.stdout)["rows"] == [
        ["2013-11-03T00:30:00-04:00"],
        ["2013-11-03T23:30:00-05:00"],
        ["2013-11-04T00:00:00-05:00"],
    ]
    for command in (
        ["status"],
        ["explain", "rides_daily"],
        ["requests"],
        ["plan", "rides_daily", "2013-11-03"],
        ["timeline"],
    ):
        assert "times in America/New_York" in run.invoke(app, command).stdout, command
