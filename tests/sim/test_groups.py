"""Groups in scenarios: one job for all their tables, which reads once what they share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.scheduling.policies import DEFAULT, find_policy
from penstock.sim.lean import measure
from penstock.sim.read import scenario_of
from penstock.sim.runtime import Simulation, simulate
from penstock.sim.scenario import Scenario, ScenarioError, SimTable
from penstock.sim.whatif.recording import record
from penstock.sim.whatif.replay import Replay

BASE = SimTable("base", period_s=60.0, phase_s=0.0, alpha_s=1.0, beta=0.0)
# Alone they take 2, 4 and 6 seconds.
VIEWS = tuple(SimTable(name, ("base",), alpha_s=cost, beta=0.0) for name, cost in (("a", 2.0), ("b", 4.0), ("c", 6.0)))
SCENARIO = Scenario((BASE, *VIEWS), tracks=1, horizon_s=600.0, scan=0.5)
GROUPED = replace(SCENARIO, tables=(BASE, *(replace(view, group="g") for view in VIEWS)))


@pytest.mark.parametrize(("scan", "seconds"), [(0.0, 12.0), (0.5, 9.0), (1.0, 6.0)])
@pytest.mark.parametrize("costs", ["known", "learned"])
def test_a_group_is_one_job_that_reads_once(scan: float, seconds: float, costs: str) -> None:
    scenario = replace(GROUPED, scan=scan, costs=costs)
    outcome = simulate(scenario, find_policy("max-benefit"), trace=True)
    views = [(at, took) for at, table, _, took in outcome.trace if table != "base"]
    assert {took for _, took in views} == {seconds * 1e6}
    assert len(views) == outcome.updates / 2 == 10
    # They become visible together; and each is as far behind as a table that takes as long as all of them.
    assert len({outcome.staleness_s[view.name] for view in VIEWS}) == 1
    alone = simulate(
        Scenario((BASE, SimTable("one", ("base",), alpha_s=seconds, beta=0.0)), tracks=1, horizon_s=600.0),
        find_policy("max-benefit"),
    )
    assert outcome.staleness_s["a"] == alone.staleness_s["one"]


def test_the_load_of_a_group_counts_once() -> None:
    assert SCENARIO.utilisation == pytest.approx(13 / 60)
    assert GROUPED.utilisation == pytest.approx(10 / 60)
    assert GROUPED.costs_s == {"base": 1.0, "a": 9.0, "b": 9.0, "c": 9.0}


@pytest.mark.parametrize(
    "policy", [DEFAULT, "edf-partitioned / edf", "proportional(all, aggressive) / fifo", "adaptive"]
)
def test_under_every_placement(policy: str) -> None:
    """With failures, jitter, backfills and joins; and a view over the tables of a group."""
    data = {
        "tracks": 2,
        "horizon": "2h",
        "jitter": 0.3,
        "failures": 0.05,
        "costs": "learned",
        "tables": {
            "clicks": {"period": "1m", "count": 2, "alpha": 1},
            "orders": {"period": "5m", "late_share": 0.2, "late": "1h"},
            "x": {"sources": ["clicks-0"], "group": "g"},
            "y": {"sources": ["clicks-0", "orders"], "group": "g"},
            "z": {"sources": ["orders"], "group": "h"},
            "w": {"sources": ["x", "y"], "group": "h"},
        },
        "backfills": [{"at": "1h", "table": "orders", "start": 0, "end": "30m"}],
    }
    scenario, _ = scenario_of(data)
    (found,) = measure(scenario, [policy], 1, trace=True)
    started = {table for _, table, _, _ in found.outcome.trace}
    assert {"clicks-0", "clicks-1", "orders"} <= started
    # Nobody is left behind: a join of streams of 1 and 5 minutes is a few periods of the slower one late.
    assert max(found.outcome.staleness_s.values()) < 1800
    assert found.outcome.updates > 200


def test_a_group_saves_what_its_tables_share() -> None:
    apart, together = (
        measure(
            replace(
                s, slowdown=None, horizon_s=6000.0, tables=tuple(replace(t, alpha_s=3 * t.alpha_s) for t in s.tables)
            ),
            [DEFAULT],
            0,
        )[0]
        for s in (SCENARIO, GROUPED)
    )
    assert together.outcome.utilisation < 0.8 * apart.outcome.utilisation


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"a": {"group": "g"}}, "table 'a' is in group 'g', but it has batches of its own; groups are of tables with"),
        (
            {"a": {}, "b": {"sources": ["a"], "group": "g"}, "c": {"sources": ["b"], "group": "g"}},
            "the group of 'b' would have to wait for itself (b -> c); take one of them out of it",
        ),
        ({"a": {}, "b": {"sources": ["a"], "group": ""}}, "tables.b.group"),
    ],
)
def test_what_is_wrong_with_a_group(tables: dict[str, object], said: str) -> None:
    with pytest.raises(ScenarioError) as found:
        scenario_of({"tables": tables})
    assert said in str(found.value)


def test_a_group_on_record_is_replayed_as_one() -> None:
    """What its updates took is known of the group, with what all its tables went through."""
    run = Simulation(replace(GROUPED, costs="learned", jitter=0.2), find_policy("max-benefit"), 1, keep_log=True)
    run.run()
    assert run.log is not None
    found = record(enumerate(run.log, 1))
    assert found.costs.keys() == {"base", "a"} == found.luck.keys()
    assert found.output.keys() == {"base", "a", "b", "c"}
    assert found.costs["a"].usual_s == pytest.approx(9.0, rel=0.1)
    assert all(0.75 < luck < 1.3 for luck in found.luck["a"])
    again = Replay(found, seed=1).run()
    stale = {table.table: table.mean_s for table in again.freshness}
    assert stale["a"] == stale["b"] == stale["c"]
    assert again.updates == pytest.approx(found.updates, abs=2)
