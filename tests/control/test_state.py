"""What the fold of events must get right, case by case. Random histories are in test_random_schedules.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.control import readiness
from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    PunctuationArrived,
    RunStarted,
    TableRetried,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.readiness import files_to_load
from penstock.control.snapshot import dump, load
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_instant
from penstock.requests.job import FeedFile, Job, PublishedTable

DAY_1 = parse_instant("2024-03-01")
SAME = (0, 1)


class Bench:
    """A controller, a clock, and a runtime of three lines."""

    def __init__(self, feeds: list[Feed], tables: list[Table], tracks: int = 1) -> None:
        self.now = DAY_1
        self.controller = Controller()
        self.snapshot = 0
        self.emit(RunStarted(self.now, "one"))
        self.declare(feeds, tables, tracks)

    def __getitem__(self, name: str):
        return self.controller.state.tables[name]

    def emit(self, event: Event) -> None:
        self.controller.apply(event)

    def declare(self, feeds: list[Feed], tables: list[Table], tracks: int = 1) -> None:
        self.emit(WarehouseDeclared(self.later(), tuple(feeds), tuple(tables), tracks, "max-benefit"))

    def later(self, by: int = SECOND_US) -> int:
        self.now += by
        return self.now

    def file(self, uri: str, feed: str = "f", checksum: str = "c", size: int = 100) -> FeedFile:
        file = FeedFile(uri, checksum, size, self.later())
        self.emit(FileArrived(self.now, feed, file))
        return file

    def start(self, table: str | None = None) -> Job:
        (command, *_) = self.controller.decide(self.later())
        assert table in (None, command.job.table)
        at = self.controller.state.applied
        self.emit(UpdateStarted(command.at_us, command.job, command.track, command.why, at))
        return command.job

    def finish(self, job: Job, *changed: tuple[int, int], complete: int | None = None, append: bool = True) -> None:
        self.snapshot += 1
        begin = min((start for start, _ in changed), default=None)
        published = PublishedTable(job.table, self.snapshot, append, changed, complete, None, begin)
        self.emit(UpdateFinished(self.later(), job.id, job.table, (published,), 1.0))

    def fail(self, job: Job, final: bool = False) -> None:
        self.emit(UpdateFailed(self.later(), job.id, job.table, "no luck", 1.0, final))

    def load(self, uri: str, *changed: tuple[int, int], complete: int | None = None, feed: str = "f") -> None:
        self.file(uri, feed)
        self.finish(self.start(), *changed, complete=complete)

    def run_all(self) -> list[Job]:
        done = []
        while self.controller.decide(self.now):
            done.append(self.start())
            changed = [(piece.start_us, piece.end_us) for piece in done[-1].pieces]
            self.finish(done[-1], *changed, complete=done[-1].complete_us, append=False)
        return done


def base(name: str = "a", feed: str = "f", partition: str = "hour") -> Table:
    return Table(name, partition, feed=feed)


HOURS = Table("h", "hour", sources=(Source("a", SAME),))


# Tables without time


def test_a_changed_dimension_reaches_whoever_used_it() -> None:
    """A load of a table without event times says nothing of ranges: all of it changed."""
    joined = Table("j", "hour", sources=(Source("a", SAME), Source("d")))
    bench = Bench([Feed("f"), Feed("g", mode="snapshot", timed=False)], [base(), base("d", "g", "none"), joined])
    bench.load("d/1", feed="g")
    bench.load("a/1", (DAY_1, DAY_1 + 90 * MINUTE_US), complete=DAY_1 + 90 * MINUTE_US)
    assert [job.table for job in bench.run_all()] == ["j"]
    bench.load("d/2", feed="g")
    (job,) = bench.run_all()
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1, DAY_1 + 2 * HOUR_US)]
    assert job.edge_us == DAY_1 + 90 * MINUTE_US


def test_views_of_dimensions_are_made_anew_as_a_whole() -> None:
    feeds = [Feed("g", mode="snapshot", timed=False), Feed("h", timed=False)]
    tables = [base("d", "g", "none"), base("e", "h", "none"), Table("v", sources=(Source("d"), Source("e")))]
    bench = Bench(feeds, tables)
    bench.load("d/1", feed="g")
    assert not bench["v"].needs  # one of its sources does not exist yet
    bench.load("e/1", feed="h")
    (job,) = bench.run_all()
    assert job.edge_us is None and job.reflects == (("d", 1), ("e", 2))
    assert PartitionSet.of(*((piece.start_us, piece.end_us) for piece in job.pieces)) == EVERYTHING


# Promises


def test_a_promise_holds_once_every_earlier_file_is_loaded() -> None:
    bench = Bench([Feed("f", punctuated=True)], [base(), Table("h", "hour", sources=HOURS.sources, priority=1e-6)])
    bench.file("a/1")
    bench.emit(PunctuationArrived(bench.later(), "f", DAY_1 + HOUR_US))
    assert bench["a"].edge_us is None
    job = bench.start("a")
    bench.file("a/2")
    bench.emit(PunctuationArrived(bench.later(), "f", DAY_1 + 2 * HOUR_US))
    assert bench["a"].edge_us is None
    bench.finish(job, (DAY_1, DAY_1 + 5))
    assert bench["a"].edge_us == DAY_1 + HOUR_US
    assert bench["h"].seen_us == DAY_1 + HOUR_US
    bench.finish(bench.start("a"), (DAY_1 + HOUR_US, DAY_1 + HOUR_US + 5))
    assert bench["a"].edge_us == DAY_1 + 2 * HOUR_US


def test_a_later_file_that_is_put_aside_does_not_stand_for_an_earlier_one() -> None:
    bench = Bench([Feed("f", punctuated=True)], [base()])
    bench.file("a/1")
    bench.emit(PunctuationArrived(bench.later(), "f", DAY_1 + HOUR_US))
    bad = bench.file("a/2")
    bench.emit(FileQuarantined(bench.later(), "f", bad, "bad"))
    assert bench["a"].edge_us is None
    bench.finish(bench.start(), (DAY_1, DAY_1 + 5))
    assert bench["a"].edge_us == DAY_1 + HOUR_US


def test_a_file_that_came_again_while_it_was_loaded_is_one_file_when_the_load_fails() -> None:
    bench = Bench([Feed("f", punctuated=True)], [base()])
    bench.file("a/1")
    job = bench.start()
    bench.file("a/1", checksum="newer")
    bench.emit(PunctuationArrived(bench.later(), "f", DAY_1 + HOUR_US))
    bench.fail(job)
    assert bench["a"].edge_us is None
    assert [file.checksum for file in bench["a"].files.values()] == ["newer"]
    bench.later(10 * SECOND_US)
    bench.finish(bench.start(), (DAY_1, DAY_1 + 5))
    assert bench["a"].edge_us == DAY_1 + HOUR_US


def test_many_promises_without_files_are_one() -> None:
    bench = Bench([Feed("f", punctuated=True)], [base()])
    bench.file("a/1")
    for minute in range(100):
        bench.emit(PunctuationArrived(bench.later(), "f", DAY_1 + minute * MINUTE_US))
    assert len(bench["a"].promises) == 1


# Files


def test_content_that_came_while_the_old_was_loaded_replaces_it() -> None:
    """The old rows are in the table once the load ends; its partitions must be made again from the files."""
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    job = bench.start()
    newer = bench.file("a/1", checksum="newer")
    bench.finish(job, (DAY_1, DAY_1 + 5), complete=DAY_1 + 5)
    again = bench.start()
    assert again.files == (newer,)
    assert [(piece.start_us, piece.end_us) for piece in again.pieces] == [(DAY_1, DAY_1 + HOUR_US)]


def test_a_rewritten_file_restates_the_partitions_that_it_was_in() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 3 * HOUR_US), complete=DAY_1 + 3 * HOUR_US)
    bench.run_all()
    file = FeedFile("a/1", "newer", 10, bench.later())
    bench.emit(FileRewritten(bench.now, "f", file, ((DAY_1 + 70 * MINUTE_US, DAY_1 + 80 * MINUTE_US),)))
    job = bench.start("a")
    assert job.files == (file,)
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1 + HOUR_US, DAY_1 + 2 * HOUR_US)]
    bench.finish(job, (DAY_1 + HOUR_US, DAY_1 + 2 * HOUR_US), append=False)
    (job,) = bench.run_all()
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1 + HOUR_US, DAY_1 + 2 * HOUR_US)]
    assert job.complete_us == DAY_1 + 3 * HOUR_US


def test_files_that_restate_partitions_are_loaded_one_by_one() -> None:
    bench = Bench([Feed("f", mode="snapshot")], [base(partition="day")])
    first, second = bench.file("a/1", size=300), bench.file("a/2", size=500)
    job = bench.start()
    assert (job.files, job.amount) == ((first,), 300.0)
    bench.finish(job, (DAY_1, DAY_1 + DAY_US), complete=DAY_1 + DAY_US)
    job = bench.start()
    assert (job.files, job.amount) == ((second,), 500.0)


def test_a_file_that_is_found_bad_while_it_is_loaded_does_not_come_back() -> None:
    bench = Bench([Feed("f")], [base()])
    bad = bench.file("a/1")
    job = bench.start()
    bench.emit(FileQuarantined(bench.later(), "f", bad, "not CSV"))
    bench.fail(job)
    assert not bench["a"].files
    assert list(bench.controller.state.quarantine) == ["a/1"]
    bench.file("a/1", checksum="mended")
    assert not bench.controller.state.quarantine and list(bench["a"].files) == ["a/1"]


def test_a_time_at_the_end_of_all_calendars_is_a_partition_too() -> None:
    """9999-12-31 for "never" is common in real data."""
    never = parse_instant("9999-12-31")
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 5), complete=DAY_1 + HOUR_US)
    bench.run_all()
    bench.load("a/2", (never, never + 1), complete=never + 1)
    (job,) = bench.run_all()
    assert job.complete_us == never + 1
    assert job.pieces[0].start_us <= never < job.pieces[-1].end_us


# Decisions and what happens meanwhile


def test_a_change_between_a_decision_and_its_record_is_not_lost() -> None:
    bench = Bench([Feed("f")], [base(), HOURS], tracks=2)
    bench.load("a/1", (DAY_1, DAY_1 + 30 * MINUTE_US), complete=DAY_1 + 30 * MINUTE_US)
    bench.file("a/2")
    at = bench.controller.state.applied
    load, view = sorted(bench.controller.decide(bench.later()), key=lambda command: command.job.table)
    bench.emit(UpdateStarted(load.at_us, load.job, load.track, load.why, at))
    bench.finish(
        load.job,
        (DAY_1 + 1, DAY_1 + 2),
        (DAY_1 + 40 * MINUTE_US, DAY_1 + 50 * MINUTE_US),
        complete=DAY_1 + 50 * MINUTE_US,
    )
    bench.emit(UpdateStarted(view.at_us, view.job, view.track, view.why, at))
    ((start, end, need),) = bench["h"].needs.pieces()
    assert (start, end) == (DAY_1, DAY_1 + HOUR_US)
    assert need.since == view.job.pin + 1 and need.edge_us == view.job.edge_us and need.late
    bench.finish(view.job, (DAY_1, DAY_1 + 30 * MINUTE_US), complete=view.job.complete_us)
    (again,) = bench.run_all()
    assert again.edge_us == again.complete_us == DAY_1 + 50 * MINUTE_US


def test_logic_that_changes_while_a_job_runs_is_applied_after_it() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 2 * HOUR_US), complete=DAY_1 + 2 * HOUR_US)
    job = bench.start("h")  # the first one: the table does not exist yet
    bench.declare([Feed("f")], [base(), Table("h", "hour", sources=(Source("a", SAME),), logic="new")])
    bench.finish(job, (DAY_1, DAY_1 + 2 * HOUR_US), complete=job.complete_us)
    (again,) = bench.run_all()
    assert PartitionSet.of(*((p.start_us, p.end_us) for p in again.pieces)) == PartitionSet.of(
        (DAY_1, DAY_1 + 2 * HOUR_US)
    )


def test_another_partitioning_makes_everything_anew_in_the_new_one() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 2 * HOUR_US), complete=DAY_1 + 2 * HOUR_US)
    bench.run_all()
    bench.declare([Feed("f")], [base(), Table("h", "day", sources=(Source("a", SAME),))])
    (job,) = bench.run_all()
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1, DAY_1 + DAY_US)]


def test_the_track_of_a_table_that_is_gone_is_busy_until_its_job_ends() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 2 * HOUR_US), complete=DAY_1 + 2 * HOUR_US)
    job = bench.start("h")
    bench.declare([Feed("f")], [base()])
    bench.file("a/2")
    assert bench.controller.decide(bench.later()) == []
    bench.declare([Feed("f")], [base(), HOURS], tracks=2)  # back again: still only one writer at a time
    assert [command.job.table for command in bench.controller.decide(bench.later())] == ["a"]
    bench.finish(job, complete=DAY_1)
    assert {command.job.table for command in bench.controller.decide(bench.later())} == {"a", "h"}


def test_a_view_without_rows_does_not_stop_its_readers() -> None:
    bench = Bench([Feed("f")], [base(), HOURS, Table("d", "day", sources=(Source("h", SAME),))])
    bench.load("a/1", (DAY_1, DAY_1 + 2 * HOUR_US), complete=DAY_1 + 2 * HOUR_US)
    job = bench.start("h")
    bench.finish(job, complete=job.complete_us)  # a filter left nothing: no rows, no begin
    assert [job.table for job in bench.run_all()] == ["d"]


def test_with_a_source_that_is_behind_a_table_goes_back_to_what_both_have() -> None:
    """Whatever was declared before: a table is the recompute of its declaration up to its edge."""
    both = Table("h", "hour", sources=(Source("a", SAME), Source("b", SAME)))
    bench = Bench([Feed("f"), Feed("g")], [base(), base("b", "g"), HOURS], tracks=1)
    bench.load("b/1", (DAY_1, DAY_1 + HOUR_US), complete=DAY_1 + HOUR_US, feed="g")
    bench.load("a/1", (DAY_1, DAY_1 + 3 * HOUR_US), complete=DAY_1 + 3 * HOUR_US)
    bench.run_all()
    bench.declare([Feed("f"), Feed("g")], [base(), base("b", "g"), both])
    (job,) = bench.run_all()
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1, DAY_1 + HOUR_US)]
    # It starts anew: what it held beyond that, from one source alone, is gone, and its edge is that of both.
    assert job.anew and bench["h"].edge_us == DAY_1 + HOUR_US and not bench["h"].needs
    bench.load("b/2", (DAY_1 + HOUR_US, DAY_1 + 3 * HOUR_US), complete=DAY_1 + 3 * HOUR_US, feed="g")
    (job,) = bench.run_all()
    assert [(piece.start_us, piece.end_us) for piece in job.pieces] == [(DAY_1 + HOUR_US, DAY_1 + 3 * HOUR_US)]
    assert bench["h"].edge_us == DAY_1 + 3 * HOUR_US


# Failures


def test_failures_wait_longer_and_longer_until_the_table_is_given_up() -> None:
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    waits = []
    for attempt in range(1, 5):
        job = bench.start()
        assert job.attempt == attempt
        bench.fail(job)
        waits.append(bench["a"].retry_at_us and (bench["a"].retry_at_us - bench.now) // SECOND_US)
        assert bench.controller.decide(bench.now) == []
        assert not bench.controller.idle or bench["a"].failed
        assert bench.controller.wake_at_us == bench["a"].retry_at_us
        bench.later(10 * SECOND_US)
    assert waits == [1, 2, 4, None]
    assert bench["a"].failed and bench.controller.idle and bench.controller.decide(bench.later()) == []
    bench.emit(TableRetried(bench.later(), "a"))
    assert [file.uri for file in bench.start().files] == ["a/1"]


def test_what_cannot_succeed_is_not_tried_again() -> None:
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    bench.fail(bench.start(), final=True)
    assert bench["a"].failed and bench.controller.wake_at_us is None


def test_a_failed_table_with_nothing_to_do_does_not_keep_the_loop_awake() -> None:
    both = Table("h", "hour", sources=(Source("a", SAME), Source("b", SAME)))
    bench = Bench([Feed("f"), Feed("g")], [base(), base("b", "g"), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + HOUR_US), complete=DAY_1 + HOUR_US)
    bench.fail(bench.start("h"))
    bench.declare([Feed("f"), Feed("g")], [base(), base("b", "g"), both])  # b has nothing: h cannot be made
    bench.later(60 * SECOND_US)
    assert bench.controller.decide(bench.now) == []
    assert bench.controller.wake_at_us is None and bench.controller.idle


def test_an_end_of_a_job_that_was_given_up_is_not_believed() -> None:
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    job = bench.start()
    bench.emit(RunStarted(bench.later(), "two"))
    bench.finish(job, (DAY_1, DAY_1 + 5), complete=DAY_1 + 5)
    assert not bench["a"].exists and list(bench["a"].files) == ["a/1"]


# Determinism


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    """Sets of names come in another order in every process; what is decided must not."""
    code = (
        "from tests.control.scenarios import Scenario\n"
        "for seed in range(6):\n"
        "    scenario = Scenario(seed); scenario.run(60); scenario.settle()\n"
        "    print(len(scenario.world.log), repr(scenario.world.log[-1]))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1 and outputs.pop().strip()


def test_nothing_is_known_before_the_beginning() -> None:
    controller = Controller()
    assert controller.idle and controller.decide(0) == [] and controller.wake_at_us is None


def test_what_comes_at_once_is_loaded_in_jobs_of_sensible_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """By files and by bytes; what is larger than that by itself is a job."""
    bench = Bench([Feed("f", MINUTE_US)], [base()])
    for number in range(7):
        bench.file(str(number))
    state, table = bench.controller.state, bench["a"]

    def cut() -> int:
        return len(files_to_load(state, table))

    assert cut() == 7
    monkeypatch.setattr(readiness, "MOST_FILES", 5)
    assert cut() == 5 and len(files_to_load(state, table, 2)) == 2
    monkeypatch.setattr(readiness, "MOST_BYTES", 399)
    assert cut() == 3
    monkeypatch.setattr(readiness, "MOST_BYTES", 50)
    assert cut() == 1
    assert bench.start().amount == 100


def test_new_content_of_a_file_comes_with_the_partitions_that_the_old_was_in() -> None:
    """However few files a job is to take: else its rows would be missing until the new content is loaded."""
    bench = Bench([Feed("f", MINUTE_US)], [base()])
    hour = (DAY_1, DAY_1 + HOUR_US)
    bench.load("1", hour, complete=DAY_1 + HOUR_US)
    for uri in ("2", "3"):
        bench.file(uri)
    again = FeedFile("1", "other", 100, bench.later())
    bench.emit(FileRewritten(bench.now, "f", again, (hour,)))
    bench.file("4")
    state, table = bench.controller.state, bench["a"]
    assert [[file.uri for file in files_to_load(state, table, take)] for take in (1, 3, 4, None)] == [
        ["2", "3", "1"],
        ["2", "3", "1"],
        ["2", "3", "1", "4"],
        ["2", "3", "1", "4"],
    ]
    assert files_to_load(load(dump(state)), load(dump(state)).tables["a"], 1) == files_to_load(state, table, 1)
    # A job that fails leaves it to the next one; once it is loaded, jobs are as small as they are to be.
    job = bench.start()
    assert [file.uri for file in job.files] == ["2", "3", "1", "4"] and job.pieces
    bench.fail(job)
    assert [file.uri for file in files_to_load(state, table, 1)] == ["2", "3", "1"]
    bench.later(MINUTE_US)
    bench.finish(bench.start(), hour, complete=DAY_1 + HOUR_US)
    assert not table.again
    for uri in ("5", "6"):
        bench.file(uri)
    assert [file.uri for file in files_to_load(state, table, 1)] == ["5"]
