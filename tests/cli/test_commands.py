"""The commands as users type them, for people and with --json for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from penstock import __version__
from penstock.app import Warehouse
from penstock.cli.main import app
from tests.conftest import Write

FILES = {
    "penstock.toml": """
        name = "cli"
        [feeds.c]
        path = "landing/*.csv"
        format = "csv"
        columns = "k string, ts timestamp, v int"
        time = "ts"
        partition = "day"
        settle = "0s"
    """,
    "tables/sums.sql": """
        -- partition = "day"
        -- time = "day"
        -- freshness = "5m"
        SELECT date_trunc('day', ts) AS day, k, sum(v) AS v FROM c GROUP BY 1, 2
    """,
    "landing/1.csv": "k,ts,v\na,2024-01-01T10:00:00Z,1\nb,2024-01-02T10:00:00Z,2\n",
    "landing/2.csv": "k,when\na,1\n",
}


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def test_also_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == penstock("--version").output == f"penstock {__version__}\n"


def as_json(*words: str) -> object:
    result = penstock(*words, "--json")
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_init_makes_a_project_that_passes_check(tmp_path: Path) -> None:
    made = penstock("init", str(tmp_path / "shop"))
    assert made.exit_code == 0 and "penstock run --until-idle" in made.stdout
    assert penstock("check", "-p", str(tmp_path / "shop")).exit_code == 0
    again = penstock("init", str(tmp_path / "shop"))
    assert again.exit_code == 1 and "not empty" in again.stderr


def test_check_says_where_and_what(project: Write) -> None:
    folder = project({**FILES, "tables/wrong.sql": "SELECT k, vv FROM c\n"})
    shown = penstock("check", "-p", str(folder))
    assert shown.exit_code == 1
    assert "tables/wrong.sql:1" in shown.stdout and "did you mean `v`?" in shown.stdout.replace("\n", " ")
    report = as_json("check", "-p", str(folder))
    assert isinstance(report, dict) and report["ok"] is False
    assert report["problems"][0]["where"] == {"file": "tables/wrong.sql", "line": 1}


def test_no_project_here(tmp_path: Path) -> None:
    shown = penstock("status", "-p", str(tmp_path))
    assert shown.exit_code == 1 and "penstock init" in shown.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fresh", "banana"), "fresh: 'banana' is not a duration"),
        (("--within", "0s"), "within: '0s' leaves no time"),
        (("--weights", "missed=x"), "no weights"),
        (("--profile", "nobody"), "there is no profile `nobody`"),
    ],
)
def test_what_a_query_cannot_ask_for_is_told_without_spark(
    project: Write, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str], told: str
) -> None:
    monkeypatch.setattr(Warehouse, "spark", property(lambda _: pytest.fail("Spark was started")))
    folder = project(FILES)
    wrong = penstock("query", "SELECT k FROM sums", "-p", str(folder), *words)
    assert wrong.exit_code == 2 and told in " ".join(wrong.output.replace("│", " ").split())
    for sql in ("DROP TABLE sums", "SELECT nope FROM sums"):
        assert penstock("query", sql, "-p", str(folder)).exit_code == 1


@pytest.mark.spark
def test_run_status_explain_query_retry(project: Write, spark: SparkSession) -> None:
    folder = project(FILES)
    place = ["-p", str(folder)]
    before = as_json("status", *place)
    assert isinstance(before, dict) and before["running"] is False
    done = penstock("run", "--until-idle", *place)
    assert done.exit_code == 0, done.output
    assert "sums" in done.stdout and "set aside: wrong columns" in done.stderr
    status = as_json("status", *place)
    assert isinstance(status, dict)
    rows = {row["table"]: row for row in status["tables"]}
    assert rows["c"]["rows"] == 2 and rows["c"]["quarantined_files"] == 1
    assert rows["sums"]["doing"] == "idle" and rows["sums"]["met"] is False
    assert [found["file"] for found in status["quarantine"]] == ["landing/2.csv"]
    assert "late" in penstock("status", *place).stdout

    told = penstock("explain", "sums", *place).stdout.replace("\n", " ")
    assert "incremental: GROUP BY with sum" in told and "last update: job-" in told and "target 5m missed" in told
    assert penstock("explain", "summs", *place).exit_code == 1
    explained = as_json("explain", "sums", *place)
    assert isinstance(explained, dict) and explained["last_why"].startswith("gains")

    shown = penstock("query", "SELECT k, v FROM sums ORDER BY k", *place)
    assert shown.exit_code == 0 and "complete up to 2024-01-02 10:00" in shown.stdout
    answer = as_json("query", "SELECT k, v FROM sums ORDER BY k", *place)
    assert isinstance(answer, dict) and answer["rows"] == [["a", 1], ["b", 2]] and answer["consistent"] is True
    refused = penstock("query", "DELETE FROM sums", *place)
    assert refused.exit_code == 1 and "SELECT" in refused.stderr

    still = penstock("retry", *place)
    assert "still set aside" in still.stdout
    (folder / "landing/2.csv").write_text("k,ts,v\nc,2024-01-02T11:00:00Z,5\n")
    again = penstock("retry", *place)
    assert "again: landing/2.csv" in again.stdout
    assert penstock("run", "--until-idle", "--quiet", *place).exit_code == 0
    answer = as_json("query", "SELECT sum(v) AS v FROM sums", *place)
    assert isinstance(answer, dict) and answer["rows"] == [[8]]
    events = [json.loads(line) for line in penstock("run", "--until-idle", "--json", *place).stdout.splitlines()]
    assert events[-1]["event"] == "stopped"
