"""What an update reads is what it is costed and cut by: new rows, and all that partitions are made from which are made again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.events import BackfillRequested, FileArrived, FileRewritten, UpdateFinished, WarehouseDeclared
from penstock.control.readiness import ready_job
from penstock.control.snapshot import dump, load
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US, MINUTE_US
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.scheduling.policies import DEFAULT
from tests.control.test_state import DAY_1, SAME, Bench, base

# A job takes a second, and another for each MB.
MB = 1_000_000
FOLDED = Table("v", "hour", sources=(Source("a", SAME),), foldable=True, exact_time=True, logic="1")
WHOLE = replace(FOLDED, foldable=False, exact_time=False)


def declare(bench: Bench, view: Table) -> None:
    """With the default policy, which cuts what is long."""
    bench.emit(WarehouseDeclared(bench.later(), (Feed("f", HOUR_US),), (base(), view), 1, DEFAULT))


def done(bench: Bench, job: Job, size: int) -> None:
    bench.snapshot += 1
    folded = all(piece.need.append for piece in job.pieces)
    changed = tuple((piece.start_us, piece.end_us) for piece in job.pieces)
    if job.files:
        folded, changed = True, ((job.files[0].arrived_us - HOUR_US, job.files[-1].arrived_us),)
    complete = changed[-1][1] if job.files else job.complete_us
    found = PublishedTable(
        job.table, bench.snapshot, folded, changed, complete, complete - 1, changed[0][0], size_bytes=size
    )
    bench.emit(UpdateFinished(bench.later(), job.id, job.table, (found,), 1 + job.amount / MB))


def lived(view: Table, hours: int) -> Bench:
    """A file of 1 MB in each hour, and a view of that."""
    bench = Bench([Feed("f", HOUR_US)], [base()])
    declare(bench, view)
    for number in range(hours):
        bench.now = DAY_1 + (number + 1) * HOUR_US
        file = FeedFile(f"a/{number}", "c", MB, bench.now)
        bench.emit(FileArrived(bench.now, "f", file))
        while bench.controller.decide(bench.now):
            done(bench, bench.start(), MB)
    return bench


def jobs_until_idle(bench: Bench) -> list[Job]:
    found = []
    while bench.controller.decide(bench.now):
        found.append(bench.start())
        hours = sum((piece.end_us - piece.start_us) // HOUR_US for piece in found[-1].pieces)
        done(bench, found[-1], hours * MB)
    return found


@pytest.mark.parametrize("view", [FOLDED, WHOLE], ids=["folded", "made anew"])
def test_new_logic_over_many_partitions_is_cut_and_costed_by_what_it_reads(view: Table) -> None:
    bench = lived(view, 300)
    start_up_s = bench["v"].cost.expected_s(0.0)
    declare(bench, replace(view, logic="2"))
    jobs = jobs_until_idle(bench)
    assert len(jobs) > 5
    assert sum(job.amount for job in jobs) == pytest.approx(300 * MB, rel=0.02)
    assert all(job.expected_s > job.amount / MB * 0.5 for job in jobs)
    # The cost of a start is still what it was.
    assert bench["v"].cost.expected_s(0.0) == pytest.approx(start_up_s, abs=0.5)


def test_a_first_build_is_cut() -> None:
    bench = lived(FOLDED, 300)
    declare(bench, replace(FOLDED, name="w"))
    first = ready_job(bench.controller.state, bench["w"])
    assert first is not None and bench.controller.ready_now()
    (command,) = bench.controller.decide(bench.later())
    assert command.job.amount > 0


def test_a_backfill_costs_what_it_reads_and_leaves_the_amount_of_new_rows_alone() -> None:
    bench = lived(FOLDED, 50)
    bench.emit(BackfillRequested(bench.later(), "v", ((DAY_1, DAY_1 + 10 * HOUR_US),)))
    job = bench.start("v")
    assert job.amount == pytest.approx(10 * MB, rel=0.02) and job.fresh == 0
    done(bench, job, 10 * MB)
    assert bench["v"].amount == 0


def test_a_corrected_file_costs_the_partitions_that_it_is_in() -> None:
    bench = lived(FOLDED, 50)
    hours = (DAY_1, DAY_1 + 10 * HOUR_US)
    bench.emit(FileRewritten(bench.later(), "f", FeedFile("a/3", "d", 1000, bench.now), (hours,)))
    job = bench.start("a")
    assert job.amount == pytest.approx(10 * MB, rel=0.02)


def test_what_a_job_takes_up_comes_back_if_it_fails() -> None:
    bench = lived(WHOLE, 5)
    for number in (5, 6):
        bench.now = DAY_1 + (number + 1) * HOUR_US
        bench.emit(FileArrived(bench.now, "f", FeedFile(f"a/{number}", "c", MB, bench.now)))
    done(bench, bench.start("a"), 2 * MB)
    before = bench["v"].amount
    assert before == 2 * MB
    bench.fail(bench.start("v"))
    assert bench["v"].amount == before


def test_partitions_that_are_made_from_nothing_are_read_as_a_whole_each_time() -> None:
    """An hour is made again with each file of a minute: it reads all of the hour so far."""
    bench = Bench([Feed("f", MINUTE_US)], [base()])
    bench.declare([Feed("f", MINUTE_US)], [base(), WHOLE])
    amounts = []
    for number in range(59):
        start = DAY_1 + number * MINUTE_US
        bench.now = max(bench.now, start + MINUTE_US)
        bench.file(f"a/{number}", size=MB)
        for _ in range(2):
            job = bench.start()
            bench.snapshot += 1
            end = start + MINUTE_US
            found = PublishedTable(
                job.table, bench.snapshot, job.table == "a", ((start, end),), end, end - 1, DAY_1, size_bytes=MB
            )
            bench.emit(UpdateFinished(bench.later(1), job.id, job.table, (found,), 1 + job.amount / MB))
            if job.table == "v":
                amounts.append(job.amount / MB)
    assert amounts == pytest.approx(range(1, 60), rel=0.01)
    cost = bench["v"].cost
    assert cost.expected_s(60 * MB) == pytest.approx(61, rel=0.05)


def test_a_feed_goes_by_its_rhythm_where_nobody_said_a_period() -> None:
    """Deadlines, lengths of cuts and the cost of a period follow from what is learned; a restart knows it, too."""
    feed = Feed("f", MINUTE_US, guessed=True)
    bench = Bench([feed], [base(), FOLDED])
    for number in range(36):
        bench.now = DAY_1 + number * HOUR_US
        bench.file(f"a/{number}", size=MB)
        job = bench.start("a")
        assert job.files
        done(bench, job, MB)
        while bench.controller.decide(bench.now):
            done(bench, bench.start("v"), MB)
    state = bench.controller.state
    assert state.graph.periods_us == {"a": HOUR_US, "v": HOUR_US}
    assert bench["a"].cost.period == pytest.approx(MB, rel=0.05)
    bench.now += HOUR_US
    bench.file("a/36", size=MB)
    job = bench.controller.ready_now()["a"]
    assert job.deadline_us - job.release_us == HOUR_US
    assert load(dump(state)).graph.periods_us == state.graph.periods_us
    # Declared again, it still goes by that; once somebody says the period, that counts.
    bench.declare([feed], [base(), FOLDED])
    assert bench.controller.state.graph.periods_us["a"] == HOUR_US
    bench.declare([Feed("f", 2 * HOUR_US)], [base(), FOLDED])
    assert bench.controller.state.graph.periods_us["v"] == 2 * HOUR_US


def test_small_differences_of_a_rhythm_change_no_plans() -> None:
    bench = Bench([Feed("f", MINUTE_US, guessed=True)], [base()])
    for number in range(30):
        bench.now = DAY_1 + number * HOUR_US + number * number * MINUTE_US // 10
        bench.file(f"a/{number}")
    assert bench.controller.state.graph.periods_us["a"] in range(HOUR_US, HOUR_US + 3 * MINUTE_US)


def test_a_file_that_comes_besides_is_no_period_of_freshness() -> None:
    """A file with late rows only, a tenth of a period after the last one: what is new by the clock is a tenth of a period."""
    bench = Bench([Feed("f", HOUR_US)], [base()])
    bench.load("a/1", (DAY_1, DAY_1 + HOUR_US), complete=DAY_1 + HOUR_US)
    bench.now = bench["a"].last_arrival_us + 6 * MINUTE_US - 1_000_000
    bench.file("a/late")
    assert bench.controller.ready_now()["a"].gain_us == 6 * MINUTE_US
    bench.now += 54 * MINUTE_US - 1_000_000
    bench.file("a/2")
    assert bench.controller.ready_now()["a"].gain_us == HOUR_US
