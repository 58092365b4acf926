"""What the documentation shows is true: examples are put together and checked, commands are run."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension
from pydantic import BaseModel
from pyspark.sql import SparkSession
from rich.console import Console

from penstock.app import Warehouse
from penstock.cli.render import shown_value, status_table
from penstock.control.views.status import TableStatus
from penstock.declare.config import (
    FeedConfig,
    ProjectConfig,
    QueriesConfig,
    RunConfig,
    StorageConfig,
    StoreConfig,
    TableConfig,
)
from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project
from penstock.model.time import MINUTE_US, format_instant
from tests.waiting import LONG_S

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|--) file: (\S+)\n")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    return (body for language, body in _BLOCK.findall(page.read_text()) if language in languages)


def write_files(page: Path, folder: Path) -> None:
    """The files that a page shows. Blocks of the same file are its parts."""
    for body in blocks(page, "toml", "sql", "python"):
        if marker := _FILE.match(body):
            path = folder / marker[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(body[marker.end() :])


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("declare")
    write_files(ROOT / "docs/declare.md", folder)
    for name in ("router_stats", "routers", "alerts", "customers", "orders", "syslog/eu", "syslog/us"):
        (folder / "landing" / name).mkdir(parents=True)
    (folder / "broken/landing").mkdir()
    return folder


def test_the_project_of_the_page_is_right(declared: Path) -> None:
    warehouse, problems = check_project(read_project(declared))
    assert [str(problem) for problem in problems] == []
    assert warehouse is not None and len(warehouse.definitions) == 14


@pytest.mark.parametrize(
    "model", [FeedConfig, TableConfig, ProjectConfig, StorageConfig, StoreConfig, RunConfig, QueriesConfig]
)
def test_every_setting_is_told(model: type[BaseModel]) -> None:
    text = (ROOT / "docs/declare.md").read_text()
    section = {StorageConfig: "storage.", StoreConfig: "store.", RunConfig: "run.", QueriesConfig: "queries."}.get(
        model, ""
    )
    for name in model.model_fields:
        told = (f"`{section}{name}`", f"`{name}.", f"[{name}", f"`[{name}]`")
        assert any(form in text for form in told), name


def penstock(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONG_S)
    return done.stdout


def commands(page: Path) -> Iterator[tuple[list[str], str]]:
    for body in blocks(page, "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield shlex.split(line), output.strip("\n")


def test_what_check_finds(declared: Path) -> None:
    ((words, output),) = commands(ROOT / "docs/declare.md")
    assert penstock(*words[1:], cwd=declared).strip() == output


def cells(text: str) -> list[list[str]]:
    """Columns of a printed table, without ages, which change from day to day."""
    lines = [re.sub(r"\d+d \d+h|\d+d\b", "…", line) for line in text.splitlines()]
    return sorted(re.split(r"\s{2,}", line.strip()) for line in lines)


def status_cells(rows: list[TableStatus]) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(status_table(rows))
    return cells(captured.get())


@pytest.mark.spark
def test_the_tour_of_the_readme(tmp_path: Path, spark: SparkSession) -> None:
    """The commands of the README in order. Those that need Spark run in the session of the tests."""
    folder = tmp_path / "shop"
    ran = []
    for words, output in commands(ROOT / "README.md"):
        ran.append(words[1])
        match words:
            case ["penstock", "init", *_]:
                assert penstock(*words[1:], cwd=tmp_path).strip() == output
            case ["penstock", "check"]:
                assert penstock("check", cwd=folder).strip() == output
            case ["sed", *_]:
                subprocess.run(words, cwd=folder, check=True)
            case ["cat", ">", name]:
                (folder / name).write_text(output + "\n")
            case ["penstock", "run", *_]:
                with Warehouse(folder, spark=spark) as warehouse:
                    warehouse.run(until_idle=True)
                    if output:
                        assert status_cells(warehouse.status()) == cells(output.removesuffix("\ntimes in UTC"))
            case ["penstock", "query", sql]:
                with Warehouse(folder, spark=spark) as warehouse:
                    result = warehouse.query(sql)
                shown = "\n".join("  ".join(map(shown_value, row)) for row in (result.columns, *result.rows))
                if result.complete_us is not None:
                    shown += f"\ncomplete up to {format_instant(result.complete_us // MINUTE_US * MINUTE_US)} UTC, 257d 9h ago"
                assert cells(shown) == cells(output)
            case ["penstock", "explain", table]:
                with Warehouse(folder, spark=spark) as warehouse:
                    lines = warehouse.explain(table).lines
                assert [line.split()[:3] for line in lines] == [line.split()[:3] for line in output.splitlines()[1:]]
            case _:
                pytest.fail(f"an unknown command: {words}")
    assert ran.count("query") == 3
    assert (folder / "tables/sales_hourly.sql").read_text() in (ROOT / "README.md").read_text()
    read_with_duckdb(folder)


def read_with_duckdb(folder: Path) -> None:
    """The statements of the page about storage. Its extensions come from packages here, not from the network."""
    con = duckdb.connect()
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name, con=con)
    (statements,) = blocks(ROOT / "docs/storage.md", "sql")
    here = f"ducklake:sqlite:{folder}/.penstock/penstock.db"
    for statement in statements.replace("ducklake:sqlite:.penstock/penstock.db", here).split(";"):
        if statement.strip() and "INSTALL" not in statement:
            assert con.execute(statement).fetchall() or "ATTACH" in statement, statement


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_examples_of_requests() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs/requests.md"), module_relative=False)
    assert tried > 10 and not failed
