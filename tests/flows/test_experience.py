from __future__ import annotations

from penstock.flows.archetypes import line, primary_flow
from penstock.flows.gathering import learned
from penstock.flows.report import ActivityRun, FlowReport


def report(*runs: ActivityRun) -> FlowReport:
    return FlowReport("line", "job", 1.0, runs, ())


def test_selectivities_and_rows_of_the_last_run() -> None:
    run = report(
        ActivityRun("not_null", "not_null", "cost_of_part", 1000, 400),
        ActivityRun("in_domain", "in_domain", "cost_of_part", 400, 100),
        ActivityRun("sum_by_part", "aggregate", "cost_of_part", 0, 0),
        ActivityRun("gone", "filter", "cost_of_part", 5, 1),
    )
    found = learned(line(), run)
    assert found["partsupp"].rows == 1000
    assert (found["not_null"].selectivity, found["in_domain"].selectivity) == (0.4, 0.25)
    assert found["sum_by_part"] == line()["sum_by_part"]  # it got no rows: nothing was learned
    assert found.rows_out["total_cost"] == 1000 * 0.4 * 0.25
    # This time there is more.
    assert learned(line(), run, {"partsupp": 5000}).rows_out["total_cost"] == 5000 * 0.4 * 0.25


def test_a_source_that_is_read_beside_others_keeps_its_rows() -> None:
    found = learned(primary_flow(), report(ActivityRun("part_key", "look_up", "lineitem_with_keys", 700, 350)))
    assert found["part_key"].selectivity == 0.5
    assert found["lookup_part"].rows == primary_flow()["lookup_part"].rows
