"""Rules of the house that no linter knows: read from the code itself."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import penstock

SRC = Path(penstock.__file__).parent
PAPERS = SRC / "papers"
# Rooms in which nobody asks an object whether it happens to have something: powers are typed protocols.
TYPED = ("requests", "scheduling", "queries", "flows", "control", "sim")


def modules(*rooms: str) -> Iterator[tuple[Path, ast.Module]]:
    for room in rooms or (".",):
        for path in sorted((SRC / room).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def test_a_class_name_has_one_meaning() -> None:
    found = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SRC)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_powers_are_typed() -> None:
    probing = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path, tree in modules(*TYPED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
    ]
    assert probing == []
