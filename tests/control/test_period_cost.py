"""What updates with the data of one period take is learned from those, not from backfills and backlogs."""

from __future__ import annotations

from penstock.control.events import UpdateFinished
from penstock.model.tables import Feed
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.requests.job import PublishedTable
from tests.control.test_state import DAY_1, HOURS, Bench, base

MB = 1_000_000


def loaded(bench: Bench, uri: str, size: int) -> None:
    """One file, which takes 1 s and a second for each MB."""
    bench.later(MINUTE_US)
    bench.file(uri, size=size)
    job = bench.start("a")
    bench.snapshot += 1
    span = (bench.now - MINUTE_US, bench.now)
    done = PublishedTable("a", bench.snapshot, True, (span,), bench.now, bench.now - 1, DAY_1, size_bytes=size)
    bench.emit(UpdateFinished(bench.later(), job.id, "a", (done,), 1 + size / MB))


def test_one_huge_file_does_not_make_all_periods_dear() -> None:
    bench = Bench([Feed("f", MINUTE_US)], [base()])
    for number in range(20):
        loaded(bench, f"f/{number}", MB + number * MB // 100)
    outlook = bench.controller.outlook
    usual = outlook.period_cost_s("a")
    assert 1.5 < usual < 3
    loaded(bench, "f/backfill", 20_000 * MB)
    loaded(bench, "f/after", MB)
    assert outlook.period_cost_s("a") < 2 * usual
    # And yet it is known what so much takes.
    assert bench["a"].cost.expected_s(10_000 * MB) > 1_000


def test_a_merged_backlog_counts_as_the_periods_that_it_holds() -> None:
    bench = Bench([Feed("f", MINUTE_US)], [base()])
    for number in range(20):
        loaded(bench, f"f/{number}", MB + number * MB // 100)
    usual = bench.controller.outlook.period_cost_s("a")
    for turn in range(5):
        for number in range(30):
            bench.later(MINUTE_US)
            bench.file(f"f/more-{turn}-{number}", size=MB)
        job = bench.start("a")
        bench.snapshot += 1
        done = PublishedTable("a", bench.snapshot, True, ((DAY_1, bench.now),), bench.now, bench.now - 1, DAY_1)
        bench.emit(UpdateFinished(bench.later(), job.id, "a", (done,), 1.0 + 30))
    assert bench.controller.outlook.period_cost_s("a") < 1.5 * usual


def test_partitions_made_again_say_nothing_of_a_period() -> None:
    bench = Bench([Feed("f", MINUTE_US)], [base(), HOURS])
    assert bench["h"].cost.period == 0
    bench.load("f/1", (DAY_1, DAY_1 + 60 * SECOND_US), complete=DAY_1 + 60 * SECOND_US)
    bench.run_all()
    before = bench["h"].cost.period
    bench.load("f/2", (DAY_1, DAY_1 + 30 * SECOND_US), complete=DAY_1 + 60 * SECOND_US)
    assert [job.table for job in bench.run_all()] == ["h"]
    assert bench["h"].cost.period == before
