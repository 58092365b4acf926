"""The worked examples of the paper (Leontyev, Johnson, Anderson 2010), with the arithmetic beside them."""

from __future__ import annotations

import pytest

from penstock.papers.recovery.aus_examples import (
    SCHEDULES,
    UNIT,
    derived,
    files,
    fixed_period,
    two_broken_feeds,
    work,
)
from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.tasks import RecoveryTask


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_release_deadline_start_and_completion(name: str) -> None:
    for row in work(name):
        assert row["exact"], row


def test_example_1_trailing_edges() -> None:
    ran = fixed_period(1.0)
    edges = [(at / UNIT, edge / UNIT) for at, edge in ran.edges["V1"]]
    assert edges[:2] == [(1, 1), (10, 10)]  # D2, D3, D4 come together; the newest is 1 + 3 * (4 - 1) = 10
    assert sum(file.arrives_us == 10 * UNIT for file in files(True)) == 3


def test_example_2_a_derived_table_takes_what_both_sources_have() -> None:
    ran = derived()
    at_12 = {t: max(e for at, e in ran.fresh[t] if at <= 12 * UNIT) / UNIT for t in ("V2", "V3", "V4")}
    assert at_12 == {"V2": 8, "V3": 9, "V4": 5}
    job = ran.of("V4")[-1]
    assert (job.start_us / UNIT, job.end_us / UNIT, job.fresh_us / UNIT) == (12, 14, 8)  # min(8, 9)


@pytest.mark.parametrize(
    ("start", "end", "next_file", "release"),
    [
        (1, 3, 4, 6),  # (a) done in time, the next file is there before the deadline 6: at the deadline
        (5, 8, 7, 6),  # (b) done late, and not fresh then: also at the deadline
        (1, 3, 9, 9),  # (c) done in time, the next file comes after the deadline: when it comes
        (5, 8, 9, 9),  # (d) done late and fresh then: when the next file comes
    ],
)
def test_example_3_the_four_cases_of_the_next_release(start: int, end: int, next_file: int, release: int) -> None:
    modes = Modes([RecoveryTask("v", 3, 5, 5, 1000)], 1, background=False)
    modes.lags(1, "v", 5)
    modes.starts(start, "v")
    for at in sorted({end, next_file}):
        if at == end:
            modes.ends(at, "v", 5 if next_file <= end else 0)
        else:
            modes.lags(at, "v", 10 if at < end else 5)
    modes.advance(20)
    assert modes["v"].last == (release, release + 5)


def test_examples_6_and_7_what_hurrying_costs_the_other_table() -> None:
    hurried, steady = fixed_period(1.0), fixed_period(1.5)
    fresh = {at / UNIT: edge / UNIT for at, edge in hurried.fresh["V2"]}
    assert fresh[3] == 1  # S(V2, 3) = 3 - 1 = 2
    assert [at for at in fresh if 8 < at < 15] == []  # V2 stays at 7 from 8 until 15
    assert fresh[15] == 10
    assert hurried.stalest_us("V2", 0, 16 * UNIT) == 8 * UNIT  # 15 - 7
    assert {at / UNIT: edge / UNIT for at, edge in steady.fresh["V2"]}[12] == 10  # S(V2, 12) = 2
    assert steady.stalest_us("V2", 0, 16 * UNIT) == 5 * UNIT  # 12 - 7, and 15 - 10


def test_examples_9_and_10_modes() -> None:
    changes = [(c.at_us / UNIT, c.table, c.recovering, c.rule) for c in two_broken_feeds().changes]
    assert changes == [
        # lag 10 - 1 = 9 > 8 for both; load 2/3, room for an increase of 1/3 only: T1
        (10, "V1", True, "ii"),
        # fresh at 17, deadline 17.5; T2 still lags 16 - 7 = 9 and runs, deadline 19
        (17.5, "V1", False, "RN"),
        (17.5, "V2", True, "vi or vii"),
        # 18 (1 - 1.5/3) + 16 (1.5/3) + 1.5 = 18.5
        (18, "V2", True, "vii"),
        (24.5, "V2", False, "RN"),
    ]


def test_example_10_both_are_back_in_step_at_25() -> None:
    jobs = {(job.table, job.number): job for job in two_broken_feeds().jobs}
    assert jobs["V2", 5].release_us == 18.5 * UNIT
    assert jobs["V1", 9].release_us == jobs["V2", 9].release_us == 25 * UNIT
