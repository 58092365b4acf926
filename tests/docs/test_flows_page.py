"""The flow that the page declares is right, and what it says of the wrong one is what check finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project
from tests.docs.test_docs import ROOT, commands, penstock, write_files

PAGE = ROOT / "docs/flows.md"


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    write_files(PAGE, tmp_path)
    for name in ("orders", "customers"):
        (tmp_path / "landing" / name).mkdir(parents=True)
    (tmp_path / "broken/landing").mkdir()
    return tmp_path


def test_the_flow_of_the_page_is_right(declared: Path) -> None:
    warehouse, problems = check_project(read_project(declared))
    assert [str(problem) for problem in problems] == []
    assert warehouse is not None
    assert warehouse.graph.made_with("sold")[0] == "sold"
    assert set(warehouse.graph.made_with("sold")) == {"sold", "revenue_by_country", "items"}
    assert warehouse.definitions["items"].table.priority == 3
    types = {column.name: column.type for column in warehouse.definitions["revenue_by_country"].schema or ()}
    assert types == {"day": "timestamp", "country": "string", "revenue": "decimal(31,2)", "orders": "bigint"}


def test_what_check_finds(declared: Path) -> None:
    found = [(words, output) for words, output in commands(PAGE) if words[:2] == ["penstock", "check"]]
    ((words, output),) = found
    assert penstock(*words[1:], cwd=declared).strip() == output
