"""Tables of one group are one job: for policies, for placements, and in what is proven."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.control.events import UpdateFinished, WarehouseDeclared
from penstock.control.job_building import build_job
from penstock.control.views.recovery import guarantees
from penstock.model.graph import Graph
from penstock.model.partitions import PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, MINUTE_US, SECOND_US
from penstock.requests.job import Job, PublishedTable
from penstock.scheduling.placement.base import recurring
from penstock.scheduling.policies import DEFAULT, find_policy
from tests.control.scenarios import Scenario, grouped
from tests.control.test_random_schedules import released
from tests.control.test_state import DAY_1, SAME, Bench

F = Feed("f", MINUTE_US)
BASE = Table("base", "day", feed="f")
VIEWS = [Table(name, "day", sources=(Source("base", SAME),), group="g") for name in ("b", "a", "c")]
DAY = (DAY_1, DAY_1 + DAY_US)


def end(bench: Bench, job: Job, seconds: float) -> None:
    bench.snapshot += 1
    published = tuple(
        PublishedTable(one.table, bench.snapshot, False, (DAY,), DAY_1 + DAY_US, None, DAY_1) for one in job.each
    )
    bench.emit(UpdateFinished(bench.later(), job.id, job.table, published, seconds))


def updated(policy: str = "max-benefit", times: int = 3, tracks: int = 2) -> Bench:
    bench = Bench([F], [BASE, *VIEWS], tracks)
    bench.emit(WarehouseDeclared(bench.later(), (F,), (BASE, *VIEWS), tracks, policy))
    for number in range(times):
        bench.file(f"{number}")
        end(bench, bench.start("base"), 1.0)
        end(bench, bench.start(), 8.0)
    return bench


def test_by_whose_name_updates_are_known() -> None:
    lead = Table("lead", "day", sources=(Source("base", SAME),))
    graph = Graph([F], [BASE, *VIEWS, lead, replace(lead, name="with", leader="lead")])
    assert graph.updated_as == {"base": "base", "a": "a", "b": "a", "c": "a", "lead": "lead", "with": "lead"}
    assert graph.updated_with == {"base": (), "a": ("b", "c"), "lead": ("with",)}


def test_a_group_is_one_recurring_update_at_the_cost_of_all() -> None:
    bench = updated()
    state, outlook = bench.controller.state, bench.controller.outlook
    found = {each.table: each for each in recurring(state.graph, outlook)}
    assert found.keys() == {"base", "a"}
    assert found["a"].cost_s == pytest.approx(8.0, rel=0.2)
    assert outlook.period_cost_s("c") == found["a"].cost_s


def test_policies_know_it_by_one_name_whichever_of_its_tables_has_work() -> None:
    """Here only `b` and `c` change: the job is theirs, and still that of the group."""
    feeds = [F, Feed("g", MINUTE_US)]
    other = Table("other", "day", feed="g")
    views = [replace(VIEWS[1], sources=(Source("other", SAME),)), VIEWS[0], VIEWS[2]]
    bench = Bench(feeds, [BASE, other, *views], tracks=2)
    bench.file("one", "g")
    end(bench, bench.start("other"), 1.0)
    end(bench, bench.start("a"), 1.0)
    bench.file("two")
    end(bench, bench.start("base"), 1.0)
    job = bench.start("b")
    assert [one.table for one in job.each] == ["b", "c"]
    end(bench, job, 4.0)
    assert [done.table for done in bench.controller.state.unseen.values()][-1] == "a"


@pytest.mark.parametrize("tracks", [1, 2])
def test_what_is_proven_of_a_group(tracks: int) -> None:
    """It is one task with the sum of what was declared, or with what was learned; each table has its own target."""
    tables = [replace(BASE, cost_us=SECOND_US)]
    tables += [replace(view, cost_us=2 * SECOND_US, target_us=4 * DAY_US, period_us=DAY_US) for view in VIEWS]
    tables[1] = replace(tables[1], target_us=SECOND_US)
    report, model = guarantees(Graph([F], tables), {}, tracks)
    assert {task.table: task.cost_us for task in model.tasks} == {"base": SECOND_US, "a": 6 * SECOND_US}
    found = {one.table: one for one in report.guarantees}
    assert found["a"].bound == found["b"].bound is not None
    assert [found[name].verdict for name in "abc"] == ["proven", "not proven", "proven"]
    assert found["b"].cost_from == "with a" and found["b"].utilisation == 0

    # A group is made by whole partitions, which are no part of a period of a minute.
    state = updated().controller.state
    learned = {name: table.cost for name, table in state.tables.items()}
    report, model = guarantees(state.graph, learned, tracks)
    shown = {one.table: one for one in report.guarantees}
    assert shown["a"].cost_from == "learned"
    assert shown["base"].bound is not None and shown["a"].bound is None


def test_the_adaptive_policy_follows_a_group_as_one() -> None:
    bench = updated("adaptive", times=2)
    bench.file("more")
    end(bench, bench.start("base"), 1.0)
    modes = bench.controller._memory
    assert set(modes.tasks) == {"base", "a"}
    assert modes["a"].lag_us > 0
    job = bench.start()
    assert [one.table for one in job.each] == ["a", "b", "c"]
    end(bench, job, 8.0)
    assert modes["a"].lag_us == 0
    assert not bench.controller.decide(bench.later())


@pytest.mark.parametrize("policy", [DEFAULT, "adaptive", "edf-partitioned / edf", "proportional(all) / edf-p"])
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_under_policies_that_plan(policy: str, seed: int) -> None:
    rng = Random(seed)
    released(Scenario(seed, asking=rng.random() < 0.3, warehouse=grouped(rng), policy=find_policy(policy)))


def load_days(bench: Bench, count: int) -> list[tuple[int, int]]:
    """The base table gets so many days at once."""
    days = [(DAY_1 + n * DAY_US, DAY_1 + (n + 1) * DAY_US) for n in range(count)]
    bench.file("one", size=1000 * count)
    job = bench.start("base")
    bench.snapshot += 1
    whole = PartitionSet.of(*days).intervals
    found = PublishedTable("base", bench.snapshot, True, whole, days[-1][1], None, DAY_1, size_bytes=1000 * count)
    bench.emit(UpdateFinished(bench.later(), job.id, job.table, (found,), 1.0))
    return days


def test_long_work_of_a_group_is_cut_as_that_of_a_table() -> None:
    """By the cost of the group, each table; what a part of it reads is not what all of it would."""
    bench = Bench([F], [BASE, *VIEWS], 2)
    bench.emit(WarehouseDeclared(bench.later(), (F,), (BASE, *VIEWS), 2, "max-benefit / chop=2"))
    load_days(bench, 20)
    state = bench.controller.state
    state.cost_of("a").alpha_s, state.cost_of("a").beta_s = 1.0, 0.01
    whole = {name: bench[name].amount for name in "abc"}
    job = bench.start()
    assert [one.table for one in job.each] == ["a", "b", "c"]
    lengths = {one.table: sum(piece.end_us - piece.start_us for piece in one.pieces) // DAY_US for one in job.each}
    assert len(set(lengths.values())) == 1 and lengths["a"] < 20
    for one in job.each:
        assert one.amount == pytest.approx(whole[one.table] * lengths[one.table] / 20)
        assert one.expected_s == pytest.approx(1.0 + 0.01 * sum(each.amount for each in job.each))
        assert bench[one.table].amount == pytest.approx(whole[one.table] - one.amount)


def test_a_group_takes_as_little_as_it_is_told() -> None:
    bench = Bench([replace(F, period_us=DAY_US)], [BASE, *VIEWS], 2)
    days = load_days(bench, 20)
    state = bench.controller.state
    assert bench.controller.decide(bench.now)
    job = build_job(state, bench["a"], bench.controller.ready["a"], 9, take=2)
    for one in job.each:
        assert [(piece.start_us, piece.end_us) for piece in one.pieces] == [(days[0][0], days[1][1])]
        assert one.complete_us == days[1][1] and one.amount == pytest.approx(bench[one.table].amount / 10)
