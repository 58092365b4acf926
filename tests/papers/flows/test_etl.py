"""The experiments on flows, small: what they claim of the paper that must come out at any size."""

from __future__ import annotations

import pytest

from penstock.papers import find_experiment, load_all
from penstock.papers.experiment import ExperimentError, Finding
from penstock.sim.outcome import Row


def small(name: str, *settings: str) -> tuple[list[Row], dict[str, Finding]]:
    experiment = find_experiment(name, load_all())
    tasks = experiment.tasks(experiment.with_settings(settings), [1])
    rows = [row for task in tasks for row in experiment.work(task)]
    assert rows and all(
        {experiment.picture.x, experiment.picture.y, experiment.picture.series} <= set(row) for row in rows
    )
    return rows, {finding.claim: finding for finding in experiment.judge(rows)}


def test_time_and_memory_of_the_single_policies() -> None:
    _, found = small("etl-time", "scale=0.1,0.2", "flows=line;butterfly")
    assert found["MC is not slower than RR"].holds and found["MM is the slowest"].holds
    _, found = small("etl-average-memory", "scale=0.02", "flows=fork;primary_flow")
    assert found["MM holds the least on average"].holds
    _, found = small("etl-maximum-memory", "scale=0.02", "flows=line")
    assert found["MC has peaks lower by a quarter in fork and primary flow"].found == "not measured"
    _, found = small("etl-selectivity", "scale=0.02", "selectivity=0.2,1", "flows=primary_flow")
    assert found["RR holds more than MC"].holds


def test_mixed_gains_from_processors_and_only_from_them() -> None:
    rows, found = small("etl-mixed", "scale=0.02", "processors=1,4")
    assert not found["MP is faster than MC on 1 processor"].holds
    time = {(row["flow"], row["policy"], row["processors"]): row["time_s"] for row in rows}
    assert time["forks_with_lines", "mixed", 4] < 0.5 * time["forks_with_lines", "mixed", 1]


def test_strata_of_fig_1() -> None:
    _, found = small("etl-strata")
    assert found["the butterfly of Fig. 1 has the strata 2, 2, 2, 1, 3, 2, 2, 2"].holds


def test_the_plan_is_never_worse_than_strata_nor_better_than_the_optimum() -> None:
    rows, found = small("etl-staging", "activities=20,40", "flows=6", "effort=30000")
    assert found["the plan never holds more than the order of strata"].holds
    assert all(row["over_optimum"] >= 1 for row in rows if row["proven"])


def test_an_unknown_flow_is_told() -> None:
    with pytest.raises(ExperimentError, match="flows=bow: there is no such flow"):
        small("etl-time", "flows=bow")
