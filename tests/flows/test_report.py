"""Reports of the partitions of a job are added up, however each was planned."""

from __future__ import annotations

from penstock.flows.report import ActivityRun, FlowReport, StepRun, total


def test_a_later_partition_may_have_steps_and_activities_that_the_first_lacks() -> None:
    def report(*names: str) -> FlowReport:
        runs = tuple(ActivityRun(name, "filter", name, 4, 3, 1, "reject", 0.5) for name in names)
        return FlowReport("f", "job", 1.0, runs, tuple(StepRun(name, 1.0, 0.5, 10) for name in names), 7, 0)

    whole = total([report("a"), report("a", "union"), report("union")])
    assert [(run.name, run.rows_in, run.rejected) for run in whole.activities] == [("a", 8, 2), ("union", 8, 2)]
    assert [(step.name, step.seconds, step.shuffle_bytes) for step in whole.steps] == [("a", 2, 20), ("union", 2, 20)]
    assert (whole.seconds, whole.peak_memory_bytes) == (3, 7)
