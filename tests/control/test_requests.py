"""Requests of users and policies of tables, case by case. Random histories are in test_random_schedules.py."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.control.events import (
    BackfillRequested,
    RequestCancelled,
    UpdateFailed,
    UpdateStarted,
    UpdateStopped,
    WarehouseDeclared,
)
from penstock.control.snapshot import dump, load
from penstock.control.views.explain import explain
from penstock.control.views.inputs import absent_inputs
from penstock.control.views.requests import forecast, requests
from penstock.control.views.status import status
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US
from penstock.requests.needs import partitions_of
from penstock.scheduling.chopping import Cut
from tests.control.replay import replay
from tests.control.scenarios import Scenario, check_at_rest
from tests.control.test_diamonds import DAY_1, DEEP, DIAMOND, base, scenario, view
from tests.control.test_diamonds import load as deliver

CHAIN = [base(), view("b", "a"), view("c", "b")]


def hours(*numbers: int) -> tuple[tuple[int, int], ...]:
    return PartitionSet.of(*((DAY_1 + n * HOUR_US, DAY_1 + (n + 1) * HOUR_US) for n in numbers)).intervals


def ask(run: Scenario, table: str, *numbers: int, **more) -> int:
    run.world.emit(BackfillRequested(run.world.tick(), table, hours(*numbers), **more))
    return len(run.world.log)


def counted(run: Scenario, before: dict) -> dict[str, list[int]]:
    """Of each table the hours that were made since, each as often as it was."""
    found: dict[str, list[int]] = {}
    for (name, start), count in run.world.counts.items():
        hour = (start - DAY_1) // HOUR_US
        found.setdefault(name, []).extend([hour] * (count - before.get((name, start), 0)))
    return {name: sorted(made) for name, made in sorted(found.items()) if made}


def ready(tables: list[Table], seed: int = 1, upto: int = 8, feeds: list[Feed] | None = None) -> Scenario:
    run = scenario(seed, tables, feeds)
    deliver(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(upto)))
    return run


def settle(run: Scenario) -> dict[str, list[int]]:
    before = dict(run.world.counts)
    run.settle()
    check_at_rest(run.world)
    return counted(run, before)


def start(run: Scenario, table: str) -> str:
    """Start what is decided; the job of a table."""
    for event in run.world.decide():
        run.world.start(event)
    return next(job for job, (found, _, _) in run.world.running.items() if found.table == table)


def stage(run: Scenario, number: int) -> str:
    return next(each.stage for each in requests(run.world.state) if each.request == number)


# Merging


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("order", [("b", "a"), ("a", "b"), ("d", "b", "a"), ("d", "a"), ("c", "b", "a", "d")])
def test_overlapping_backfills_make_each_partition_once_in_any_order(seed: int, order: tuple[str, ...]) -> None:
    """Hours 1-4 and 3-6 and so on; whoever asked first, a table below waits for what comes to it from above."""
    run = ready(DIAMOND, seed)
    edges = {name: table.edge_us for name, table in run.world.state.tables.items()}
    asked = [ask(run, table, *range(1 + n, 5 + n)) for n, table in enumerate(order)]
    made = settle(run)
    assert all(len(set(times)) == len(times) for times in made.values()), made
    below_all = sorted({hour for n in range(len(order)) for hour in range(1 + n, 5 + n)})
    assert made["d"] == below_all
    assert {stage(run, number) for number in asked} == {"done"}
    # A backfill does not make anything look fresher.
    assert {name: table.edge_us for name, table in run.world.state.tables.items()} == edges


def test_a_request_that_a_running_job_fulfils_adds_nothing() -> None:
    run = ready(CHAIN)
    first = ask(run, "b", 1, 2, 3)
    job = start(run, "b")
    second = ask(run, "b", 2, 3, 4)
    (third,) = requests(run.world.state)[:1]
    assert third.request == second and third.merged_with == (first,)
    assert stage(run, first) == stage(run, second) == "running"
    before = dict(run.world.counts)
    run.world.finish(job)
    run.settle()
    assert counted(run, before) == {"b": [1, 2, 3, 4], "c": [1, 2, 3, 4]}
    assert stage(run, first) == stage(run, second) == "done"


def test_a_request_between_a_decision_and_its_start_adds_nothing() -> None:
    run = ready(CHAIN)
    first = ask(run, "b", 1, 2)
    (decided,) = run.world.decide()
    second = ask(run, "b", 2)
    run.world.start(decided)
    assert not run.world.state.tables["b"].needs
    assert settle(run) == {"b": [1, 2], "c": [1, 2]}
    assert stage(run, first) == stage(run, second) == "done"


def test_a_request_joins_a_running_job_that_then_fails() -> None:
    run = ready(CHAIN)
    ask(run, "b", 1, 2)
    job = start(run, "b")
    second = ask(run, "b", 2)
    run.world.running.pop(job)
    run.world.emit(UpdateFailed(run.world.tick(), job, "b", "no luck"))
    assert stage(run, second) == "waiting"  # for the next try
    assert settle(run)["b"] == [1, 2]
    assert stage(run, second) == "done"


def test_a_failed_job_is_tried_again_with_the_same_inputs_or_gives_way_to_a_newer_request() -> None:
    run = ready(CHAIN)
    world = run.world

    def fail(final: bool = False):
        job = world.running.pop(start(run, "b"))[0]
        world.emit(UpdateFailed(world.tick(), job.id, "b", "no luck", final=final))
        world.now += 10 * HOUR_US
        return job

    ask(run, "b", 1)
    first, second = fail(), fail()
    # Nothing came meanwhile: the same partitions of the same snapshot again.
    assert (first.pieces, first.pin, first.edge_us) == (second.pieces, second.pin, second.edge_us)
    assert second.attempt == 2
    # A newer request is merged with it, and one job does both.
    ask(run, "b", 2)
    merged = fail(final=True)
    assert [piece.start_us for piece in merged.pieces] == [DAY_1 + HOUR_US, DAY_1 + 2 * HOUR_US]
    assert world.state.tables["b"].failed and not world.decide()
    # Even when it was given up: who asks again wants it tried again.
    ask(run, "b", 3)
    assert settle(run) == {"b": [1, 2, 3], "c": [1, 2, 3]}


def test_a_life_time_roll_up_follows_from_the_first_partition_on() -> None:
    run = ready(
        [base(), Table("s", "hour", sources=(Source("a", (0, 1)), Source("s", (-1, 0)))), view("t", "s")], upto=5
    )
    number = ask(run, "s", 1)
    planned = forecast(run.world.state).campaign
    made = settle(run)
    assert made == {"s": [1, 2, 3, 4], "t": [1, 2, 3, 4]} and planned.updates == 8
    assert requests(run.world.state)[0].made == 8 and stage(run, number) == "done"


def test_the_edge_comes_before_the_history() -> None:
    """A table that is made piece by piece does not keep new rows waiting for a long backfill."""
    run = ready([base(), view("b", "a", chop=2)], upto=20)
    ask(run, "b", *range(15))
    run.world.deliver("f", run.world.new_rows([DAY_1 + 20 * HOUR_US + 1]))
    while not run.world.running or "b" not in {job.table for job, _, _ in run.world.running.values()}:
        for event in run.world.decide():
            run.world.start(event)
        for name, (job, _, _) in list(run.world.running.items()):
            if job.table == "a":
                run.world.finish(name)
    while run.world.state.tables["b"].edge_us <= DAY_1 + 20 * HOUR_US:
        job = next(job for job, _, _ in run.world.running.values())
        run.world.finish(job.id)
        start(run, "b")
    assert len([n for _, _, n in run.world.state.tables["b"].needs.pieces()]) >= 1
    assert run.world.state.tables["b"].needs.domain().count(run.world.tables["b"].grain) >= 8


# Only this, cancelled


def test_only_this_table() -> None:
    run = ready(CHAIN)
    number = ask(run, "b", 2, downstream=False)
    assert settle(run) == {"b": [2]}
    c = run.world.state.tables["c"]
    assert c.held.domain().intervals == hours(2)
    (row,) = (row for row in status(run.world.state) if row.table == "c")
    assert row.inconsistent == row.held == hours(2) and row.doing == "idle"
    (why,) = (line for line in explain(run.world.state, "c").lines if "not reflect" in line)
    assert why.startswith(f"1 partition does not reflect all changes: request {number} was about other tables only")
    assert requests(run.world.state)[0].held == 1 and stage(run, number) == "done"
    # It is told again and again what is declared, and still waits for another reason.
    run.world.declare(list(run.world.feeds.values()), list(run.world.tables.values()))
    assert settle(run) == {}
    # A late row of the same hour takes it along.
    run.world.deliver("f", run.world.new_rows([DAY_1 + 2 * HOUR_US + 7]))
    assert settle(run) == {"b": [2], "c": [2]}
    assert not c.held


def test_cancelling_drops_what_only_this_request_wanted() -> None:
    run = ready([base(), view("b", "a", chop=2), view("c", "b")])
    first, second = ask(run, "b", 1, 2, 3, 4), ask(run, "b", 4, 5)
    job = start(run, "b")  # hours 1 and 2
    run.world.deliver("f", run.world.new_rows([DAY_1 + 3 * HOUR_US + 9]))
    run.world.emit(RequestCancelled(run.world.tick(), first, "b"))
    # What runs ends; hour 4 is wanted by the other request, hour 3 by the new row once that is loaded.
    assert run.world.state.tables["b"].needs.domain().intervals == hours(4, 5)
    before = dict(run.world.counts)
    run.world.finish(job)
    run.settle()
    check_at_rest(run.world)
    assert counted(run, before) == {"b": [1, 2, 3, 4, 5], "c": [1, 2, 3, 4, 5]}
    assert stage(run, first) == "cancelled" and stage(run, second) == "done"
    # Too late, and for no request at all: nothing happens.
    state = dump(run.world.state)
    for number in (first, second, 4711):
        run.world.emit(RequestCancelled(run.world.now, number, "b"))
    again = dump(run.world.state)
    assert {**again, "applied": 0, "number": 0} == {**state, "applied": 0, "number": 0}


def make(run: Scenario, table: str) -> None:
    """One update of a table, and of no other."""
    for event in run.world.decide():
        if event.job.table == table:
            run.world.start(event)
            run.world.finish(event.job.id)


def test_cancelling_keeps_what_follows_from_what_was_made() -> None:
    run = ready(CHAIN)
    run.world.newest["f/0"].rows = run.world.new_rows([DAY_1 + hour * HOUR_US + 1 for hour in range(8)])
    number = ask(run, "a", 1)
    make(run, "a")
    assert next(iter(run.world.state.tables["b"].needs.pieces()))[2].requests == (number,)
    run.world.emit(RequestCancelled(run.world.tick(), number, "a"))
    assert stage(run, number) == "cancelled"
    before = dict(run.world.counts)
    run.settle()
    assert counted(run, before) == {"b": [1], "c": [1]}  # the tables would disagree otherwise


def test_a_change_that_is_to_stay_merges_with_what_is_pending_below() -> None:
    """Else rows that a fold has still to add would be added by it, and again when the held change is taken along."""
    run = ready([base(), view("b", "a", foldable=True)])
    late(run, 1)
    make(run, "a")
    ask(run, "a", 1, downstream=False)
    make(run, "a")
    assert not run.world.state.tables["b"].held
    assert settle(run) == {"b": [1]}


def test_a_cancelled_request_whose_job_fails_is_not_tried_again() -> None:
    run = ready(CHAIN)
    number = ask(run, "b", 1)
    job = start(run, "b")
    run.world.emit(RequestCancelled(run.world.tick(), number, "b"))
    assert stage(run, number) == "running"
    run.world.running.pop(job)
    run.world.emit(UpdateFailed(run.world.tick(), job, "b", "no luck"))
    assert settle(run) == {} and not run.world.state.tables["b"].needs


# Which changes a table follows


def follow(run: Scenario, name: str, *reasons: str) -> None:
    tables = [replace(t, propagate=reasons) if t.name == name else t for t in run.world.tables.values()]
    run.world.declare(list(run.world.feeds.values()), tables)


def late(run: Scenario, hour: int) -> None:
    run.world.deliver("f", run.world.new_rows([DAY_1 + hour * HOUR_US + 11]))


def test_a_frozen_table_is_made_once_and_loses_nothing() -> None:
    run = scenario(1, [base(), view("b", "a", propagate=()), view("c", "b")])
    assert deliver(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(4)))["b", DAY_1] == 1
    edge = run.world.state.tables["b"].edge_us
    late(run, 1)
    run.world.deliver("f", run.world.new_rows([DAY_1 + 5 * HOUR_US]))
    assert settle(run) == {} and run.world.state.tables["b"].edge_us == edge
    # Whoever asks for a partition gets it as it is now.
    ask(run, "b", 1)
    assert settle(run) == {"b": [1], "c": [1]}
    follow(run, "b", "all")
    assert settle(run) == {"b": [3, 4, 5], "c": [3, 4, 5]}
    assert run.world.state.tables["b"].edge_us == DAY_1 + 5 * HOUR_US + 1


def test_a_table_that_follows_new_rows_and_one_reason() -> None:
    run = ready([base(), view("b", "a"), view("c", "b", propagate=("new", "compliance"))], upto=4)
    late(run, 1)
    assert settle(run) == {"b": [1]}
    ask(run, "a", 1, 2, reason="curiosity")
    assert settle(run) == {"b": [1, 2]}
    ask(run, "a", 2, reason="compliance", deadline_us=run.world.now + HOUR_US)
    assert settle(run) == {"b": [2], "c": [2]}
    run.world.deliver("f", run.world.new_rows([DAY_1 + 4 * HOUR_US + 1]))
    assert settle(run) == {"b": [3, 4], "c": [3, 4]}
    assert run.world.state.tables["c"].held.domain().intervals == hours(1)
    follow(run, "c", "all")
    assert settle(run) == {"c": [1]}


def test_a_deadline_makes_history_count_as_much_as_the_edge() -> None:
    run = ready(CHAIN)
    ask(run, "b", 1)
    run.world.controller.idle  # noqa: B018 - it asks who is ready
    assert run.world.controller.ready["b"].history_weight == 0.1
    by = run.world.now + 60
    ask(run, "b", 2, deadline_us=by)
    run.world.controller.idle  # noqa: B018
    job = run.world.controller.ready["b"]
    assert (job.history_weight, job.deadline_us) == (1.0, by)


# Overrun


def overrun(policy: str) -> tuple[Scenario, str]:
    run = ready([base(), view("b", "a", overrun=policy), view("c", "b")])
    ask(run, "b", 1, 2)
    job = start(run, "b")
    late(run, 2)
    run.world.finish(start(run, "a"))  # now b's source is another than the running job sees
    return run, job


def test_queue() -> None:
    run, job = overrun("queue")
    before = dict(run.world.counts)
    assert not run.world.state.tables["b"].overrun
    run.world.finish(job)
    run.settle()
    assert counted(run, before)["b"] == [1, 2, 2]


def test_preempt() -> None:
    run, job = overrun("preempt")
    before = dict(run.world.counts)
    assert run.world.state.tables["b"].overrun
    run.world.running.pop(job)
    run.world.emit(UpdateStopped(run.world.tick(), job, "b", 1.0))
    following = start(run, "b")
    # The merged job follows, and is let finish: else a steady stream of changes would keep the table from ever being made.
    late(run, 1)
    run.world.finish(start(run, "a"))
    assert not run.world.state.tables["b"].overrun
    run.world.finish(following)
    run.settle()
    check_at_rest(run.world)
    assert counted(run, before)["b"] == [1, 1, 2]
    assert run.world.state.tables["b"].counts.failures == 0


def test_skip() -> None:
    run, job = overrun("skip")
    before = dict(run.world.counts)
    run.world.finish(job)
    run.settle()
    assert counted(run, before)["b"] == [1, 2]
    # Skipped, not forgotten: the next change of that hour brings it along.
    assert run.world.state.tables["b"].held.domain().intervals == hours(2)
    late(run, 2)
    assert settle(run) == {"b": [2], "c": [2]}


# Absent and empty


def two_feeds(**more) -> Scenario:
    feeds = [Feed("f"), Feed("g")]
    return scenario(1, [base("a", "f"), base("r", "g"), view("j", "a", "r", **more)], feeds)


def test_an_absent_source_is_waited_for_an_empty_one_is_not() -> None:
    run = two_feeds()
    deliver(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(5)), feed="f")
    assert not run.world.state.tables["j"].exists
    assert "r" in absent_inputs(run.world.state, "j")
    deliver(run, DAY_1 + 1, feed="g")
    assert absent_inputs(run.world.state, "j")["r"].intervals == hours(1, 2, 3)
    # A row of hour 5 says that there is nothing in the hours between: empty, not absent.
    made = deliver(run, DAY_1 + 5 * HOUR_US, feed="g")
    assert [(start - DAY_1) // HOUR_US for _, start in sorted(made)] == [0, 1, 2, 3, 4]
    assert absent_inputs(run.world.state, "j") == {}


def test_going_on_without_a_source_and_making_it_again_when_it_comes() -> None:
    run = two_feeds(optional=("r",))
    made = deliver(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(3)), feed="f")
    assert [hour for _, hour in sorted(made)] == [DAY_1, DAY_1 + HOUR_US, DAY_1 + 2 * HOUR_US]
    assert deliver(run, DAY_1 + HOUR_US + 5, feed="g") == {("j", DAY_1 + HOUR_US): 1}
    # Ahead of the others it changes nothing yet.
    assert deliver(run, DAY_1 + 7 * HOUR_US, feed="g") == {}


def test_an_absent_source_that_must_not_be() -> None:
    run = two_feeds(required=("r",))
    deliver(run, *(DAY_1 + hour * HOUR_US + 1 for hour in range(3)), feed="f")
    (row,) = (row for row in status(run.world.state) if row.table == "j")
    assert row.doing == "failed" and row.error is not None and row.error.startswith("r is absent")
    deliver(run, DAY_1 + 3 * HOUR_US, feed="g")
    (row,) = (row for row in status(run.world.state) if row.table == "j")
    assert row.doing == "idle" and row.error is None


# Forecasts, saved states, replays


def test_a_plan_is_what_then_runs() -> None:
    run = ready(DEEP)
    wishes = [BackfillRequested(run.world.now, "b", hours(1, 2, 3)), BackfillRequested(run.world.now, "a", hours(3, 4))]
    before = dump(run.world.state)
    planned = forecast(run.world.state, asked=wishes).campaign
    assert dump(run.world.state) == before, "planning changes nothing"
    for wish in wishes:
        run.world.emit(wish)
    made = settle(run)
    # b: 1-4, its reader d: 1-4; a: 3-4, and all below it 3-4. Separately: 3 + 3 for b, 2 * 6 for a.
    assert str(planned) == "2 requests: 18 updates -> 16"
    assert {work.table: work.updates for work in planned.work} == {"a": 2} | {t: len(h) for t, h in made.items()}


def test_a_plan_shows_what_changed_logic_recomputes() -> None:
    run = ready(CHAIN)
    world = run.world
    tables = [replace(t, logic="better") if t.name == "b" else t for t in world.tables.values()]
    tables.append(view("e", "a"))
    event = WarehouseDeclared(world.now, tuple(world.feeds.values()), tuple(tables), 2, "max-benefit")
    found = forecast(world.state, event)
    assert {(each.what, each.table) for each in found.reasons} == {("changed logic", "b"), ("a new table", "e")}
    assert {work.table: work.updates for work in found.campaign.work} == {"b": 8, "c": 8, "e": 8}


def test_requests_survive_a_saved_state_and_replay_decides_the_same() -> None:
    run = ready([base(), view("b", "a", chop=2), view("c", "b")])
    first = ask(run, "b", 1, 2, 3, 4, reason="audit", deadline_us=run.world.now + HOUR_US)
    ask(run, "b", 4, 5, downstream=False)
    start(run, "b")
    again = load(json.loads(json.dumps(dump(run.world.state))))
    assert requests(again) == requests(run.world.state)
    run.world.emit(RequestCancelled(run.world.tick(), first, "b"))
    run.settle()
    assert sum(isinstance(event, UpdateStarted) for _, event in run.world.log) > 4
    assert replay(run.world.log) == []


def test_finished_requests_are_forgotten_in_time() -> None:
    run = ready(CHAIN)
    for _ in range(70):
        ask(run, "b", 1)
        run.settle()
    assert len(run.world.state.requests) == 50


def test_a_long_backfill_of_a_base_table_is_cut() -> None:
    """Forty hours that take 10 s each, where a start takes half a second: ten periods at once, as the policy says. Rows that
    come meanwhile are loaded with the next of the jobs."""
    run = ready(CHAIN, upto=40, feeds=[Feed("f", period_us=HOUR_US)])
    world = run.world
    world.state.chops = dict.fromkeys(world.state.graph.order, Cut(10.0, 10.0))
    table = world.state.tables["a"]
    cost, a_byte_s = table.cost, 10 * 40 / (table.volume.within(table.has_us, EVERYTHING) * table.volume.inflation)
    cost.alpha_s, cost.beta_s = 0.5, a_byte_s
    before = dict(world.counts)
    number = ask(run, "a", *range(40))
    loads = []
    while starts := world.decide():
        for event in starts:
            world.start(event)
            if event.job.table == "a":
                loads.append((partitions_of(event.job.pieces).count(CHAIN[0].grain), len(event.job.files)))
                cost.alpha_s, cost.beta_s = 0.5, a_byte_s
        if len(loads) == 1:
            world.deliver("f", world.new_rows([DAY_1 + 40 * HOUR_US]))
        while world.running:
            world.finish(next(iter(world.running)))
            cost.alpha_s, cost.beta_s = 0.5, a_byte_s
    assert [files for _, files in loads][:2] == [0, 1]
    assert max(hours for hours, _ in loads) == 10 and sum(hours for hours, _ in loads) == 40
    # The last hour also gets the rows up to the new edge.
    assert all(made[:39] == list(range(39)) for made in counted(run, before).values())
    assert stage(run, number) == "done"
    check_at_rest(world)
