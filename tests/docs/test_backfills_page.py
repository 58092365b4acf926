"""The tour of the page about backfills: every command is run, and prints what the page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli import requests
from penstock.cli.main import app
from tests.docs.test_docs import ROOT, commands

# What differs from run to run: times and sizes, numbers of requests, ages.
_VARIES = (
    (r"\s+[\d.]+(?:ms|s|m)(?: \d+s)?\??\s+[\d.,]+ (?:B|KiB|MiB)\s+", "  …  …  "),
    (r"\d+d(?: \d+h)? ago", "ago"),
    (r"^about .*$", ""),
)


def lines(text: str, first: int | None) -> list[list[str]]:
    """Cells of the lines; requests are counted from the first one of the tour."""
    for pattern, instead in _VARIES:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    if first is not None:
        numbers = re.compile(r"(?:request |with )\d+(?:, \d+)*|^ *\d+(?= .*partition)", re.MULTILINE)
        text = numbers.sub(lambda found: re.sub(r"\d+", lambda n: f"#{int(n[0]) - first}", found[0]), text)
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.spark
def test_the_tour(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner()
    monkeypatch.chdir(tmp_path)
    assert run.invoke(app, ["init", "shop"]).exit_code == 0
    monkeypatch.chdir(tmp_path / "shop")
    assert run.invoke(app, ["run", "--until-idle", "--quiet"]).exit_code == 0
    monkeypatch.setattr(requests.out, "_width", 250)
    ours: int | None = None
    shown = 17
    for words, output in commands(ROOT / "docs/backfills.md"):
        if words[0] == "sed":
            subprocess.run(words, check=True)
            continue
        arguments = words[1:]
        if arguments[0] == "cancel":
            assert ours is not None
            arguments = ["cancel", str(int(arguments[1]) - shown + ours)]
        done = run.invoke(app, arguments)
        assert done.exit_code == 0, done.output
        if ours is None and (number := re.match(r"request (\d+)", done.stdout)):
            ours = int(number[1])
        if "--quiet" not in words:
            assert lines(done.stdout, ours) == lines(output, shown), " ".join(words)
