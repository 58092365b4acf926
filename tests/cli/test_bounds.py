"""`penstock bounds` and what `penstock check` says of targets, on declared costs."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app

PROJECT = """
name = "small"
[run]
tracks = 2
policy = "adaptive"
[feeds.stats]
path = "landing/stats/*.csv"
format = "csv"
columns = "router string, ts timestamp, bytes bigint"
time = "ts"
period = "5m"
partition = "hour"
freshness = "{freshness}"
cost = "20s"
guarantee = true
"""


def project(folder: Path, freshness: str = "30m") -> Path:
    (folder / "penstock.toml").write_text(PROJECT.format(freshness=freshness))
    (folder / "tables").mkdir()
    (folder / "landing" / "stats").mkdir(parents=True)
    (folder / "tables" / "hourly.sql").write_text(
        '-- partition = "hour"\n-- time = "hour"\n-- cost = "40s"\n'
        "SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes FROM stats GROUP BY router, date_trunc('hour', ts)\n"
    )
    return folder


def run(*arguments: str, code: int = 0):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


def test_proven(tmp_path: Path) -> None:
    folder = project(tmp_path)
    shown = run("bounds", "-p", str(folder), "--outage", "2h").output
    assert "load 0.07 of 2 tracks, worst case" in shown
    assert "proven" in shown and "best effort" in shown and "all feeds out for 2h" in shown
    found = json.loads(run("bounds", "-p", str(folder), "--outage", "2h", "--json").stdout)
    stats = next(g for g in found["guarantees"] if g["table"] == "stats")
    assert (stats["verdict"], stats["cost_from"]) == ("proven", "declared")
    # e + (40 + 20 - 20) / (2 - 1) = 60 s; p + 60 = 360 s; 360 + 300 + 300 = 960 s
    bound = stats["bound"]
    assert (bound["tardiness_us"], bound["response_us"], bound["staleness_us"]) == (
        60_000_000,
        360_000_000,
        960_000_000,
    )
    # ceil((7200 + 1260 + 360 - 300) / (300 - 20)) + 1 = 32 updates: 360 + 32 * 20 s
    assert stats["recovery_us"] == 1_000_000_000
    assert found["fits"] and found["violated"] == []
    assert "ok" in run("check", "-p", str(folder)).output


def test_not_proven_and_check_warns(tmp_path: Path) -> None:
    folder = project(tmp_path, "12m")
    shown = run("bounds", "-p", str(folder)).output
    assert "not proven" in shown and 'a target that is proven: freshness = "16m"' in shown
    checked = run("check", "-p", str(folder)).output
    assert "is not proven" in checked and "penstock bounds" in checked and "ok" in checked


def test_other_tracks_and_bad_options(tmp_path: Path) -> None:
    folder = project(tmp_path)
    found = json.loads(run("bounds", "-p", str(folder), "--tracks", "5", "--json").stdout)
    assert found["tracks"] == 5
    assert "is not a duration" in run("bounds", "-p", str(folder), "--outage", "soon", code=2).output


TWO_MORE = """
[feeds.alerts]
path = "landing/alerts/*.csv"
format = "csv"
columns = "router string, ts timestamp"
time = "ts"
period = "1m"
partition = "hour"
freshness = "3m50s"
cost = "10s"
guarantee = true
"""


def test_recovery_periods_that_are_proposed_give_what_is_printed(tmp_path: Path) -> None:
    folder = project(tmp_path)
    settings = folder / "penstock.toml"
    settings.write_text(settings.read_text() + TWO_MORE)
    arguments = ("bounds", "-p", str(folder), "--outage", "2h")
    assert "after how long an outage?" in run("bounds", "-p", str(folder), "--propose", code=2).output
    found = json.loads(run(*arguments, "--propose", "--json").stdout)["proposal"]
    assert (found["missed"], found["would_miss"]) == (1, 0) or found["would_us"] < found["mean_us"]
    shown = run(*arguments, "--propose").output
    text = settings.read_text()
    for each in found["tables"]:
        assert each["proposed_us"] > each["recovery_us"]
        line = f'recovery = "{each["proposed_us"] // 1_000_000}s"'
        assert line in shown or each["proposed_us"] >= 60_000_000
        text = text.replace(f"[feeds.{each['table']}]\n", f"[feeds.{each['table']}]\n{line}\n")
    settings.write_text(text)
    then = json.loads(run(*arguments, "--json").stdout)
    recovers = [each["would_us"] for each in found["tables"]]
    assert then["all_recovered_us"] == max(recovers)
    assert all(g["verdict"] == "proven" for g in then["guarantees"] if g["target_us"] is not None)
    assert "no recovery periods were found" in run(*arguments, "--propose").output
