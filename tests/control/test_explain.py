from __future__ import annotations

from dataclasses import replace

from penstock.control.events import RunStopped
from penstock.control.views.explain import explain
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US, MINUTE_US
from tests.control.test_state import DAY_1, HOURS, SAME, Bench, base

BOTH = Table("j", "hour", sources=(Source("a", SAME), Source("b", SAME)), target_us=10 * MINUTE_US)


def said(bench: Bench, name: str) -> str:
    return "\n".join(explain(bench.controller.state, name).lines)


def test_a_table_that_nobody_declared() -> None:
    found = explain(Bench([], []).controller.state, "nobody")
    assert found.waits is not None and "penstock run" in found.waits


def test_a_table_that_has_not_been_made() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    assert said(bench, "h").startswith("it has not been made yet\nit waits: nothing of a has come yet")
    assert explain(bench.controller.state, "h").sources[0].holds_back


def test_files_that_wait_for_their_turn() -> None:
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    bench.file("a/2")
    found = explain(bench.controller.state, "a")
    assert (found.pending_files, found.waits) == (2, "it is its turn next")
    assert "pending: 2 files to load; the oldest change is 1s old" in said(bench, "a")
    bench.emit(RunStopped(bench.later(), "one"))
    assert "no process runs the project: type `penstock run`" in said(bench, "a")


def test_why_the_last_update_ran() -> None:
    bench = Bench([Feed("f")], [base(), HOURS])
    bench.load("a/1", (DAY_1, DAY_1 + 90 * MINUTE_US), complete=DAY_1 + 90 * MINUTE_US)
    job = bench.start("h")
    assert f"{job.id} runs since" in said(bench, "h") and "gains 1h 30m of freshness" in said(bench, "h")
    bench.finish(job, (DAY_1, DAY_1 + 90 * MINUTE_US), complete=job.complete_us)
    found = explain(bench.controller.state, "h")
    assert found.last_job == job.id and found.last_why is not None and "gains 1h 30m" in found.last_why
    assert found.complete_us == DAY_1 + 90 * MINUTE_US and found.waits is None
    assert "complete up to 2024-03-01 01:30" in said(bench, "h")


def test_times_are_those_of_the_warehouse() -> None:
    hours = replace(HOURS, zone="America/New_York")
    bench = Bench([Feed("f")], [replace(base(), zone="America/New_York"), hours])
    bench.load("a/1", (DAY_1, DAY_1 + 90 * MINUTE_US), complete=DAY_1 + 90 * MINUTE_US)
    assert "complete up to 2024-02-29 20:30" in said(bench, "a")
    assert "2 partitions from 2024-02-29 19:00 to 2024-02-29 21:00" in said(bench, "h")


def test_all_tracks_are_busy() -> None:
    bench = Bench([Feed("f"), Feed("g")], [base(), base("b", "g")])
    bench.file("a/1")
    bench.start("a")
    bench.file("b/1", "g")
    assert explain(bench.controller.state, "b").waits == "all tracks are busy"


def test_which_source_holds_a_table_back() -> None:
    bench = Bench([Feed("f"), Feed("g")], [base(), base("b", "g"), BOTH])
    bench.load("a/1", (DAY_1, DAY_1 + 3 * HOUR_US), complete=DAY_1 + 3 * HOUR_US)
    bench.load("b/1", (DAY_1, DAY_1 + HOUR_US), complete=DAY_1 + HOUR_US, feed="g")
    bench.run_all()
    found = explain(bench.controller.state, "j")
    assert [source.table for source in found.sources if source.holds_back] == ["b"]
    assert [source.complete_us for source in found.sources] == [DAY_1 + 3 * HOUR_US, DAY_1 + HOUR_US]
    assert "reads b (PARTITION), complete up to 2024-03-01 01:00, which holds it back" in found.lines
    assert found.target_us == 10 * MINUTE_US and "target 10m" in found.lines[0]


def test_an_old_change_that_is_still_on_its_way() -> None:
    tables = [
        base(),
        Table("b", "hour", sources=(Source("a", SAME),), priority=0.1),
        Table("c", "hour", sources=(Source("a", SAME),), priority=9.0),
        Table("d", "hour", sources=(Source("b", SAME), Source("c", SAME)), priority=0.2),
    ]
    bench = Bench([Feed("f")], tables)
    bench.load("a/1", (DAY_1, DAY_1 + 3 * HOUR_US), complete=DAY_1 + 3 * HOUR_US)
    bench.run_all()
    bench.load("a/2", (DAY_1, DAY_1 + 5))
    job = bench.start("c")
    bench.finish(job, (DAY_1, DAY_1 + HOUR_US), complete=job.complete_us)
    found = explain(bench.controller.state, "d")
    assert found.waits == "an old change is still on its way to it through b" and found.waits_for == ("b",)
    assert found.pending == ((DAY_1, DAY_1 + HOUR_US),) and "1 partition from 2024-03-01 00:00" in said(bench, "d")
    bench.run_all()
    assert explain(bench.controller.state, "d").waits is None


def test_a_table_that_failed() -> None:
    bench = Bench([Feed("f")], [base()])
    bench.file("a/1")
    bench.fail(bench.start())
    assert explain(bench.controller.state, "a").waits == "it waits before the next try"
    bench.later(HOUR_US)
    bench.fail(bench.start(), final=True)
    found = explain(bench.controller.state, "a")
    assert found.waits is not None and "penstock retry" in found.waits
    assert found.error == "no luck" and "last with: no luck" in said(bench, "a")
