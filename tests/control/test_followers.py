"""Tables that one job makes together: a leader and those that follow it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.events import BackfillRequested, UpdateFinished
from penstock.control.readiness import blocked
from penstock.control.snapshot import dump, load
from penstock.control.views.recovery import guarantees
from penstock.control.views.requests import forecast, requests
from penstock.control.views.status import status
from penstock.model.graph import CycleError, Graph
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, SECOND_US
from penstock.requests.job import Job, PublishedTable
from penstock.scheduling.inheritance import inherited
from tests.control.test_state import DAY_1, SAME, Bench

F = Feed("f")
BASE = Table("base", "day", feed="f")
LEAD = Table("lead", "day", sources=(Source("base", SAME),), logic="1")
WITH = replace(LEAD, name="with", leader="lead")
BELOW = Table("below", "day", sources=(Source("with", SAME),))
DAY = (DAY_1, DAY_1 + DAY_US)


def together(bench: Bench, job: Job, *tables: str) -> None:
    bench.snapshot += 1
    complete = DAY_1 + DAY_US
    published = tuple(PublishedTable(name, bench.snapshot, False, (DAY,), complete, None, DAY_1) for name in tables)
    bench.emit(UpdateFinished(bench.later(), job.id, job.table, published, 1.0))


def loaded(*tables: Table) -> Bench:
    bench = Bench([F], [BASE, *tables])
    bench.file("one")
    bench.finish(bench.start("base"), DAY, complete=DAY_1 + DAY_US)
    return bench


def test_one_job_makes_all_and_their_readers_follow() -> None:
    bench = loaded(LEAD, WITH, BELOW)
    job = bench.start("lead")
    assert blocked(bench.controller.state, bench["with"]) == "an update of lead is running, with which it is made"
    assert {row.table: row.doing for row in status(bench.controller.state)}["with"] == "running"
    together(bench, job, "lead", "with")
    assert bench["with"].edge_us == bench["lead"].edge_us == DAY_1 + DAY_US
    assert bench["with"].counts.updates == 1 and not bench["with"].needs
    assert bench["with"].reflects == bench["lead"].reflects
    assert bench.start().table == "below"
    # What is remembered is the same after a restart.
    again = load(dump(bench.controller.state))
    assert dump(again) == dump(bench.controller.state)


def test_a_changed_or_new_follower_makes_the_leader_again() -> None:
    bench = loaded(LEAD)
    together(bench, bench.start("lead"), "lead")
    assert bench.controller.idle
    bench.declare([F], [BASE, LEAD, WITH])
    together(bench, bench.start("lead"), "lead", "with")
    assert bench.controller.idle
    bench.declare([F], [BASE, LEAD, replace(WITH, logic="2")])
    together(bench, bench.start("lead"), "lead", "with")
    assert bench.controller.idle
    # By itself again, it is made by its own jobs.
    bench.declare([F], [BASE, LEAD, replace(WITH, leader=None)])
    assert bench.start().table == "with"


def test_a_backfill_of_a_follower_is_one_of_its_leader() -> None:
    bench = loaded(LEAD, WITH, BELOW)
    together(bench, bench.start("lead"), "lead", "with")
    bench.finish(bench.start("below"), DAY, complete=DAY_1 + DAY_US)
    assert bench.controller.idle
    state = bench.controller.state
    asked = BackfillRequested(bench.later(), "with", (DAY,))
    planned = forecast(state, asked=[asked]).campaign
    assert [(work.table, work.updates) for work in planned.work] == [("lead", 1), ("with", 1), ("below", 1)]
    bench.emit(asked)
    (found,) = requests(state)
    assert (found.table, found.stage) == ("lead", "queued")
    # One of the leader, meanwhile, reaches the same.
    bench.emit(BackfillRequested(bench.later(), "lead", (DAY,)))
    assert requests(state)[0].merged_with == (found.request,)
    together(bench, bench.start("lead"), "lead", "with")
    assert requests(state)[-1].stage != "done"
    bench.finish(bench.start("below"), DAY, complete=DAY_1 + DAY_US)
    assert {each.stage for each in requests(state)} == {"done"} and bench.controller.idle


def test_a_source_cannot_be_made_from_a_follower() -> None:
    lead = replace(LEAD, sources=(Source("base", SAME), Source("below", SAME)))
    with pytest.raises(CycleError):
        Graph([F], [BASE, lead, replace(WITH, sources=lead.sources), BELOW])


def test_a_job_weighs_what_all_its_targets_weigh_together() -> None:
    """One rule for flows and for groups, whatever is inherited: the sum."""
    for rule, weight in (("none", 101.0), ("max", 101.0), ("sum", 110.0), ("chain", 101.0)):
        bench = Bench([F], [BASE, LEAD, replace(WITH, priority=100.0), replace(BELOW, priority=9.0)])
        graph = bench.controller.state.graph
        weights = inherited(graph, rule)
        assert sum(weights[name] for name in graph.made_with("lead")) == pytest.approx(weight), rule


def test_followers_have_guarantees_of_their_own() -> None:
    """They are as far as their leader; who reads one of them is proven, too; and each has its own target."""
    base = replace(BASE, cost_us=SECOND_US)
    lead = replace(LEAD, cost_us=SECOND_US, target_us=30 * DAY_US)
    follower = replace(WITH, target_us=SECOND_US)
    below = replace(BELOW, cost_us=SECOND_US, target_us=30 * DAY_US)
    # A group is made by whole partitions: nothing is promised of it where one is longer than a period.
    daily = replace(F, period_us=DAY_US)
    report, _ = guarantees(Graph([daily], [base, lead, follower, below]), {}, 2)
    found = {one.table: one for one in report.guarantees}
    assert found.keys() == {base.name, "lead", "with", "below"}
    assert found["with"].bound == found["lead"].bound is not None
    assert found["with"].utilisation == 0 and found["with"].cost_from == "with lead"
    assert (found["lead"].verdict, found["with"].verdict, found["below"].verdict) == ("proven", "not proven", "proven")
