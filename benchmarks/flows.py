"""Flows against scripts that do the same: a fork with six targets and the butterfly with four views, over TPC-H.

Variants: a plain script (one action a target); a script with the shared rows cached, as a good engineer would write it;
the same with the columns that are needed picked by hand; Spark Declarative Pipelines (shared rows as a temporary view);
and the flow. Each has the same session settings and a fresh JVM in every round, in turns, after a warm-up, and all must
give the same rows. Seconds of CPU count the JVM, Python, and the client of the pipelines.

    PENSTOCK_BENCH_SCALE=1 PENSTOCK_BENCH_ROUNDS=3 PENSTOCK_BENCH_FLOWS="fork;butterfly" python -m benchmarks flows
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import duckdb

from penstock.papers.flows.tpch import FORKS, generate

VARIANTS = ("plain", "hand-cached", "hand-cached, pruned", "pipelines", "flow")
FLOWS = ("fork", "butterfly")
TARGETS = {
    "fork": [f"cost_of_{name}" for name in FORKS],
    "butterfly": ["dw_partsupp", "dw_supplier", "view_1", "view_2", "view_3", "view_4"],
}
WARM_SCALE = 0.1
Row = dict[str, object]
Figures = dict[str, float]


def run() -> list[Row]:
    scale = float(os.environ.get("PENSTOCK_BENCH_SCALE", "1"))
    rounds = int(os.environ.get("PENSTOCK_BENCH_ROUNDS", "3"))
    variants = os.environ.get("PENSTOCK_BENCH_VARIANTS", ";".join(VARIANTS)).split(";")
    flows = os.environ.get("PENSTOCK_BENCH_FLOWS", ";".join(FLOWS)).split(";")
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-flows-") as scratch:
        data = generate(Path(os.environ.get("PENSTOCK_BENCH_DATA", scratch)), scale)
        warm = generate(data.parent, min(scale, WARM_SCALE))
        for flow in flows:
            figures: dict[str, list[Figures]] = {variant: [] for variant in variants}
            for _ in range(rounds):
                for variant in variants:
                    figures[variant] += _variant(variant, flow, data, warm, Path(scratch))
            found += [
                _row(flow, scale, variant, figures, _same(Path(scratch) / flow, flow, variant)) for variant in variants
            ]
    return found


def _variant(variant: str, flow: str, data: Path, warm: Path, scratch: Path) -> list[Figures]:
    arguments = [variant, flow, str(data), str(warm), str(scratch), "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.flow_variants", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{variant}, {flow}: {done.stderr[-2000:]}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for each in found:
        told = ", ".join(f"{key} {value:.4g}" for key, value in each.items())
        print(f"  {flow}, {variant}: {told}", file=sys.stderr, flush=True)
    return found


def _row(flow: str, scale: float, variant: str, figures: dict[str, list[Figures]], same: bool) -> Row:
    middle = {
        name: {key: median(each[key] for each in some) for key in some[0]} for name, some in figures.items() if some
    }
    mine, ours = middle[variant], middle.get("flow", middle[variant])
    row: Row = {
        "benchmark": f"{flow}, TPC-H {scale:g}",
        "against": variant,
        **{k: round(v, 2) for k, v in mine.items()},
    }
    if variant != "flow" and "flow" in middle:
        row["flow / this: CPU"] = round(ours["cpu_s"] / mine["cpu_s"], 2)
        row["flow / this: wall"] = round(ours["wall_s"] / mine["wall_s"], 2)
        if variant.startswith("hand-cached"):
            row["flow / this: peak"] = round(ours["peak_storage_mb"] / mine["peak_storage_mb"], 2)
    row["same rows"] = str(same)
    return row


def _same(place: Path, flow: str, variant: str) -> bool:
    """Whether a variant gave the rows of the plain script."""
    connection = duckdb.connect()
    for target in TARGETS[flow]:
        left, right = (f"read_parquet('{place}/{name}/{target}/**/*.parquet')" for name in ("plain", variant))
        columns = connection.execute(f"SELECT * FROM {left} LIMIT 0").description
        names = ", ".join(f'"{column[0]}"' for column in columns or ())
        for one, other in ((left, right), (right, left)):
            odd = connection.execute(
                f"SELECT count(*) FROM (SELECT {names} FROM {one} EXCEPT ALL SELECT {names} FROM {other})"
            ).fetchone()
            if odd is None or odd[0]:
                return False
    return True
