"""Whether a claim holds is read from the same seeds of both policies, and says how sure it is."""

from __future__ import annotations

import pytest

from penstock.papers.scheduling.golab import mostly_better, never_worse
from penstock.sim.outcome import Row


def rows(**lateness: list[list[float]]) -> list[Row]:
    """Of each policy the lateness by point and seed."""
    return [
        {
            "cycle": 20.0,
            "slowdown": 3.0,
            "utilisation": level / 10,
            "seed": seed,
            "policy": policy,
            "relative_lateness": late,
        }
        for policy, points in lateness.items()
        for level, seeds in enumerate(points, 8)
        for seed, late in enumerate(seeds)
    ]


def test_the_worst_point_with_the_error_of_paired_seeds() -> None:
    # At 0.8 ours is 1 % later for both seeds, however much the seeds differ; at 0.9 it is 3 % and 5 % later: 4 % ± 1 %.
    found = never_worse(
        rows(ours=[[1.01, 2.02], [2.06, 2.10]], best=[[1.0, 2.0], [2.0, 2.0]]), "claim", "ours", ["best"]
    )
    assert not found.holds
    assert found.found == "1 of 2 points within 2 %; at worst +4.0% ±1.0% (utilisation 0.9, cycle 20, best)"


def test_where_it_is_never_later_that_is_told_too() -> None:
    found = never_worse(rows(ours=[[0.98, 0.98]], best=[[1.0, 1.0]]), "claim", "ours", ["best"])
    assert found.holds and found.found == "1 of 1 points within 2 %; at worst -2.0% ±0.0%"


def test_the_mean_over_points_with_the_error_over_seeds() -> None:
    # Seed 0: twice and eight times as late, in the geometric mean 4 times; seed 1: 2 and 2, that is 2. 3 ± 1.
    found = mostly_better(rows(ours=[[1.0, 1.0], [1.0, 1.0]], best=[[2.0, 2.0], [8.0, 2.0]]), "claim", "ours", "best")
    assert found.holds and found.found == "best is 3.000 ±1.000 times as late as ours on average"


@pytest.mark.parametrize("best", [[[1.0, 1.01]], []])
def test_nothing_to_compare_is_no_success(best: list[list[float]]) -> None:
    assert not mostly_better(rows(ours=[[1.0, 1.0]], best=best), "claim", "ours", "best").holds
    assert not never_worse(rows(ours=[[1.0, 1.0]]), "claim", "ours", ["best"]).holds
