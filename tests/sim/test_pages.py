"""What the pages on policies and on the simulator show works as shown."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from penstock.scheduling.policies import find_policy
from penstock.sim.lean import measure
from penstock.sim.read import scenario_of
from tests.docs.test_docs import ROOT, blocks, write_files
from tests.waiting import LONG_S


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONG_S
    )


def test_the_policy_of_the_page(tmp_path: Path) -> None:
    write_files(ROOT / "docs/write-a-policy.md", tmp_path)
    lines = (tmp_path / "policies.py").read_text().splitlines()
    assert len(lines) <= 30
    tested = python("pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_policies.py", cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout
    compared = python(
        "penstock.cli.main",
        "simulate",
        "scenario.toml",
        "--policy",
        "reserve / most-overdue",
        "--seeds",
        "1",
        cwd=tmp_path,
    )
    assert compared.returncode == 0 and "most-overdue" in compared.stdout, compared.stderr


def test_the_names_of_the_page_exist() -> None:
    for name in (
        "proportional(all, aggressive, k=1) / max-benefit / inherit=max / chop=3",
        "edf-partitioned(aggressive)",
    ):
        find_policy(name)
    for order in (
        "max-benefit",
        "max-benefit-lookahead",
        "patient(lasts=0.5)",
        "edf",
        "edf-p",
        "fifo",
        "random(seed=0)",
    ):
        find_policy(f"reserve(headroom=1.1, forget=0.9, k=1) / {order} / inherit=chain")


def test_the_scenario_of_the_page() -> None:
    (text,) = blocks(ROOT / "docs/simulate.md", "toml")
    scenario, policies = scenario_of(tomllib.loads(text))
    found = measure(scenario, policies, 1)
    assert len(found) == 3 and all(one.relative_lateness >= 0.99 for one in found)
