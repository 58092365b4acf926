"""Projects drawn at random: after every step each table is what the oracle computes.

`PENSTOCK_SEEDS=1..2000 make soak` plays thousands; `python -m tests.projects --seeds 17 --shrink` plays one and makes it small.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.projects.draw import draw
from tests.projects.engines import Engine, OnDuck, OnSpark
from tests.projects.play import play
from tests.projects.project import Case
from tests.projects.shrink import told

# Cases made small with `--shrink --save`: each was wrong once.
FOUND = Path(__file__).parent / "found"
WITHOUT_SPARK = [1, 2, 4, 6, 7, 8, 9, 10]
WITH_SPARK = [1002, 1008]


def _seeds() -> list[int]:
    first, _, last = os.environ.get("PENSTOCK_SEEDS", "1000..1400").partition("..")
    return list(range(int(first), int(last or first) + 1))


def _played(seed: int, engine: Engine, folder: Path) -> None:
    _compared(draw(seed, plain=engine.plain), engine, folder)


def _compared(case: Case, engine: Engine, folder: Path) -> None:
    played = play(case, engine, folder)
    found = "\n".join(str(finding) for finding in played.findings)
    assert not played.findings, f"seed {case['seed']}\n{found}\n{told(case)}"


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_once(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compared(json.loads(path.read_text()), OnDuck(monkeypatch), tmp_path / "project")


@pytest.mark.parametrize("seed", WITHOUT_SPARK)
def test_quick(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _played(seed, OnDuck(monkeypatch), tmp_path / "project")


@pytest.mark.spark
@pytest.mark.parametrize("seed", WITH_SPARK)
def test_with_spark(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    _played(seed, OnSpark(spark), tmp_path / "project")


@pytest.mark.soak
@pytest.mark.parametrize("seed", _seeds())
def test_many_quick(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _played(seed, OnDuck(monkeypatch), tmp_path / "project")


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("seed", _seeds())
def test_many_with_spark(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    _played(seed, OnSpark(spark), tmp_path / "project")
