"""Commands that only look at the state start at once: nothing is imported that they do not need."""

from __future__ import annotations

import subprocess
import sys

import typer

from penstock.cli.main import GROUPS, application
from tests.conftest import Write

LOOK = """
import sys
from penstock.cli.main import main

heavy = set(sys.argv[1].split())
for typed in sys.argv[2:] or ("check", "status", "plan", "explain hourly", "requests", "pause stats", "resume stats", "withdraw --help", "--version", "--help"):
    sys.argv = ["penstock", *typed.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, typed
    found = heavy & sys.modules.keys()
    assert not found, f"{typed}: {sorted(found)}"
"""


def test_who_looks_needs_no_spark(project: Write) -> None:
    folder = project(
        {
            "penstock.toml": """
                name = "quick"
                [feeds.stats]
                path = "landing/*.csv"
                format = "csv"
                columns = "router string, ts timestamp, bytes bigint"
                time = "ts"
                partition = "hour"
            """,
            "tables/hourly.sql": """
                -- partition = "hour"
                -- time = "hour"
                SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes FROM stats GROUP BY 1, 2
            """,
        }
    )

    def look(heavy: str, *typed: str) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, "-c", LOOK, heavy, *typed]
        return subprocess.run(asked, cwd=folder, capture_output=True, text=True)

    done = look("pyspark py4j pandas pyarrow numpy")
    assert done.returncode == 0, done.stderr
    assert "hourly" in done.stdout and "withdraw" in done.stdout
    # What is understood already needs no parser.
    done = look("pyspark sqlglot", "check", "status", "plan", "explain hourly")
    assert done.returncode == 0, done.stderr


def test_each_command_is_found_in_its_file() -> None:
    for group, commands in GROUPS.items():
        made = typer.main.get_command(application([group]))
        assert tuple(made.commands) == commands  # type: ignore[attr-defined]
