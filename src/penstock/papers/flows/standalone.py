"""A flow run by itself: from DataFrames to folders of Parquet files, without a warehouse. For trying, and for measuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.flows.progress import storage_bytes
from penstock.engine.flows.run import FlowRun, World
from penstock.engine.flows.work import MEMORY_SHARE, as_refused, quarantine_of
from penstock.engine.updates.rows import Staged, Writer, read_files
from penstock.flows.description import TypedFlow
from penstock.flows.gathering import gathered
from penstock.flows.report import FlowReport
from penstock.flows.staging import StagingPlan, plan_staging
from penstock.model.grain import WHOLE
from penstock.model.schema import Schema


def run_flow(
    session: SparkSession,
    flow: TypedFlow,
    sources: Mapping[str, DataFrame],
    folder: Path,
    *,
    rows: Mapping[str, float] | None = None,
    plan: StagingPlan | None = None,
    slots: int | None = None,
    input_bytes: int = 1 << 40,
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
