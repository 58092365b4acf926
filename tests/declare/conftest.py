"""Projects as text, and what is wrong with them as lines of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.declare.problems import ProjectError
from penstock.declare.project import read_project
from penstock.declare.warehouse import Definitions, check_project

Write = Callable[[dict[str, str]], Path]
Check = Callable[..., list[str]]

# Two feeds that are as they should be. Tests put their own lines below.
FEEDS = """
name = "net"
[feeds.stats]
path = "landing/stats/*.json"
format = "json"
columns = "router string, ts timestamp, bytes bigint, place struct<city:string>"
time = "ts"
period = "5m"
partition = "hour"
[feeds.sites]
path = "landing/sites/*.json"
format = "json"
columns = "router string, site string"
mode = "snapshot"
"""


def found(folder: Path) -> list[str]:
    try:
        return [str(problem) for problem in check_project(read_project(folder))[1]]
    except ProjectError as error:
        return [str(problem) for problem in error.problems]


@pytest.fixture
def check(project: Write) -> Check:
    """Check a project of these files; penstock.toml is `FEEDS` with `toml` below it unless it is given."""

    def run(files: dict[str, str] | None = None, toml: str = "") -> list[str]:
        folder = project({"penstock.toml": FEEDS + toml, **(files or {})})
        for name in ("stats", "sites"):
            (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
        return found(folder)

    return run


@pytest.fixture
def load(project: Write) -> Callable[[dict[str, str]], Definitions]:
    """The warehouse of a project that must be right."""

    def run(files: dict[str, str]) -> Definitions:
        folder = project({"penstock.toml": FEEDS, **files})
        warehouse, problems = check_project(read_project(folder))
        assert warehouse is not None, problems
        return warehouse

    return run
