"""Whatever comes as a file, a snapshot or a request: each partition is made once for what had come, and from inputs that agree."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock.control.events import BackfillRequested, FeedPaused, UpdateFailed
from penstock.control.views.explain import explain
from penstock.control.views.requests import requests
from penstock.control.views.status import status
from penstock.model.tables import AUTO, Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_instant
from tests.control.replay import replay
from tests.control.schedule_world import World
from tests.control.test_diamonds import DIAMOND
from tests.control.test_holding import MONDAY, run

DAY_1 = parse_instant("2024-02-20")
SAME = (0, 1)


def base(name: str, partition: str = "day", **more) -> Table:
    return Table(name, partition, feed=f"f{name}", logic="x", **more)


def view(name: str, *sources: str, partition: str = "day", **more) -> Table:
    window = SAME if partition != "none" else None
    return Table(name, partition, sources=tuple(Source(source, window) for source in sources), logic="x", **more)


def warehouse(tables: list[Table], *, snapshots: bool = False, days: int = 4, tracks: int = 4) -> World:
    """Some days of each feed are loaded and all is made."""
    mode = {"mode": "snapshot"} if snapshots else {}
    feeds = [Feed(table.feed, **mode) for table in tables if table.feed is not None]
    world = World(Random(1), feeds, tables, tracks=tracks)
    for feed in world.feeds:
        world.deliver(feed, world.new_rows([DAY_1 + n * DAY_US for n in range(days)]))
    run(world)
    world.counts.clear()
    return world


def late_file(world: World, feed: str, day: int = 0) -> None:
    world.deliver(feed, world.new_rows([DAY_1 + day * DAY_US + HOUR_US]))


def start_all(world: World) -> None:
    for start in world.decide():
        world.start(start)


def finish(world: World, table: str) -> None:
    world.finish(next(job for job, (found, _, _) in world.running.items() if found.table == table))


def made(world: World) -> Counter[str]:
    found: Counter[str] = Counter()
    for (name, _), count in world.counts.items():
        found[name] += count
    return found


# What has come counts from its arrival


@pytest.mark.parametrize("patience_us", [None, 0, HOUR_US])
@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("first", ["a", "b"])
def test_late_files_of_two_base_tables_at_one_moment(first: str, snapshots: bool, patience_us: int | None) -> None:
    partition = "none" if snapshots else "day"
    tables = [
        base("a", partition),
        base("b", partition),
        view("child", "a", "b", partition=partition, patience_us=patience_us),
        view("last", "child", partition=partition),
    ]
    world = warehouse(tables, snapshots=snapshots)
    for feed in ("fa", "fb"):
        late_file(world, feed)
    start_all(world)
    finish(world, first)
    start_all(world)
    assert "child" not in {job.table for job, _, _ in world.running.values()}
    told = explain(world.state, "child")
    assert told.waits is not None and told.waits_for == ("b" if first == "a" else "a",)
    run(world)
    assert made(world) == {"child": 1, "last": 1}
    assert replay(world.log) == []


def test_a_file_that_waits_for_its_load_counts_too() -> None:
    """One track: the second file is not even being loaded when the child could run."""
    world = warehouse([base("a"), base("b"), view("child", "a", "b")], tracks=1)
    for feed in ("fa", "fb"):
        late_file(world, feed)
    run(world)
    assert made(world) == {"child": 1}


def test_what_comes_after_the_first_reason_is_not_waited_for() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    late_file(world, "fa")
    start_all(world)
    finish(world, "a")
    late_file(world, "fb")
    assert {start.job.table for start in world.decide()} == {"b", "child"}


def test_an_older_file_counts_by_its_arrival_also_when_it_is_loaded() -> None:
    """The file of b came first, is loaded last, and has one more table to pass: the child has heard of a before the load
    of b was committed, but not before the file came."""
    world = warehouse([base("a"), base("b"), view("b2", "b"), view("child", "a", "b2")])
    for feed in ("fb", "fa"):
        late_file(world, feed)
    start_all(world)
    finish(world, "a")
    finish(world, "b")
    start_all(world)
    assert {job.table for job, _, _ in world.running.values()} == {"b2"}
    run(world)
    assert made(world) == {"b2": 1, "child": 1}


def test_a_file_that_gets_other_content_while_it_waits_came_when_it_first_came() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    for feed in ("fb", "fa"):
        late_file(world, feed)
    (uri,) = world.state.tables["b"].files
    start_all(world)
    world.fail_rate = 1.0
    finish(world, "b")
    world.fail_rate = 0.0
    finish(world, "a")
    world.deliver("fb", world.new_rows([DAY_1 + HOUR_US]), uri)
    run(world)
    assert made(world) == {"child": 1}


def test_a_file_that_got_other_content_still_came_when_it_first_came_once_it_is_loaded() -> None:
    """Also for who hears of it by one way, and of a request that came between the two contents by another."""
    world = warehouse([base("a"), base("b"), view("b2", "b"), view("child", "a", "b2")])
    late_file(world, "fb")
    (uri,) = world.state.tables["b"].files
    world.emit(BackfillRequested(world.tick(), "child", ((DAY_1, DAY_1 + DAY_US),)))
    world.deliver("fb", world.new_rows([DAY_1 + HOUR_US]), uri)
    start_all(world)
    finish(world, "b")
    assert {start.job.table for start in world.decide()} == {"b2"}
    run(world)
    assert made(world) == {"b2": 1, "child": 1}


def test_a_file_that_is_rewritten_again_and_again_does_not_keep_a_queue_open() -> None:
    world = warehouse([base("a", queue_us=10 * MINUTE_US)])
    late_file(world, "fa")
    came, uri = world.now, next(reversed(world.newest))
    for minutes in (3, 6, 9):
        world.now = came + minutes * MINUTE_US
        world.deliver("fa", world.new_rows([DAY_1 + HOUR_US]), uri)
    assert not world.decide()
    assert world.controller.wake_at_us == came + 10 * MINUTE_US
    assert replay(world.log) == []


def test_a_file_that_is_withdrawn_while_its_load_fails_is_not_loaded() -> None:
    world = warehouse([base("a"), view("child", "a")])
    late_file(world, "fa")
    start_all(world)
    world.withdraw(next(reversed(world.newest)))
    world.fail_rate = 1.0
    finish(world, "a")
    world.fail_rate = 0.0
    before = len(world.log)
    run(world)
    assert [event.job.files for _, event in world.log[before:] if event.kind == "update-started"] == [()]
    assert replay(world.log) == []


def test_nobody_waits_for_files_of_a_table_that_failed_or_of_a_feed_that_is_paused() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    for feed in ("fa", "fb"):
        late_file(world, feed)
    start_all(world)
    finish(world, "a")
    world.fail_rate = 1.0
    while not world.state.tables["b"].failed:
        finish(world, "b")
        if (again := world.state.tables["b"].retry_at_us) is not None:
            assert "child" not in {start.job.table for start in world.decide()}
            world.now = max(world.now, again)
            for start in world.decide():
                if start.job.table == "b":
                    world.start(start)
    assert "child" in {start.job.table for start in world.decide()}


def test_nobody_waits_for_what_is_asked_of_a_table_whose_feed_is_paused() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    world.emit(FeedPaused(world.tick(), "fb"))
    for table in "ba":
        world.emit(BackfillRequested(world.tick(), table, ((DAY_1, DAY_1 + DAY_US),)))
    assert run(world, wake=False) == ["a", "child"]


def test_nobody_waits_for_a_table_that_is_made_with_one_that_failed() -> None:
    tables = [base("a"), view("b", "a", group="g"), view("c", "a", group="g"), view("child", "a", "b")]
    world = warehouse(tables)
    world.emit(BackfillRequested(world.tick(), "c", ((DAY_1, DAY_1 + DAY_US),)))
    start_all(world)
    (job,) = world.running
    world.running.clear()
    world.emit(UpdateFailed(world.tick(), job, "c", "no luck", 1.0, final=True))
    late_file(world, "fa")
    assert run(world, wake=False) == ["a", "child"]


def test_a_load_that_takes_very_long_is_not_waited_for_forever() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    for feed in ("fa", "fb"):
        late_file(world, feed)
    start_all(world)
    finish(world, "a")
    assert not world.decide()
    until = world.controller.wake_at_us
    assert until is not None and world.now < until <= world.now + HOUR_US
    world.now = until - 1
    assert not world.decide()
    world.now = until
    (start,) = world.decide()
    assert start.job.table == "child"
    # And it is known that it went without something.
    assert "b" in start.why


# Inputs that agree


@pytest.mark.parametrize("first", ["b", "c"])
def test_changes_that_overlap_in_a_diamond(first: str) -> None:
    """One way has taken the first and the second change, the other one only the first."""
    other = "c" if first == "b" else "b"
    world = World(Random(1), [Feed("f")], DIAMOND, tracks=4)
    world.deliver("f", world.new_rows([DAY_1 + n * HOUR_US for n in range(5)]))
    run(world)
    world.counts.clear()
    world.deliver("f", world.new_rows([DAY_1 + 1]))
    start_all(world)
    finish(world, "a")
    (slow,) = [start for start in world.decide() if start.job.table == other]
    world.start(replace(slow, job=replace(slow.job, id="slow")))
    world.deliver("f", world.new_rows([DAY_1 + 2]))
    (load,) = [start for start in world.decide() if start.job.table == "a"]
    world.start(load)
    world.finish(load.job.id)
    start_all(world)
    finish(world, first)  # has both
    finish(world, other)  # has the first
    starts = world.decide()
    assert [start.job.table for start in starts] == [other]
    before = len(world.published)
    run(world)
    assert made(world) == {first: 1, other: 2, "d": 1}
    assert all(reflects is not None for name, _, _, reflects in world.published[before:] if name == "d")


def test_changes_that_overtake_each_other_for_ever_are_not_waited_for_for_ever() -> None:
    """The two ways never agree, as one is always a change ahead: after a while the bottom is made all the same, and says so."""
    world = World(Random(1), [Feed("f")], DIAMOND, tracks=4)
    world.deliver("f", world.new_rows([DAY_1 + n * HOUR_US for n in range(5)]))
    run(world)
    world.counts.clear()
    began, reasons, jobs = world.now, [], []
    for turn in range(400):
        if not world.state.tables["a"].files:
            world.deliver("f", world.new_rows([DAY_1 + 10 + turn]))
        for start in world.decide():
            world.start(start)
            if start.job.table == "d":
                reasons.append(start.why)
                jobs.append(start.job)
        running = {job.table: identity for identity, (job, _, _) in world.running.items()}
        turns = ("a", "b", "a", "c", "d")
        if (table := turns[turn % len(turns)]) in running:
            world.finish(running[table])
    assert made(world)["d"] >= (world.now - began) // (30 * MINUTE_US)
    disagree = [why for why, job in zip(reasons, jobs, strict=True) if job.reflects is None]
    assert all("waited" in why for why in disagree)


# Known times


def test_two_restatements_in_one_window() -> None:
    """Both are restated at 1:00; the one comes some minutes after the other."""
    tables = [
        base("a", restated="Mon 01:00"),
        base("b", restated="Mon 01:00"),
        view("both", "a", "b"),
        view("last", "both"),
    ]
    world = warehouse(tables)
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.1, 1.0, 0.0
    world.now = MONDAY + 2 * MINUTE_US
    for table in ("a", "b"):
        world.emit(BackfillRequested(world.tick(), table, ((DAY_1, DAY_1 + DAY_US),)))
        done = run(world, wake=False)
        assert done == (["a"] if table == "a" else ["b", "both", "last"])
        world.now += 5 * MINUTE_US
    # The window is over: the next one is a week away.
    world.now = MONDAY + HOUR_US
    world.emit(BackfillRequested(world.tick(), "a", ((DAY_1, DAY_1 + DAY_US),)))
    assert run(world, wake=False) == ["a", "both", "last"]


def test_the_window_of_one_that_has_come_is_over() -> None:
    tables = [base("a", restated="Mon 01:00..02:00"), base("b"), view("both", "a", "b")]
    world = warehouse(tables)
    world.now = MONDAY + 2 * MINUTE_US
    world.emit(BackfillRequested(world.tick(), "a", ((DAY_1, DAY_1 + DAY_US),)))
    assert run(world, wake=False) == ["a", "both"]
    world.emit(BackfillRequested(world.tick(), "b", ((DAY_1, DAY_1 + DAY_US),)))
    assert run(world, wake=False) == ["b", "both"]


# Many requests


def test_a_request_costs_the_same_however_many_are_open() -> None:
    """Counted in calls, from its coming to the end of its first update."""

    def calls(opened: int) -> int:
        tables = [base("a"), *(view(f"v{n}", "a" if n < 8 else f"v{n // 8}") for n in range(opened + 1))]
        world = warehouse(tables, days=1)
        for n in range(opened):
            world.emit(BackfillRequested(world.now, f"v{n}", ((DAY_1, DAY_1 + DAY_US),)))
        (start,) = [start for start in world.decide() if start.job.table == "v0"]
        counted = 0

        def count(_frame: object, event: str, _arg: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            world.emit(BackfillRequested(world.now, f"v{opened}", ((DAY_1, DAY_1 + DAY_US),)))
            world.start(start)
            world.finish(start.job.id)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(200) < 1.2 * calls(40)


def test_requests_that_share_work_say_so() -> None:
    tables = [base("a"), *(view(f"v{n}", "a" if n < 8 else f"v{n // 8}") for n in range(60))]
    world = warehouse(tables)
    for n in range(40):
        world.emit(BackfillRequested(world.tick(), f"v{n}", ((DAY_1, DAY_1 + DAY_US),)))
    found = {request.request: request for request in requests(world.state)}
    numbers = sorted(found)
    # v1 is read by v8 .. v15, and nothing else leads there.
    assert found[numbers[1]].merged_with == tuple(numbers[n] for n in range(8, 16))
    assert found[numbers[9]].merged_with == (numbers[1],)
    assert found[numbers[0]].merged_with == ()
    run(world)
    assert all(request.stage == "done" for request in requests(world.state))
    assert set(made(world).values()) == {1}


def test_merged_is_what_needed_no_update_of_its_own() -> None:
    """Five equal requests for a table of which each job makes one partition."""
    world = warehouse([base("a"), view("child", "a", chop=1)])
    before = next(row for row in status(world.state, world.now) if row.table == "child").merged
    for _ in range(5):
        world.emit(BackfillRequested(world.tick(), "child", ((DAY_1, DAY_1 + 3 * DAY_US),)))
    run(world)
    assert made(world) == {"child": 3}
    assert next(row for row in status(world.state, world.now) if row.table == "child").merged - before == 4


def test_a_request_past_its_deadline_is_not_kept_waiting() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b")])
    late_file(world, "fb")
    start_all(world)
    day = ((DAY_1, DAY_1 + DAY_US),)
    world.emit(BackfillRequested(world.tick(), "a", day, deadline_us=world.now + 2 * SECOND_US))
    start_all(world)
    finish(world, "a")
    assert "child" in {start.job.table for start in world.decide()}


# A queue


def test_a_base_table_collects_files_and_requests() -> None:
    world = warehouse([base("a", queue_us=10 * MINUTE_US), view("child", "a")])
    late_file(world, "fa")
    came = world.now
    assert not world.decide() and not world.controller.idle
    told = explain(world.state, "a").waits
    assert told is not None and told.startswith("further files may come")
    world.now = came + 5 * MINUTE_US
    late_file(world, "fa", 1)
    world.emit(BackfillRequested(world.tick(), "a", ((DAY_1, DAY_1 + DAY_US),)))
    assert not world.decide()
    assert world.controller.wake_at_us == came + 10 * MINUTE_US
    assert run(world) == ["a", "child"]
    assert world.now >= came + 10 * MINUTE_US
    assert made(world) == {"child": 2}  # two days, each once
    assert replay(world.log) == []


def test_a_view_collects_late_changes_and_no_new_rows() -> None:
    world = warehouse([base("a"), view("child", "a", queue_us=10 * MINUTE_US)])
    late_file(world, "fa")
    assert run(world, wake=False) == ["a"]
    told = explain(world.state, "child").waits
    assert told is not None and told.startswith("further changes are collected until 2024-")
    world.deliver("fa", world.new_rows([DAY_1 + 5 * DAY_US]))
    assert run(world, wake=False) == ["a", "child"]
    assert {start for name, start in world.counts if name == "child"} == {DAY_1 + n * DAY_US for n in (3, 4, 5)}
    late_file(world, "fa")
    assert run(world) == ["a", "child"]
    assert world.counts["child", DAY_1] == 1


@pytest.mark.parametrize("target_us, waits", [(5 * MINUTE_US, True), (2 * SECOND_US, False)])
def test_a_queue_puts_no_target_below_at_risk(target_us: int, waits: bool) -> None:
    world = warehouse([base("a", queue_us=HOUR_US), view("child", "a", target_us=target_us)])
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.1, 1.0, 0.0
    late_file(world, "fa")
    came = world.now
    assert bool(world.decide()) != waits
    if waits:
        until = world.controller.wake_at_us
        assert until is not None and came < until < came + target_us - 2 * SECOND_US
        run(world)
        assert world.now <= came + target_us + 90 * SECOND_US  # updates of this world end when they like


def test_a_queue_whose_length_is_chosen_takes_what_targets_leave() -> None:
    """The target of five minutes, less two passes of a and child, which take a second each; no target, no queue."""
    for target_us, waits in ((5 * MINUTE_US, True), (3 * SECOND_US, False), (None, False)):
        world = warehouse([base("a", queue_us=AUTO), view("child", "a", target_us=target_us)])
        for table in world.state.tables.values():
            table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.0, 1.0, 0.0
        late_file(world, "fa")
        came = world.now
        assert bool(world.decide()) != waits
        if waits:
            until = world.controller.wake_at_us
            assert until == came + 5 * MINUTE_US - 4 * SECOND_US
            late_file(world, "fa", 1)
            assert run(world) == ["a", "child"]
            assert made(world) == {"child": 2}


def test_what_runs_is_waited_for_though_more_is_collected_behind_it() -> None:
    world = warehouse([base("a"), base("b", queue_us=AUTO), view("child", "a", "b", target_us=10 * MINUTE_US)])
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.1, 1.0, 0.0
    late_file(world, "fb")
    assert not world.decide()
    world.now = world.controller.wake_at_us
    start_all(world)
    late_file(world, "fa")
    start_all(world)
    late_file(world, "fb", 1)
    assert {job.table for job, _, _ in world.running.values()} == {"a", "b"}
    finish(world, "a")
    assert "child" not in {start.job.table for start in world.decide()}
    finish(world, "b")
    assert "child" in {start.job.table for start in world.decide()}


def test_a_wait_for_overtaking_changes_is_not_over_before_a_queue_on_their_way() -> None:
    """The child has heard of the file of a when that of b comes, which is in b at once and in c after twenty minutes."""
    tables = [base("a"), base("b"), view("c", "b", queue_us=20 * MINUTE_US), view("child", "a", "b", "c")]
    world = warehouse(tables)
    world.emit(BackfillRequested(world.tick(), "child", ((DAY_1, DAY_1 + DAY_US),)))
    start_all(world)
    for table in "ab":
        late_file(world, f"f{table}")
        start_all(world)
        finish(world, table)
    finish(world, "child")
    run(world)
    assert made(world) == {"c": 1, "child": 2}


def test_who_makes_a_table_for_us_is_told_what_it_no_longer_waits_for() -> None:
    world = warehouse([base("a"), base("b"), view("child", "a", "b", external="files")])
    for feed in ("fa", "fb"):
        late_file(world, feed)
    start_all(world)
    finish(world, "a")
    assert not world.decide()
    world.now = world.controller.wake_at_us
    (order,) = world.decide()
    assert order.job.table == "child" and order.why.endswith("it waited long enough for what comes through b")


def test_new_rows_at_the_edge_do_not_wait_with_what_is_patient() -> None:
    """Also where the partition at the edge is to be made anew."""
    world = warehouse([base("a"), base("b"), view("child", "a", "b", patience_us=HOUR_US)])
    for table in world.state.tables.values():
        table.cost.spread_s, table.cost.alpha_s, table.cost.beta_s = 0.1, 1.0, 0.0
    tables = [replace(t, logic="y") if t.name == "child" else t for t in world.tables.values()]
    for feed in ("fa", "fb"):
        world.deliver(feed, world.new_rows([DAY_1 + 4 * DAY_US]))
    start_all(world)
    for table in "ab":
        finish(world, table)
    world.declare(list(world.feeds.values()), tables)
    world.deliver("fb", world.new_rows([DAY_1 + HOUR_US]))
    (start,) = [start for start in world.decide() if start.job.table == "child"]
    assert start.job.pieces[-1].end_us > DAY_1 + 4 * DAY_US


def test_old_partitions_are_not_taken_for_the_edge_because_they_have_the_same_need() -> None:
    """Of a table that is declared anew all days are to be made, and only the last is at the edge."""
    world = warehouse([base("a"), view("child", "a", queue_us=10 * MINUTE_US)])
    world.deliver("fa", world.new_rows([DAY_1 + n * DAY_US for n in (0, 1, 2, 3, 4)]))
    start_all(world)
    tables = [replace(t, logic="y") if t.name == "child" else t for t in world.tables.values()]
    finish(world, "a")
    world.declare(list(world.feeds.values()), tables)
    (start,) = world.decide()
    assert start.job.pieces[0].start_us == DAY_1 + 3 * DAY_US
    run(world)
    assert all(count == 1 for (_, start_us), count in world.counts.items() if start_us < DAY_1 + 3 * DAY_US)


def test_a_queue_does_not_keep_a_deadline_waiting() -> None:
    world = warehouse([base("a"), view("child", "a", queue_us=HOUR_US)])
    world.emit(BackfillRequested(world.tick(), "child", ((DAY_1, DAY_1 + DAY_US),), deadline_us=world.now + SECOND_US))
    assert [start.job.table for start in world.decide()] == ["child"]
