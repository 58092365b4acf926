"""Which operator is next, with the arithmetic beside it."""

from __future__ import annotations

import pytest

from penstock.flows.archetypes import butterfly
from penstock.flows.graph import FlowError
from penstock.papers.flows.policies import OPERATOR_POLICIES, Operator, find_operator_policy, memory_benefit

A = Operator("a", 400, True, rows_in=1000, rows_out=900, busy_us=100)
B = Operator("b", 300, True, rows_in=1000, rows_out=100, busy_us=300)
C = Operator("c", 900, False, rows_in=1000, rows_out=0, busy_us=10)


def test_round_robin_takes_turns_and_also_calls_who_cannot_run() -> None:
    policy = find_operator_policy("round-robin")
    assert [policy.choose((A, B, C), last) for last in (None, "a", "b", "c")] == ["a", "b", "c", "a"]
    assert policy.choose((A, C), "b") == "c"  # b has finished


def test_minimum_cost_takes_the_largest_queue_that_can_run() -> None:
    assert find_operator_policy("minimum-cost").choose((A, B, C), None) == "a"
    assert find_operator_policy("minimum-cost").choose((C,), None) is None


def test_minimum_memory_takes_what_frees_the_most() -> None:
    # (1000 - 900) / 100 * 400 = 400; (1000 - 100) / 300 * 300 = 900; c would free the most and cannot run.
    assert memory_benefit(A) == 400 and memory_benefit(B) == 900
    policy = find_operator_policy("minimum-memory")
    assert policy.choose((A, B, C), None) == "b"
    assert policy.slot_us("b") == 70_000
    # Nobody frees anything: the largest queue.
    fans_out = Operator("d", 500, True, rows_in=100, rows_out=300, busy_us=10)
    assert policy.choose((fans_out, Operator("e", 100, True)), None) == "d"


def test_mixed_runs_a_stratum_after_the_other_and_one_thread_a_subflow() -> None:
    policy = find_operator_policy("mixed").for_flow(butterfly())
    reader, check = Operator("partsupp", 400, True), Operator("total_cost", 0, False)
    other = Operator("supplier", 300, True)
    join = Operator("join", 5000, True)
    # The join is of a later stratum, however much waits for it.
    assert policy.choose((join, reader, check, other), None) == "partsupp"
    # Its subflow is at work: the other one.
    busy = Operator("partsupp", 400, False, running=True)
    assert policy.choose((join, busy, Operator("total_cost", 900, True), other), None) == "supplier"
    assert policy.choose((join, busy), None) is None
    assert policy.choose((join,), None) == "join"
    # Lines hurry, what holds rows saves memory.
    assert policy.slot_us("total_cost") is None and policy.slot_us("join") == 70_000
    assert ("dw_partsupp", "join") in policy.staged_edges()
    assert ("partsupp", "not_null_partsupp") not in policy.staged_edges()


def test_an_unknown_name_is_told() -> None:
    assert set(OPERATOR_POLICIES) == {"round-robin", "minimum-cost", "minimum-memory", "mixed"}
    with pytest.raises(FlowError, match="did you mean 'minimum-cost'"):
        find_operator_policy("minimal-cost")
