"""The experiment `etl-spark`: operator policies of Karagiannis, Vassiliadis and Simitsis (2013) on real row packs.

Each source is cut into files, a pack each; every activity works on one pack at a time, as a query of Spark. The staging
plan, which is how flows run by default, is beside them. Nothing is random, so `--seeds` has no effect.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.flows.progress import storage_bytes
from penstock.engine.flows.run import FlowRun, World
from penstock.engine.flows.work import MEMORY_SHARE, as_refused, quarantine_of
from penstock.engine.spark.sizing import SMALL_BYTES
from penstock.engine.updates.rows import Staged, Writer, read_files
from penstock.flows.description import TypedFlow
from penstock.flows.gathering import gathered
from penstock.flows.report import FlowReport
from penstock.flows.staging import StagingPlan, plan_staging
from penstock.model.grain import WHOLE
from penstock.model.schema import Schema
from penstock.papers.experiment import Experiment, ExperimentError, Finding, Picture, add
from penstock.papers.flows.policies import find_operator_policy
from penstock.sim.outcome import Row, averages

PLAN = "staging plan"
POLICIES = ("round-robin", "minimum-cost", "minimum-memory", "mixed", PLAN)
PARAMETERS: dict[str, Any] = {
    "flows": ("line", "butterfly"),
    "policies": POLICIES,
    "scale": 0.02,
    "selectivity": 0.9,
    "packs": 6,
    "queue_packs": 3,
}


def _tasks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
    from penstock.papers.flows.tpch import ARCHETYPES

    for flow in parameters["flows"]:
        if flow not in ARCHETYPES:
            raise ExperimentError(f"flows={flow}: there is no such flow; known are {'; '.join(ARCHETYPES)}")
    for policy in parameters["policies"]:
        if policy != PLAN:
            find_operator_policy(policy)
    return [dict(parameters)]  # one process, one Spark


def _work(parameters: dict[str, Any]) -> list[Row]:
    from penstock.engine.spark.session import start_spark

    with tempfile.TemporaryDirectory(prefix="penstock-etl-") as scratch:
        spark = start_spark("etl", Path(scratch), {})
        try:
            return measured(spark, parameters, Path(scratch))
        finally:
            spark.stop()


def measured(spark: Any, parameters: Mapping[str, Any], scratch: Path) -> list[Row]:
    """The rows of the experiment, in a session that is there."""
    from penstock.papers.flows.etl_spark import run_flow
    from penstock.papers.flows.packs import PacksRun
    from penstock.papers.flows.tpch import ARCHETYPES, checked, generate, in_packs, read

    data = generate(scratch, parameters["scale"])
    rows: list[Row] = []
    for name in parameters["flows"]:
        flow = checked(ARCHETYPES[name](parameters["selectivity"]))
        packs = {table: in_packs(spark, data, table, parameters["packs"]) for table in flow.flow.sources}
        # Once before anything is measured: else the first policy pays for the JVM's warming up.
        warm = {table: some[:1] for table, some in packs.items()}
        PacksRun(spark, flow, warm, scratch / name / "warm", find_operator_policy("minimum-cost"), 1).run()
        for policy in parameters["policies"]:
            out = scratch / name / policy.replace(" ", "-")
            shutil.rmtree(out, ignore_errors=True)
            began = perf_counter()
            row: Row = {"experiment": "etl-spark", "flow": name, "policy": policy, "scale": parameters["scale"]}
            if policy == PLAN:
                run_flow(spark, flow, {table: read(spark, data, table) for table in packs}, out)
                found = {"average_packs": 0.0, "maximum_packs": 0, "calls": 0, "queries": len(flow.flow.targets)}
            else:
                run = PacksRun(spark, flow, packs, out, find_operator_policy(policy), parameters["queue_packs"]).run()
                found = {
                    "average_packs": run.average_packs,
                    "maximum_packs": run.maximum_packs,
                    "calls": run.calls,
                    "queries": run.queries,
                }
            rows.append({**row, "seconds": perf_counter() - began, **found})
    return rows


def _judge(rows: list[Row]) -> list[Finding]:
    seconds = averages(rows, "seconds", "flow", "policy")
    packs = averages(rows, "average_packs", "flow", "policy")
    flows = sorted({flow for flow, _ in seconds})
    found = []
    for claim, values, best in (
        ("minimum cost is the fastest of the single policies", seconds, "minimum-cost"),
        ("minimum memory has the least in its queues, on average", packs, "minimum-memory"),
    ):
        known = [flow for flow in flows if (flow, best) in values]
        rivals = ("round-robin", "minimum-cost", "minimum-memory")
        wins = [flow for flow in known if values[flow, best] <= min(values.get((flow, r), 1e99) for r in rivals)]
        found.append(Finding(claim, len(wins) == len(known), f"in {len(wins)} of {len(known)} flows"))
    both = [flow for flow in flows if (flow, PLAN) in seconds and len([1 for f, _ in seconds if f == flow]) > 1]
    ratios = [min(s for (f, p), s in seconds.items() if f == flow and p != PLAN) / seconds[flow, PLAN] for flow in both]
    if ratios:
        text = f"the best policy takes {min(ratios):.2g} to {max(ratios):.2g} times as long"
        found.append(Finding("fused by a staging plan, a flow is faster than in packs (ours)", min(ratios) > 1, text))
    return found


add(
    Experiment(
        "etl-spark",
        "operator policies on row packs, on Spark",
        PARAMETERS,
        _tasks,
        _work,
        _judge,
        Picture("flow", "seconds", "policy"),
    )
)


# A flow run by itself: from DataFrames to folders of Parquet files, without a warehouse. For trying, and for measuring


def run_flow(
    session: SparkSession,
    flow: TypedFlow,
    sources: Mapping[str, DataFrame],
    folder: Path,
    *,
    rows: Mapping[str, float] | None = None,
    plan: StagingPlan | None = None,
    slots: int | None = None,
    input_bytes: int = SMALL_BYTES + 1,
    between: Callable[[str], None] = lambda _name: None,
) -> FlowReport:
    """Each target in a folder of its own name, beside what is there; refused rows in `<flow>_quarantine`. `rows` are those of the sources, where
    they are known: the plan is better with them."""
    if plan is None:
        flow = gathered(flow)
        plan = plan_staging(flow.graph(rows), MEMORY_SHARE * storage_bytes(session)[0])

    writer = Writer()
    # As they are now: what this run writes beside them is not loaded yet.
    before = {table: [str(path) for path in (folder / table).rglob("*.parquet")] for table in flow.flow.targets}

    def write(table: str, frame: DataFrame) -> Staged:
        place = folder / table
        staged = writer.stage(frame, place, str(place), None, WHOLE, input_bytes)
        return replace(
            staged, files=tuple(file for file in staged.files if str(place / file.path) not in before[table])
        )

    def quarantine(step: str, refused: list[tuple[str, str, DataFrame]]) -> Staged:
        parts = [as_refused(frame, activity, reason, flow.flow.name) for activity, reason, frame in refused]
        place = folder / quarantine_of(flow.flow.name)
        return writer.stage(
            reduce(DataFrame.unionByName, parts), place / step.replace(" ", "_"), str(place), None, WHOLE, 0
        )

    def loaded(table: str, columns: Schema) -> DataFrame:
        return read_files(session, before[table], columns, 0)

    def paths(table: str, files: Staged) -> list[str]:
        return [str(folder / table / file.path) for file in files.files]

    world = World(session, sources, loaded, write, quarantine, paths, step=between)
    run = FlowRun(flow, plan, flow.flow.name, world, slots or max(1, int(session.sparkContext.defaultParallelism)))
    try:
        return run.run()
    finally:
        run.release()
        writer.fit(session, 0)  # the session is as it was
