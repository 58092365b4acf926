"""python -m tests.projects --seeds 1..2000 [--steps N] [--writer own|spark|mixed] [--shrink [--save tests/projects/found]]"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.projects.draw import WRITERS, draw
from tests.projects.engines import Engine, OnDuck, OnSpark
from tests.projects.play import play
from tests.projects.session import start
from tests.projects.shrink import shrink, told


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.projects", description="Draw projects and compare them with the oracle."
    )
    parser.add_argument("--seeds", default="1..100", help="a seed, or first..last")
    parser.add_argument("--steps", type=int, help="so many steps in each case")
    parser.add_argument("--template", help="the first table of each case is drawn from this template")
    parser.add_argument("--shrink", action="store_true", help="make what is found small, and print it as a project")
    parser.add_argument("--save", type=Path, help="with --shrink: write the small case into this folder, as a test")
    parser.add_argument("--show", action="store_true", help="print the case before it is played")
    parser.add_argument(
        "--duck", action="store_true", help="with DuckDB in the place of Spark: quick, plain projects only"
    )
    parser.add_argument("--calm", action="store_true", help="partitions are made from partitions of the same time only")
    parser.add_argument("--writer", choices=list(WRITERS), help="who writes small results; else each in turn")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("..")
    engine: Engine
    if asked.duck:
        engine = OnDuck(pytest.MonkeyPatch())
    else:
        engine = OnSpark(start(Path(tempfile.mkdtemp(prefix="projects-spark-"))))
    kinds: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    began, cases, slowest = time.monotonic(), 0, (0.0, 0)
    for seed in range(int(first), int(last or first) + 1):
        if asked.minutes and time.monotonic() - began > asked.minutes * 60:
            break
        case = draw(
            seed, steps=asked.steps, only=asked.template, plain=engine.plain, calm=asked.calm, writer=asked.writer
        )
        if asked.show:
            print(told(case))
        played = play(case, engine)
        cases += 1
        if not cases % 25:
            print(f"… {cases} cases, {time.monotonic() - began:.0f} s", flush=True)
        slowest = max(slowest, (played.seconds, seed))
        for message in played.refused:
            refused[message] += 1
            print(f"{seed}: refused: {message}", flush=True)
        for finding in played.findings:
            kinds[finding.kind] += 1
            table = case["project"]["tables"].get(finding.table, {}).get("template", "")
            print(f"{seed}: {finding} [{table}]", flush=True)
        if played.findings and asked.shrink:
            small = shrink(case, engine, played.findings[0])
            print(told(small), flush=True)
            if asked.save:
                (asked.save / f"{seed}.json").write_text(json.dumps(small | {"plain": engine.plain}, indent=1) + "\n")
    took = time.monotonic() - began
    print(
        f"{cases} cases in {took:.0f} s ({took / max(1, cases):.1f} s each, slowest {slowest[0]:.1f} s: seed {slowest[1]})"
    )
    print(f"refused by check: {sum(refused.values())}; findings: {json.dumps(dict(kinds))}")
    return 1 if kinds else 0


sys.exit(main())
