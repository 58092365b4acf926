"""docs/recovery.md: its project is right, and `penstock bounds` prints what the page shows."""

from __future__ import annotations

from pathlib import Path

from penstock.scheduling.policies import find_policy
from tests.docs.test_docs import ROOT, commands, penstock, write_files

PAGE = ROOT / "docs/recovery.md"


def test_bounds_of_the_page(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    for feed in ("router_stats", "alerts"):
        (tmp_path / "landing" / feed).mkdir(parents=True)
    found = list(commands(PAGE))
    assert len(found) == 2
    for words, output in found:
        shown = [line.rstrip() for line in penstock(*words[1:], cwd=tmp_path).strip().splitlines()]
        assert shown == output.splitlines()


def test_the_policies_of_the_page() -> None:
    names = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `adaptive")]
    for name in names:
        assert find_policy(name)
    assert len(set(names)) == 5
